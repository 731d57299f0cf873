package cli

import (
	"context"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/text"
)

// parkedPoll is how often a job whose output is shown is asked for. A stream of
// events would take one of its user's streams for every log.
const parkedPoll = time.Second

// sayParked says when a job whose output is shown is parked and when it is back,
// until the function that it returns is called.
func sayParked(ctx context.Context, s *session.Session, id string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	w := parkedWatch{s: s}
	look := func() {
		// Whoever shows the output notices that the daemon is gone.
		if detail, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: id}); err == nil {
			w.see(&detail.View)
		}
	}
	look() // attaching to a job may bring it back
	go func() {
		defer close(ended)
		for api.Pause(ctx, parkedPoll) == nil {
			look()
		}
	}()
	return func() { cancel(); <-ended }
}

// parkedWatch says each change once.
type parkedWatch struct {
	s      *session.Session
	parked bool
}

func (w *parkedWatch) see(v *job.View) {
	switch is := v.State == job.Parked; {
	case is && !w.parked:
		w.s.Say("job %s is parked%s; its output goes on when it is back", v.ID, render.Because(*v))
	case w.parked && v.State == job.Running && v.Parking != nil:
		return // it is coming back
	case w.parked && v.State == job.Running:
		w.s.Say("job %s is back on GPU %s", v.ID, text.Numbers(v.GPUIDs))
	}
	w.parked = v.State == job.Parked
}
