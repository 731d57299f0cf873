package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/text"
)

// gpusOptions are the flags of `berth gpus`.
type gpusOptions struct {
	watch, json, verbose, slurm bool
}

func newGPUs() *cobra.Command {
	o := &gpusOptions{}
	cmd := &cobra.Command{
		Use:   "gpus",
		Short: "Show the GPUs, their memory, and the jobs on them",
		Long: `Show the GPUs. MEMORY is used and total memory in GiB. EXTERNAL is what berth
leaves to external processes: their peak use and a little more. ALLOCATED is the
memory allocated to jobs, used or not. HEALTH says why no job starts on a GPU,
and since when. Parked jobs are listed with the GPUs that they come back to.
With -v, a second table lists the processes on each GPU. With --slurm, it shows
the nodes of the Slurm cluster and how many of their GPUs are free.`,
		Example: `  berth gpus
  berth gpus -v
  berth gpus --watch
  berth gpus --slurm
  berth gpus --json | jq '.[] | select(.free_mib > 20000) | .index'

Exit status: 0 shown; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		Args: noWords,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			return o.run(ctx, s)
		}),
	}
	session.QueueFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.watch, "watch", "w", false, "refresh every second")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "also list the processes on each GPU")
	flags.BoolVar(&o.slurm, "slurm", false, "show the nodes of the Slurm cluster instead, and their GPUs")
	flags.BoolVar(&o.json, "json", false, "print a JSON array of GPUs")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

func (o *gpusOptions) run(ctx context.Context, s *session.Session) error {
	if o.watch && !o.json {
		return session.Watch(ctx, s, func(view session.Screen) error { return o.draw(ctx, s, view) })
	}
	if !o.json {
		return o.draw(ctx, s, s.Screen)
	}
	if o.slurm {
		nodes, err := slurmNodes(ctx)
		if err != nil {
			return err
		}
		return printJSON(s.Out, notNull(nodes))
	}
	gpus, err := fetchGPUs(ctx, s)
	if err != nil {
		return err
	}
	return printJSON(s.Out, notNull(gpus))
}

// fetchGPUs asks the daemon. Without one, nobody has looked for GPUs, and the list is
// nil.
func fetchGPUs(ctx context.Context, s *session.Session) ([]api.GPU, error) {
	gpus, err := s.Client.GPUs(ctx)
	if s.NoJobsYet(err) {
		s.Say("no daemon is running, so the GPUs are not known; berth start starts one")
		return nil, nil
	}
	return gpus, err
}

func (o *gpusOptions) draw(ctx context.Context, s *session.Session, view session.Screen) error {
	if o.slurm {
		nodes, err := slurmNodes(ctx)
		if err != nil {
			return err
		}
		return drawNodes(view, nodes)
	}
	gpus, err := fetchGPUs(ctx, s)
	if err != nil || gpus == nil {
		return err
	}
	if len(gpus) == 0 {
		_, err := fmt.Fprintln(view.Out, "no GPUs")
		return err
	}
	return drawGPUs(view, gpus, o.verbose, time.Now())
}

// drawGPUs draws the GPUs, and with verbose the processes on them.
func drawGPUs(s session.Screen, gpus []api.GPU, verbose bool, now time.Time) error {
	if err := s.Draw(gpuTable(gpus, now)); err != nil || !verbose {
		return err
	}
	return drawProcesses(s, gpus)
}

func gpuTable(gpus []api.GPU, now time.Time) *text.Table {
	t := &text.Table{
		Columns: []text.Column{
			{Title: "GPU", Right: true}, {Title: "NAME"}, {Title: "MEMORY", Right: true}, {Title: "EXTERNAL", Right: true},
			{Title: "ALLOCATED", Right: true}, {Title: "UTIL", Right: true}, {Title: "TEMP", Right: true, Shy: true},
			{Title: "POWER", Right: true, Shy: true}, {Title: "HEALTH"}, {Title: "JOBS"},
		},
		Concessions: []text.Concession{
			{Title: "HEALTH", To: 40}, {Title: "JOBS", To: 24}, {Title: "TEMP", To: 0}, {Title: "POWER", To: 0}, {Title: "NAME", To: 16}, {Title: "ALLOCATED", To: 0}, {Title: "HEALTH", To: 32}, {Title: "JOBS", To: 20}, {Title: "EXTERNAL", To: 0}, {Title: "NAME", To: 10}, {Title: "HEALTH", To: 12}, {Title: "JOBS", To: 12}, {Title: "NAME", To: 0},
		},
	}
	whole := -1
	for _, g := range sortedByParent(gpus) {
		if g.Parent == nil {
			whole = g.Index
		} else if *g.Parent != whole {
			whole = *g.Parent
			t.Add(text.Cell{Text: strconv.Itoa(whole)}, text.Cell{Text: cardName(g)}, text.Cell{}, text.Cell{}, text.Cell{}, text.Cell{}, text.Cell{}, text.Cell{}, text.Cell{Text: "split by MIG"}, text.Cell{})
		}
		t.Add(text.Cell{Text: strconv.Itoa(g.Index)}, text.Cell{Text: gpuName(g)}, text.Cell{Text: text.GiB(g.UsedMiB) + "/" + text.GiB(g.TotalMiB) + "G"},
			text.Cell{Text: text.GiB(g.ForeignMiB) + "G"}, text.Cell{Text: text.GiB(g.BudgetMiB) + "G"}, text.Cell{Text: measured(g.Util, "%", "-")},
			text.Cell{Text: measured(g.TemperatureC, "C", "")}, text.Cell{Text: powerText(g)}, healthCell(g, now), text.Cell{Text: gpuJob(g, 0, now)})
		for i := 1; i < len(g.Jobs)+len(g.Parked); i++ { // a row each, so that none is cut off
			row := make([]text.Cell, len(t.Columns))
			row[len(row)-1].Text = gpuJob(g, i, now)
			t.Add(row...)
		}
	}
	return t
}

// sortedByParent puts MIG parts where their GPU would be.
func sortedByParent(gpus []api.GPU) []api.GPU {
	place := func(g api.GPU) int {
		if g.Parent != nil {
			return *g.Parent
		}
		return g.Index
	}
	sorted := slices.Clone(gpus)
	slices.SortStableFunc(sorted, func(a, b api.GPU) int { return place(a) - place(b) })
	return sorted
}

// cardName is the name of a GPU, or of the GPU that a MIG part belongs to.
func cardName(g api.GPU) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(g.Name, "NVIDIA "), " MIG ")
	return name
}

// gpuName is the name in a row. MIG parts are indented below their GPU.
func gpuName(g api.GPU) string {
	switch {
	case g.Parent != nil && g.Profile != "":
		return "  MIG " + g.Profile
	case g.Parent != nil:
		return "  " + strings.TrimPrefix(g.Name, "NVIDIA ")
	}
	return strings.TrimPrefix(g.Name, "NVIDIA ")
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// measured writes a reading of the driver, or none if there is no reading.
func measured(value *float64, unit, none string) string {
	if value == nil {
		return none
	}
	return fmt.Sprintf("%.0f%s", *value, unit)
}

func powerText(g api.GPU) string {
	if g.PowerW == nil || g.PowerLimitW == nil {
		return measured(g.PowerW, "W", "")
	}
	return fmt.Sprintf("%.0f/%.0fW", *g.PowerW, *g.PowerLimitW)
}

// healthCell says whether jobs may start on a GPU, and if not, why and since
// when: "quarantined 3m12s: Xid 79 (the card has fallen off the bus)".
func healthCell(g api.GPU, now time.Time) text.Cell {
	written, colour := g.Health, text.Green
	switch {
	case g.Health == "quarantined":
		colour = text.Red
	case g.Health != "ok" || g.Paused || g.Stale:
		colour = text.Yellow
	}
	if g.Health != "ok" && !g.HealthSince.IsZero() {
		written += " " + text.Span(now.Sub(g.HealthSince))
	}
	if g.HealthReason != "" && (g.Health != "ok" || g.HealthReason != g.StaleReason) {
		written += ": " + g.HealthReason
	}
	var more []string
	if g.Paused {
		more = append(more, "paused")
	}
	switch {
	case g.LetGoUntil != nil:
		more = append(more, "driver released until "+g.LetGoUntil.Local().Format("15:04"))
	case g.Health != "ok": // that says enough
	case g.Stale && g.StaleReason != "":
		more = append(more, "no recent reading: "+g.StaleReason)
	case g.Stale:
		more = append(more, "no recent reading")
	}
	return text.Cell{Text: strings.Join(append([]string{written}, more...), ", "), Paint: colour}
}

// gpuJob is one of the jobs on a GPU, or of the parked ones that belong to it;
// empty if there are not so many.
func gpuJob(g api.GPU, i int, now time.Time) string {
	parked := i - len(g.Jobs)
	if parked >= len(g.Parked) {
		return ""
	}
	var j api.GPUJob
	if parked >= 0 {
		j = g.Parked[parked]
	} else {
		j = g.Jobs[i]
	}
	words := j.ID
	if j.Name != "" && j.Name != "job"+j.ID {
		words += " " + j.Name
	}
	if j.User != "" {
		words += " (" + j.User + ")"
	}
	if j.UsedMiB != nil {
		words += " " + text.GiB(*j.UsedMiB) + "G"
	}
	if parked >= 0 {
		words += " parked"
	}
	if j.IdleSince != nil {
		words += " idle " + idleSpan(now.Sub(*j.IdleSince))
	}
	if j.Other {
		words += " of another berth"
	}
	return words
}

// idleSpan is a span without seconds: 42m, 3h05m.
func idleSpan(d time.Duration) string {
	if d >= time.Minute && d < time.Hour {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return text.Span(d)
}

// drawProcesses lists the processes on each GPU.
func drawProcesses(s session.Screen, gpus []api.GPU) error {
	t := &text.Table{
		Columns: []text.Column{
			{Title: "GPU", Right: true}, {Title: "PID", Right: true}, {Title: "USER"}, {Title: "PROCESS"},
			{Title: "MEMORY", Right: true}, {Title: "KIND"}, {Title: "JOB"},
		},
		Concessions: []text.Concession{{Title: "PROCESS", To: 8}, {Title: "USER", To: 6}, {Title: "KIND", To: 0}, {Title: "USER", To: 0}},
	}
	var silent []string
	for _, g := range gpus {
		if g.Processes == nil {
			silent = append(silent, strconv.Itoa(g.Index))
		}
		for _, p := range g.Processes {
			used, kind := "-", "compute"
			if p.UsedMiB != nil {
				used = fmt.Sprintf("%d MiB", *p.UsedMiB)
			}
			if p.Graphics {
				kind = "graphics"
			}
			t.Add(text.Cell{Text: strconv.Itoa(g.Index)}, text.Cell{Text: strconv.Itoa(p.PID)}, text.Cell{Text: orDash(p.User)}, text.Cell{Text: orDash(p.Command)},
				text.Cell{Text: used}, text.Cell{Text: kind}, text.Cell{Text: orDash(p.Job)})
		}
	}
	fmt.Fprintln(s.Out)
	if len(silent) > 0 {
		fmt.Fprintf(s.Out, "the driver does not list the processes on gpu %s\n", strings.Join(silent, ","))
	}
	if t.Len() == 0 {
		_, err := fmt.Fprintln(s.Out, "no processes")
		return err
	}
	return s.Draw(t)
}
