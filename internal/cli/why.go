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
	"berth/internal/job/jobfile"
	"berth/internal/text"
)

type whyFlags struct {
	verbose, json bool
}

func newWhy() *cobra.Command {
	o := &whyFlags{}
	cmd := &cobra.Command{
		Use:   "why JOB...",
		Short: "Explain why a job waits and when it should start, or how it ended",
		Long: `Explain why a job waits and when it should start, or how it ended. Of an array,
berth explains the first task that waits, and counts the tasks by state.`,
		Example: `  berth why 17
  berth why -v @                        everything about your last job
  berth why 17 18 20-22 --json
  berth why --log-dir berth_logs 7      a job of berth run

Exit status: 0 explained; 1 no such job, or no daemon; 2 bad usage; 130
interrupted.`,
		Args:              someJobs,
		ValidArgsFunction: completeEndedToo,
		RunE:              session.Verb(o.run),
	}
	session.QueueFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "everything: each GPU, the jobs on it, and which jobs go first")
	flags.BoolVar(&o.json, "json", false, "print a JSON object with text, position, expected and more; an array for several jobs")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

// someJobs expects one job or more.
func someJobs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return exactlyOne(cmd, args)
}

func (o *whyFlags) run(ctx context.Context, s *session.Session, args []string) error {
	stories := make([]api.Why, 0, len(args))
	for _, id := range eachOf(args) {
		why, err := api.Call(ctx, s.Client, api.GetWhy, api.JobID{ID: id})
		if err != nil {
			return err
		}
		stories = append(stories, why)
	}
	return o.tell(s.Screen, stories, time.Now())
}

// mostExplained bounds the jobs of a range that are explained one by one.
const mostExplained = 1000

// eachOf writes small ranges out as ids: 1-3 is 1, 2 and 3. The daemon refuses
// the rest.
func eachOf(words []string) (ids []string) {
	for _, word := range words {
		sel, err := jobfile.ParseSelection([]string{word})
		if err != nil || len(sel.Ranges) != 1 || strings.Contains(word, ",") || sel.Ranges[0].To-sel.Ranges[0].From >= mostExplained {
			ids = append(ids, word)
			continue
		}
		r := sel.Ranges[0]
		for n := r.From; n <= r.To; n++ {
			id := strconv.FormatInt(n, 10)
			if r.Array != "" {
				id = r.Array + "_" + id
			}
			ids = append(ids, id)
		}
	}
	return ids
}

func (o *whyFlags) tell(s render.Screen, stories []api.Why, now time.Time) error {
	if o.json {
		if len(stories) == 1 {
			return printJSON(s.Out, stories[0])
		}
		return printJSON(s.Out, stories)
	}
	for i := range stories {
		why := &stories[i]
		if why.Expected != nil {
			why.Expected.Now = why.Expected.Now.Local() // times are shown in the reader's zone
		}
		if o.verbose && why.State == "queued" {
			if i > 0 {
				fmt.Fprintln(s.Out)
			}
			if err := tellStory(s, why, now); err != nil {
				return err
			}
			continue
		}
		if err := tellLine(s, why); err != nil {
			return err
		}
	}
	return nil
}

// tellLine prints one line, then the notes.
func tellLine(s render.Screen, why *api.Why) error {
	if _, err := fmt.Fprintln(s.Out, text.Line(fmt.Sprintf("job %s: %s", why.ID, whyLine(why)))); err != nil {
		return err
	}
	for _, note := range why.Notes {
		fmt.Fprintln(s.Out, text.Line(note))
	}
	return nil
}
