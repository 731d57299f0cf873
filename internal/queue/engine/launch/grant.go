package launch

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
)

// granted is a job's cards at its start.
type granted struct {
	job     *job.Job
	known   []gpu.Device // parallel to the grant; empty if one of them is unknown
	filter  bool         // a device filter keeps the job off all other cards
	note    string       // why there is no filter, if others have one
	mps     *keep.MPS    // its MPS server; nil: none
	renamed bool         // the job counts cards differently than berth
}

func (l *Launcher) cards(j *job.Job) granted {
	g := granted{job: j, mps: l.mps(j)}
	for _, uuid := range j.Grant.UUIDs {
		var d gpu.Device
		ok := false
		if l.card != nil {
			d, ok = l.card(uuid)
		}
		if !ok {
			g.known = nil
			break
		}
		g.known = append(g.known, d)
	}
	complete := len(g.known) == len(j.Grant.GPUs)
	hidden := func(d gpu.Device) bool { return d.Minor < 0 || d.Part != nil && d.Part.Caps == nil }
	if l.Filter && l.SimDir == "" {
		g.filter = complete && !slices.ContainsFunc(g.known, hidden)
		if !g.filter {
			g.note = "no device filter: the driver does not report the device files of its GPUs"
		}
	}
	g.renamed = g.filter && !g.first() || g.mps != nil || slices.ContainsFunc(g.known, func(d gpu.Device) bool {
		return d.Part != nil || d.DriverIndex != d.Index
	})
	return g
}

// first reports whether the job has the first cards of the machine, in whatever
// order. A job that can open only these counts them as berth does.
func (g granted) first() bool {
	for i, index := range slices.Sorted(slices.Values(g.job.Grant.GPUs)) {
		if i != index {
			return false
		}
	}
	return true
}

// env is what says which cards a job has, and the job must not change. CUDA
// counts only cards that a program can open: numbers work if it can open all of
// them, or has the first ones; otherwise UUIDs are used.
func (g granted) env() []string {
	list := g.job.Grant.List()
	visible := list
	if g.renamed {
		visible = strings.Join(g.job.Grant.UUIDs, ",")
	}
	containers := visible
	if containers == "" {
		containers = "void" // container runtimes read this as "no GPU"
	}
	env := []string{
		"CUDA_VISIBLE_DEVICES=" + visible,
		"CUDA_DEVICE_ORDER=PCI_BUS_ID",
		"NVIDIA_VISIBLE_DEVICES=" + containers,
		"APPTAINERENV_NVIDIA_VISIBLE_DEVICES=" + containers,
		"APPTAINERENV_CUDA_VISIBLE_DEVICES=" + visible,
		"BERTH_GPUS=" + list,
	}
	if cpus := g.cpus(); cpus != "" {
		env = append(env, "BERTH_CPUS="+cpus)
	}
	return append(env, g.mps.Env()...)
}

// devices is what the device filter allows; nil: there is no filter.
func (g granted) devices() *keep.Devices {
	if !g.filter {
		return nil
	}
	d := &keep.Devices{}
	for _, card := range g.known {
		if !slices.Contains(d.Minors, card.Minor) {
			d.Minors = append(d.Minors, card.Minor)
		}
		if card.Part != nil {
			d.Caps = append(d.Caps, card.Part.Caps...)
		}
	}
	return d
}

// cpus are the CPUs next to the job's cards, in the kernel's list format; empty
// if a card does not report them.
func (g granted) cpus() string {
	if len(g.known) == 0 {
		return ""
	}
	var set []int
	for _, card := range g.known {
		near, err := keep.ParseCPUs(card.CPUs)
		if err != nil {
			return ""
		}
		set = append(set, near...)
	}
	slices.Sort(set)
	return gpu.FormatCPUs(slices.Compact(set))
}

// mps is the MPS server of a job that asked for one and has a card.
func (l *Launcher) mps(j *job.Job) *keep.MPS {
	if j.Spec.Cap != "mps" || len(j.Grant.UUIDs) == 0 || l.MPSControl == "" {
		return nil
	}
	m := &keep.MPS{
		Control: l.MPSControl, Dir: filepath.Join(l.MPSDir, j.Keep+"."+strconv.Itoa(j.Attempt.Number)),
		Cards: j.Grant.UUIDs, LimitMiB: j.BudgetMiB(),
	}
	if j.Grant.Share > 0 {
		m.Threads = max(1, int(j.Grant.Share*100+0.5))
	}
	return m
}
