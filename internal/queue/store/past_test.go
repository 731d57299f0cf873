package store

import (
	"slices"
	"testing"
	"time"

	"berth/internal/job"
)

func TestPastIsTheNewestThatRan(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	at := time.Unix(1_700_000_000, 0)
	var jobs []*job.Job
	for i, state := range []job.State{job.Finished, job.Failed, job.Queued, job.Running, job.Cancelled, job.Finished, job.Failed, job.Finished} {
		j := &job.Job{Seq: int64(i + 1), ID: string(rune('1' + i)), User: "ann", State: state, Spec: job.Spec{Shell: "true", GPUs: 1}, SubmittedAt: at}
		if state != job.Queued && i != 6 { // the seventh never ran
			j.StartedAt = at
		}
		if state.Terminal() {
			j.EndedAt = at.Add(time.Hour)
		}
		jobs = append(jobs, j)
	}
	if err := s.Commit(Tx{Put: jobs}); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int][]string{10: {"1", "2", "6", "8"}, 2: {"6", "8"}, 0: nil} {
		past, err := s.Past(most)
		var got []string
		for _, j := range past {
			got = append(got, j.ID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("at most %d: %v %v, want %v", most, got, err, want)
		}
	}
}

func BenchmarkPast(b *testing.B) {
	s := openIn(b, b.TempDir())
	at := time.Unix(1_700_000_000, 0)
	var jobs []*job.Job
	for i := range 100_000 {
		j := &job.Job{Seq: int64(i + 1), ID: time.Duration(i + 1).String(), User: "ann", State: job.Queued, Spec: job.Spec{Shell: "python train.py --seed 3 --model resnet50", GPUs: 1}, SubmittedAt: at}
		if i < 10_000 {
			j.State, j.Outcome, j.StartedAt, j.EndedAt = job.Finished, job.OK, at, at.Add(time.Hour)
		}
		jobs = append(jobs, j)
	}
	if err := s.Commit(Tx{Put: jobs}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if past, err := s.Past(4096); err != nil || len(past) != 4096 {
			b.Fatal(len(past), err)
		}
	}
}
