package batch

import (
	"testing"
	"time"

	"berth/internal/job"
)

// TestWhatIsAskedBeforeJobsAreStopped: about long work, parked or not, and about all
// in a daemon's queue.
func TestWhatIsAskedBeforeJobsAreStopped(t *testing.T) {
	t.Parallel()
	now := at0.Add(3 * time.Hour)
	long := started("1", "x", 0)
	long.StartedAt = at0
	parked := started("2", "x", 0)
	parked.MustTo(job.Parked)
	parked.Parking = job.Parking{Times: 1, Served: time.Hour, Since: at0.Add(time.Hour)}
	soon := started("3", "x", 0)
	soon.StartedAt = now.Add(-time.Minute)
	resumed := started("4", "x", 0)
	resumed.Parking = job.Parking{Times: 1, Served: time.Minute, Since: at0.Add(time.Minute), Resumed: now.Add(-time.Minute)}
	for _, row := range []struct {
		jobs        []*job.Job
		own, shared string
	}{
		{[]*job.Job{soon}, "", "1 job is in the queue: cancel it? [y/N/d=leave]"},
		{[]*job.Job{soon, resumed}, "", "2 jobs are in the queue: cancel them? [y/N/d=leave]"},
		{[]*job.Job{parked, soon}, "1 job has run for up to 1h00m: stop it? [y/N/d=detach]", "2 jobs are in the queue: cancel them? [y/N/d=leave]"},
		{[]*job.Job{long, parked}, "2 jobs have run for up to 3h00m: stop them? [y/N/d=detach]", "2 jobs are in the queue: cancel them? [y/N/d=leave]"},
	} {
		f := newFollower(Options{AskAfter: 10 * time.Minute})
		f.link = &Link{Own: &OwnQueue{}}
		for _, j := range row.jobs {
			f.view.add(j)
			f.jobs.follow(job.Event{Kind: job.EventStarted, Job: j})
		}
		if got := f.stop.ask(f, now); got != row.own {
			t.Errorf("%q, want %q", got, row.own)
		}
		f.link.Own = nil
		if got := f.stop.ask(f, now); got != row.shared {
			t.Errorf("%q, want %q", got, row.shared)
		}
	}
}
