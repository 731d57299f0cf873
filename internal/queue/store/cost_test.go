package store

import (
	"runtime"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestWhatAShortJobAllocates bounds the three commits of a job that arrives, starts
// and ends alone, with today's number.
func TestWhatAShortJobAllocates(t *testing.T) {
	const jobs, warm = 100, 20
	most := uint64(23_000)
	if testkit.Race {
		most = 28_000 // with what the detector allocates
	}
	s := openIn(t, t.TempDir())
	commit := func(j *job.Job, kind job.EventKind) {
		t.Helper()
		if err := s.Commit(Tx{Put: []*job.Job{j}, Events: []*job.Event{{At: j.SubmittedAt, Kind: kind, Job: j}}}); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	for i := range warm + jobs {
		if i == warm {
			runtime.ReadMemStats(&before)
		}
		j := queued(int64(i + 1))
		commit(j, job.EventQueued)
		j.MustTo(job.Running)
		j.Attempt = j.Next(j.SubmittedAt.Add(time.Second), job.Grant{GPUs: []int{0}}, "token")
		commit(j, job.EventStarted)
		j.MustTo(job.Finished)
		j.Outcome, j.EndedAt = job.OK, j.StartedAt.Add(time.Second)
		commit(j, job.EventEnded)
	}
	runtime.ReadMemStats(&after)
	per := (after.TotalAlloc - before.TotalAlloc) / jobs
	if per > most {
		t.Errorf("%d bytes allocated for each job, at most %d", per, most)
	}
	t.Logf("%d bytes", per)
}
