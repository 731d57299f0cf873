package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
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
		return session.Watch(ctx, s, func(view render.Screen) error { return o.draw(ctx, s, view) })
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
	gpus, err := api.Call(ctx, s.Client, api.ListGPUs, api.None{})
	if s.NoJobsYet(err) {
		s.Say("no daemon is running, so the GPUs are not known; berth start starts one")
		return nil, nil
	}
	return gpus, err
}

func (o *gpusOptions) draw(ctx context.Context, s *session.Session, view render.Screen) error {
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
func drawGPUs(s render.Screen, gpus []api.GPU, verbose bool, now time.Time) error {
	if err := s.Draw(render.GPUTable(gpus, now)); err != nil || !verbose {
		return err
	}
	return drawProcesses(s, gpus)
}

// drawProcesses lists the processes on each GPU.
func drawProcesses(s render.Screen, gpus []api.GPU) error {
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
			t.Add(text.Cell{Text: strconv.Itoa(g.Index)}, text.Cell{Text: strconv.Itoa(p.PID)}, text.Cell{Text: render.OrDash(p.User)}, text.Cell{Text: render.OrDash(p.Command)},
				text.Cell{Text: used}, text.Cell{Text: kind}, text.Cell{Text: render.OrDash(p.Job)})
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
