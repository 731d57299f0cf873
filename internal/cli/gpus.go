package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/api"
)

// gpusOptions are the flags of `berth gpus`.
type gpusOptions struct {
	watch, json bool
}

func newGPUs() *cobra.Command {
	o := &gpusOptions{}
	cmd := &cobra.Command{
		Use:   "gpus",
		Short: "Show the cards, their memory, and who uses them",
		Long: `Show the cards. MEMORY is what is in use of what there is, in GiB; OTHERS is the
part of it that berth's jobs do not use; PROMISED is what jobs on the card were
given, used or not.`,
		Example: `  berth gpus
  berth gpus --watch
  berth gpus --json | jq '.[] | select(.free_mib > 20000) | .index'

Exit status: 0 shown; 1 no daemon, or it refused; 2 bad usage; 130 interrupted.`,
		Args: noWords,
		RunE: verb(func(ctx context.Context, s *session, _ []string) error {
			return o.run(ctx, s)
		}),
	}
	daemonFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.watch, "watch", "w", false, "show it again every second")
	flags.BoolVar(&o.json, "json", false, "an array of cards")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

func (o *gpusOptions) run(ctx context.Context, s *session) error {
	if o.watch && !o.json {
		return watch(ctx, s, func(view screen) error { return drawGPUs(ctx, s.client, view) })
	}
	if !o.json {
		return drawGPUs(ctx, s.client, s.screen)
	}
	gpus, err := s.client.GPUs(ctx)
	if err != nil {
		return err
	}
	return printJSON(s.out, notNull(gpus))
}

func drawGPUs(ctx context.Context, client *api.Client, s screen) error {
	gpus, err := client.GPUs(ctx)
	if err != nil {
		return err
	}
	if len(gpus) == 0 {
		_, err := fmt.Fprintln(s.out, "no GPUs")
		return err
	}
	return gpuTable(gpus).draw(s)
}

func gpuTable(gpus []api.GPU) *table {
	t := &table{
		columns: []column{
			{title: "GPU", right: true}, {title: "NAME"}, {title: "MEMORY", right: true}, {title: "OTHERS", right: true},
			{title: "PROMISED", right: true}, {title: "UTIL", right: true}, {title: "HEALTH"}, {title: "JOBS"},
		},
		concessions: []concession{
			{"NAME", 16}, {"PROMISED", 0}, {"HEALTH", 24}, {"JOBS", 20}, {"NAME", 10}, {"HEALTH", 12}, {"OTHERS", 0}, {"JOBS", 12}, {"NAME", 0},
		},
	}
	for _, g := range gpus {
		util := "-"
		if g.Util != nil {
			util = fmt.Sprintf("%.0f%%", *g.Util)
		}
		t.add(cell{text: strconv.Itoa(g.Index)}, cell{text: strings.TrimPrefix(g.Name, "NVIDIA ")}, cell{text: gib(g.UsedMiB) + "/" + gib(g.TotalMiB) + "G"},
			cell{text: gib(g.ForeignMiB) + "G"}, cell{text: gib(g.BudgetMiB) + "G"}, cell{text: util}, healthCell(g), cell{text: gpuJobs(g.Jobs)})
	}
	return t
}

// healthCell says whether jobs may be put on a card, and if not, why.
func healthCell(g api.GPU) cell {
	words, colour := []string{g.Health}, green
	switch {
	case g.Health == "quarantined":
		colour = red
	case g.Health != "ok" || g.Paused || g.Stale:
		colour = yellow
	}
	if g.Paused {
		words = append(words, "paused")
	}
	if g.Stale {
		words = append(words, "not read lately")
	}
	text := strings.Join(words, ", ")
	if g.HealthReason != "" {
		text += ": " + g.HealthReason
	}
	return cell{text, colour}
}

// gpuJobs lists who is on a card: "17 train (ann) 17.5G".
func gpuJobs(jobs []api.GPUJob) string {
	parts := make([]string, len(jobs))
	for i, j := range jobs {
		parts[i] = j.ID
		if j.Name != "" && j.Name != "job"+j.ID {
			parts[i] += " " + j.Name
		}
		if j.User != "" {
			parts[i] += " (" + j.User + ")"
		}
		if j.UsedMiB != nil {
			parts[i] += " " + gib(*j.UsedMiB) + "G"
		}
		if j.Other {
			parts[i] += " of another berth"
		}
	}
	return strings.Join(parts, ", ")
}
