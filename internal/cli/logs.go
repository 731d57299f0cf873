package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// logsOptions are the flags of `berth logs`.
type logsOptions struct {
	follow  bool
	lines   int
	attempt int
	raw     bool
}

func newLogs() *cobra.Command {
	o := &logsOptions{}
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Show the output of a job",
		Long: `Show the output of a job's last attempt, or of another one with --attempt. -f
follows the output until the job ends; if the daemon restarts meanwhile, nothing
is lost or repeated. If the job is parked meanwhile, berth says so on stderr.

If a log outgrew the daemon's log_size, its middle is gone, and a line beginning
with [berth: marks the gap.

Of an array you get the output of each task, one after the other. With -f the
lines of all tasks come as they are written, with the task in front, until the
last one has ended.

In a pipe you get every byte as the job wrote it. On a terminal, colours, tabs
and carriage returns work, and other control characters are shown as symbols, so
that a log cannot control your terminal. --raw passes them through.`,
		Example: `  berth logs 17
  berth logs -f @
  berth logs -n 20 17
  berth logs -f 17              all tasks of an array: 17_3 | epoch 1 ...
  berth logs 17_3               one of them
  berth logs --attempt 1 17 > first.log

Exit status: 0 shown; 1 no such job, no log yet, or no daemon; 2 bad usage; 130
interrupted.`,
		Args:              exactlyOne,
		ValidArgsFunction: completeEndedToo,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cmp.Or(atLeast(cmd, "lines", o.lines, 0), atLeast(cmd, "attempt", o.attempt, 1))
		},
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			return o.run(ctx, s, args[0])
		}),
	}
	session.QueueFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "follow the output until the job ends")
	flags.IntVarP(&o.lines, "lines", "n", 0, "show only this many lines from the end (default all)")
	flags.IntVar(&o.attempt, "attempt", 0, "show this attempt (default the last)")
	flags.BoolVar(&o.raw, "raw", false, "pass control characters through to the terminal")
	return cmd
}

func (o *logsOptions) run(ctx context.Context, s *session.Session, word string) error {
	detail, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: word})
	if err != nil {
		return err
	}
	if detail.Tasks != nil {
		return o.array(ctx, s, detail)
	}
	id := detail.ID
	if detail.Attempt == 0 && detail.State.Terminal() {
		ended := "ended"
		if detail.State == job.Cancelled {
			ended = "was cancelled"
		}
		return problem.Newf(problem.Unable, "berth why "+id, "job %s %s before it started; it has no log", id, ended)
	}
	if detail.Attempt == 0 && !o.follow {
		return problem.Newf(problem.Unable, fmt.Sprintf("berth why %s explains why; berth logs -f %[1]s waits for its output", id), "job %s has not started and has no log yet", id)
	}
	if detail.Attempt == 0 {
		s.Say("job %s has not started%s; waiting for its output", id, render.Because(detail.View))
	}
	q := api.LogQuery{ID: id, Attempt: o.attempt, Lines: o.lines, Follow: o.follow}
	if o.follow && o.attempt == 0 {
		defer sayParked(ctx, s, id)()
		return followLog(ctx, s, q, o.raw)
	}
	_, err = copyLog(ctx, s, q, o.raw)
	return err
}

// copyLog shows one attempt's log. The reader survives restarts of the daemon.
func copyLog(ctx context.Context, s *session.Session, q api.LogQuery, raw bool) (attempt int, err error) {
	log, err := s.Client.Log(ctx, q)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }() // it has been read
	told := false
	log.OnRetry = func(error) {
		if !told {
			told = true
			s.Say("the daemon does not answer; waiting for it")
		}
	}
	out := s.Out
	if s.Terminal && !raw {
		calm := &text.LogWriter{Out: s.Out}
		defer calm.Close()
		out = calm
	}
	_, err = io.Copy(out, log)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return log.Attempt(), err
}

// followLog shows a job's output until the job ends, attempt by attempt.
func followLog(ctx context.Context, s *session.Session, q api.LogQuery, raw bool) error {
	for {
		attempt, err := copyLog(ctx, s, q, raw)
		if err != nil {
			return err
		}
		detail, err := awaitAttempt(ctx, s, q.ID, attempt+1)
		if err != nil || detail.Attempt <= attempt {
			return err
		}
		q.Attempt, q.Lines = attempt+1, 0
	}
}

// awaitAttempt waits until a job has ended or begun its next attempt.
func awaitAttempt(ctx context.Context, s *session.Session, id string, attempt int) (api.Detail, error) {
	patience := session.NewPatience(s)
	said := false
	for {
		detail, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: id})
		if err != nil {
			if err := patience.Bear(ctx, err); err != nil {
				return detail, err
			}
			continue
		}
		patience.Answered()
		if detail.State.Terminal() || detail.Attempt >= attempt {
			return detail, nil
		}
		if detail.State == job.Queued && !said {
			said = true
			s.Say("job %s is queued%s; waiting for attempt %d", id, render.Because(detail.View), attempt)
		}
		if err := api.Pause(ctx, startedPoll); err != nil {
			return detail, err
		}
	}
}

// hadNoLog reports that there was no log: the job never started, and its
// outcome says why.
func hadNoLog(err error) bool {
	kind := problem.KindOf(err)
	return kind == problem.Refused || kind == problem.NotFound
}
