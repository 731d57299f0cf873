package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
)

// queued is a job as a jobs file makes it.
func queued(seq int64) *job.Job {
	spec := job.Defaults()
	spec.Shell = fmt.Sprintf("python train.py --seed %d --lr 0.001", seq)
	spec.VRAMMiB = 18432
	return &job.Job{
		ID: fmt.Sprint(seq), Seq: seq, Key: fmt.Sprintf("%016x#1", seq), User: "ann", Spec: spec,
		State: job.Queued, Rank: seq, VRAMMiB: spec.VRAMMiB, SubmittedAt: time.Unix(1_700_000_000, seq),
	}
}

func openIn(tb testing.TB, dir string) *Store {
	tb.Helper()
	s, err := Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func fill(tb testing.TB, s *Store, from, to int64, state job.State) []*job.Job {
	tb.Helper()
	var jobs []*job.Job
	for seq := from; seq <= to; seq++ {
		j := queued(seq)
		j.State = state
		jobs = append(jobs, j)
	}
	if err := s.Commit(Tx{Put: jobs}); err != nil {
		tb.Fatal(err)
	}
	return jobs
}

// cpu reports the processor time per operation beside the wall clock's, which
// says little on a machine that has other things to do.
func cpu(b *testing.B) func() {
	used := func() float64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric((used()-before)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkCommitStartEnd is a round of the engine: one job ends, the next
// starts. Its cost must not depend on how many are over.
func BenchmarkCommitStartEnd(b *testing.B) {
	for _, over := range []int64{0, 100_000} {
		b.Run(fmt.Sprintf("over=%d", over), func(b *testing.B) {
			s := openIn(b, b.TempDir())
			fill(b, s, 1, over, job.Finished)
			jobs := fill(b, s, over+1, over+2, job.Queued)
			ending, starting := jobs[0], jobs[1]
			code, util := 0, 93.5
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				ending.State, ending.Outcome, ending.EndedAt = job.Finished, job.OK, time.Unix(1_700_000_100, 0)
				ending.PeakMiB, ending.ExitCode, ending.AvgUtil = map[int]int64{0: 17910}, &code, &util
				starting.State, starting.Attempt.Number, starting.StartedAt = job.Running, 1, time.Unix(1_700_000_100, 0)
				starting.Grant = job.Grant{GPUs: []int{0}, BudgetMiB: 18432}
				events := []*job.Event{
					{At: ending.EndedAt, Kind: job.EventEnded, Job: ending},
					{At: ending.EndedAt, Kind: job.EventUsage, Job: ending},
					{At: ending.EndedAt, Kind: job.EventStarted, Job: starting},
				}
				if err := s.Commit(Tx{Put: []*job.Job{ending, starting}, Events: events}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHoldFat holds and releases a job with 0.9 MB of arguments. It must cost
// little more than for a small job.
func BenchmarkHoldFat(b *testing.B) {
	for name, j := range map[string]*job.Job{"small": queued(1), "fat": fat(1)} {
		b.Run(name, func(b *testing.B) {
			s := openIn(b, b.TempDir())
			if err := s.Commit(Tx{Put: []*job.Job{j}}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				j.Held = !j.Held
				if err := s.Commit(Tx{Put: []*job.Job{j}, Events: []*job.Event{{Kind: job.EventHeld, Job: j}}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSync is the bare disk under a commit.
func BenchmarkSync(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	block := make([]byte, 32<<10)
	defer cpu(b)()
	for b.Loop() {
		if _, err := file.WriteAt(block, 0); err != nil {
			b.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInsert100k is a large jobs file taken in, with and without the
// events that tell of it.
func BenchmarkInsert100k(b *testing.B) {
	for _, told := range []bool{false, true} {
		b.Run(fmt.Sprintf("events=%v", told), func(b *testing.B) {
			var tx Tx
			for seq := int64(1); seq <= 100_000; seq++ {
				j := queued(seq)
				tx.Put = append(tx.Put, j)
				if told {
					tx.Events = append(tx.Events, &job.Event{At: j.SubmittedAt, Kind: job.EventQueued, Job: j})
				}
			}
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				b.StopTimer()
				s := openIn(b, filepath.Join(b.TempDir(), "store"))
				b.StartTimer()
				if err := s.Commit(tx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRead100k is what a restart pays for its history.
func BenchmarkRead100k(b *testing.B) {
	s := openIn(b, b.TempDir())
	fill(b, s, 1, 99_000, job.Finished)
	fill(b, s, 99_001, 100_000, job.Queued)
	for _, row := range []struct {
		name string
		read func(func(*job.Job) error) error
	}{{"all", s.Each}} {
		b.Run(row.name, func(b *testing.B) {
			defer cpu(b)()
			for b.Loop() {
				if err := row.read(func(*job.Job) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if err := quickCheck(b.Context(), s.conn); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRetain is what a round of retention costs with 100,000 jobs of 50
// users and their events: with nothing to do, and with a flood of one user's to
// look through.
func BenchmarkRetain(b *testing.B) {
	s := openIn(b, b.TempDir())
	var tx Tx
	for seq := int64(1); seq <= 100_000; seq++ {
		j := queued(seq)
		j.User, j.State, j.Attempt.Number, j.EndedAt = fmt.Sprintf("user%d", seq%50), job.Finished, int(seq%2), time.Unix(1_700_000_000, seq)
		if seq > 50_000 {
			j.User = "flood"
		}
		tx.Put = append(tx.Put, j)
		tx.Events = append(tx.Events, &job.Event{At: j.SubmittedAt, Kind: job.EventQueued, Job: j})
	}
	if err := s.Commit(tx); err != nil {
		b.Fatal(err)
	}
	for _, total := range []int{100_000, 90_000} {
		b.Run(fmt.Sprintf("jobs/over=%d", 100_000-total), func(b *testing.B) {
			defer cpu(b)()
			for b.Loop() {
				if _, _, err := s.forgettable(Keep{Jobs: total, Logs: time.Unix(1_800_000_000, 0)}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("events/over=%d", 100_000-total), func(b *testing.B) {
			defer cpu(b)()
			for b.Loop() {
				if _, err := s.tooMany(total); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
