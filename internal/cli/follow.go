package cli

import (
	"context"
	"errors"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
)

// follow is submit -i: it shows the job's output until the job ends, and returns
// its status. Ctrl-C leaves the job running and says how to come back.
func follow(ctx context.Context, s *session.Session, id string, pty bool) error {
	pty = pty && interactive(s)
	over, err := watchToEnd(ctx, s, id, pty)
	switch {
	case errors.Is(err, errDetached), err != nil && ctx.Err() != nil:
		back := "berth logs -f "
		if pty {
			back = "berth attach "
		}
		s.Say("detached; job %s keeps running", id)
		s.Advise("come back with %s%s, or end it with berth cancel %[2]s", back, id)
		return session.ExitInterrupted
	case err != nil:
		return err
	}
	for _, v := range over {
		if v.State != job.Finished {
			s.Say("%s", render.EndText(v))
		}
	}
	return largestStatus(over)
}

// watchToEnd shows a job's terminal or its log until the job ends.
func watchToEnd(ctx context.Context, s *session.Session, id string, pty bool) ([]job.View, error) {
	for pty {
		if err := attachTo(ctx, s, id); err != nil {
			return nil, err
		}
		detail, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: id})
		if err != nil || detail.State != job.Queued {
			break // the wait below handles it
		}
	}
	if !pty {
		defer sayParked(ctx, s, id)()
		if err := followLog(ctx, s, api.LogQuery{ID: id, Follow: true}, false); err != nil && !hadNoLog(err) {
			return nil, err
		}
	}
	w := waiter{s: s, quiet: true}
	return w.wait(ctx, []string{id})
}
