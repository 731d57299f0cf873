package daemon

import (
	"testing"

	"berth/internal/api"
	"berth/internal/job"
)

// TestEndJobs: told to stop, such a daemon ends what runs and then itself, and
// the next one runs it again.
func TestEndJobs(t *testing.T) {
	t.Parallel()
	ready := 0
	l := newLab(t, func(o *Options) { o.EndJobs, o.Ready = true, func() { ready++ } })
	first := l.submit(sh("exec sleep 600"), sh("exec sleep 600"), sh("exec sleep 600"))
	runs := func(id string) bool {
		d, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: id})
		return err == nil && d.State == job.Running
	}
	l.until("two run", func() bool { return runs(first[0]) && runs(first[1]) })
	l.stop()
	l.start()
	l.until("they run again", func() bool { return runs(first[0]) && runs(first[1]) })
	if d, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: first[0]}); err != nil || d.Attempt < 2 {
		t.Errorf("attempt %d, %v: it was not ended", d.Attempt, err)
	}
	if ready == 0 {
		t.Error("nobody was told that it serves")
	}
}
