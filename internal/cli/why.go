package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/batch"
	"berth/internal/problem"
	"berth/internal/text"
)

type whyFlags struct {
	verbose, json bool
	logDir        string
}

func newWhy() *cobra.Command {
	o := &whyFlags{}
	cmd := &cobra.Command{
		Use:   "why JOB...",
		Short: "Say why a job waits and when it should start, or how it ended",
		Example: `  berth why 17
  berth why -v @                        the whole story of your last job
  berth why 17 18 --json
  berth why --log-dir berth_logs 7      of a berth run

Exit status: 0 said; 1 no such job, or no daemon; 2 bad usage; 130 interrupted.`,
		Args:              someJobs,
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.logDir != "" {
				return failed(whyOnBoard(cmd, o, args), target{})
			}
			return verb(o.run)(cmd, args)
		},
	}
	daemonFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "the whole story: every card, who holds it, who goes first and why")
	flags.BoolVar(&o.json, "json", false, "an object with text, position, expected and more; an array of them for several jobs")
	flags.StringVar(&o.logDir, "log-dir", "", "ask the status board of a berth run instead of the daemon")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

// someJobs takes one job id or more.
func someJobs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return exactlyOne(cmd, args)
}

func (o *whyFlags) run(ctx context.Context, s *session, args []string) error {
	stories := make([]api.Why, 0, len(args))
	for _, id := range args {
		why, err := s.client.Why(ctx, id)
		if err != nil {
			return err
		}
		stories = append(stories, why)
	}
	return o.tell(s.screen, stories, time.Now())
}

// whyOnBoard asks what a berth run last wrote down.
func whyOnBoard(cmd *cobra.Command, o *whyFlags, args []string) error {
	told, err := batch.ReadStatus(o.logDir)
	if err != nil {
		return problem.Newf(problem.Unable, "name the --log-dir of a berth run; berth_logs is the usual one", "%w", err)
	}
	stories := make([]api.Why, 0, len(args))
	for _, word := range args {
		j, found := told.Find(word)
		if !found {
			return problem.Newf(problem.Unable, "it tells of what runs, what waits first and what ended last; "+o.logDir+"/status.txt shows them",
				"no job %s on the status board of %s", word, o.logDir)
		}
		stories = append(stories, whyTold(j, told.At))
	}
	s := newScreen(cmd.OutOrStdout(), cmd.Flag("no-color").Value.String() == "true", os.Getenv)
	return o.tell(s, stories, time.Now())
}

// whyTold is what the board says of a job, as the daemon would say it.
func whyTold(j batch.StatusJob, at time.Time) api.Why {
	said := "as the status board said at " + at.Local().Format(time.TimeOnly)
	return api.Why{Story: j.Story, State: j.State, Notes: []string{said}}
}

func (o *whyFlags) tell(s screen, stories []api.Why, now time.Time) error {
	if o.json {
		if len(stories) == 1 {
			return printJSON(s.out, stories[0])
		}
		return printJSON(s.out, stories)
	}
	for i := range stories {
		why := &stories[i]
		if why.Expected != nil {
			why.Expected.Now = why.Expected.Now.Local() // its times are told in the reader's zone
		}
		if o.verbose && why.State == "queued" {
			if i > 0 {
				fmt.Fprintln(s.out)
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

// tellLine says it in one line; what else there is to know follows.
func tellLine(s screen, why *api.Why) error {
	if _, err := fmt.Fprintln(s.out, text.Line(fmt.Sprintf("job %s: %s", why.ID, whyLine(why)))); err != nil {
		return err
	}
	for _, note := range why.Notes {
		fmt.Fprintln(s.out, text.Line(note))
	}
	return nil
}
