package engine

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/keep"
)

// granted is the cards of a job as they are on the day it starts.
type granted struct {
	job     *job.Job
	known   []gpu.Device // parallel to the grant; empty where nothing is known of one of them
	filter  bool         // the job cannot open any other
	note    string       // why it can, where others cannot
	mps     *keep.MPS    // the server that its programs use; nil: none
	renamed bool         // a number would not mean to the job what it means to berth
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
			g.note = "device filter not in force: the driver does not tell which files are its cards'"
		}
	}
	g.renamed = g.filter || g.mps != nil || slices.ContainsFunc(g.known, func(d gpu.Device) bool {
		return d.Part != nil || d.DriverIndex != d.Index
	})
	return g
}

// env is what the job must not be able to change: which cards it has. CUDA
// counts only the cards that a program can open, so numbers are given where it
// can open all of them, and names otherwise.
func (g granted) env() []string {
	list := g.job.Grant.List()
	visible := list
	if g.renamed {
		visible = strings.Join(g.job.Grant.UUIDs, ",")
	}
	containers := visible
	if containers == "" {
		containers = "void" // what container runtimes read as "no GPU"
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

// devices is what the filter lets through; nil: there is none.
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

// cpus are the CPUs next to the job's cards, as a list the kernel reads; empty
// where one of the cards does not tell.
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

// mps is how a job's MPS server is run, for a job that asked for one and has a
// card to use it on.
func (l *Launcher) mps(j *job.Job) *keep.MPS {
	if j.Spec.Cap != "mps" || len(j.Grant.UUIDs) == 0 || l.MPSControl == "" {
		return nil
	}
	m := &keep.MPS{
		Control: l.MPSControl, Dir: filepath.Join(l.MPSDir, j.Keep+"."+strconv.Itoa(j.Attempt.Number)),
		Cards: j.Grant.UUIDs, LimitMiB: budgetMiB(j),
	}
	if j.Grant.Share > 0 {
		m.Threads = max(1, int(j.Grant.Share*100+0.5))
	}
	return m
}
