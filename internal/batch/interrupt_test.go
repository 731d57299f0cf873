package batch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/problem"
	"berth/internal/sched"
	"berth/internal/testkit"
)

// opening runs a session on a file and sends it a signal once it waits.
func opening(t *testing.T, file string, waits func()) (dir string, err error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "logs")
	signals := make(chan os.Signal, 1)
	opt := Options{
		File: file, LogDir: dir, Poll: time.Hour, Rules: sched.DefaultRules(), LogLevel: "info",
		Sim: 1, SimVRAMMiB: 1024, Out: os.Stderr, Signals: signals, Dir: t.TempDir(),
	}
	go func() {
		waits()
		signals <- os.Interrupt
	}()
	over := make(chan error, 1)
	go func() {
		_, err := Run(context.Background(), opt)
		over <- err
	}()
	select {
	case err := <-over:
		return dir, err
	case <-time.After(time.Minute):
		t.Fatal("it does not hear the signal")
		return dir, nil
	}
}

func TestASignalIsObeyedBeforeAnythingRuns(t *testing.T) {
	tests := []struct {
		name string
		file func(t *testing.T) (path string, waits func())
	}{
		{"while the last line of the file may be in the making", func(t *testing.T) (string, func()) {
			path := filepath.Join(t.TempDir(), "jobs.txt")
			testkit.Write(t, path, "[gpus=0] touch ran")
			return path, func() {}
		}},
		{"while nobody writes the pipe", func(t *testing.T) (string, func()) {
			path := filepath.Join(t.TempDir(), "pipe")
			mkfifo(t, path)
			return path, func() {}
		}},
		{"while the pipe is not at its end", func(t *testing.T) (string, func()) {
			path := filepath.Join(t.TempDir(), "pipe")
			mkfifo(t, path)
			return path, func() {
				file, err := os.OpenFile(path, os.O_WRONLY, 0) // berth has it open then
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { file.Close() })
				file.WriteString("[gpus=0] touch ran\n")
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file, waits := test.file(t)
			dir, err := opening(t, file, waits)
			if problem.KindOf(err) != problem.Interrupted || !errors.Is(err, errInterrupted) {
				t.Errorf("it says %v", err)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("it went on, to the log directory: %v", err)
			}
		})
	}
}

// TestLongWorkIsAskedAbout: by how long a job has run, parked or not.
func TestLongWorkIsAskedAbout(t *testing.T) {
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
		jobs []*job.Job
		want string
	}{
		{nil, ""},
		{[]*job.Job{soon, resumed}, ""},
		{[]*job.Job{parked, soon}, "1 job has run for up to 1h00m: stop it? [y/N/d=detach]"},
		{[]*job.Job{long, parked}, "2 jobs have run for up to 3h00m: stop them? [y/N/d=detach]"},
	} {
		if got := stopQuestion(row.jobs, now, 10*time.Minute); got != row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
}
