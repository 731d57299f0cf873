package queue

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/store"
	"berth/internal/sched"
	"berth/internal/text/problem"
)

// simulated is a machine of two simulated cards in a directory of its own.
func simulated(t *testing.T) Setup {
	t.Helper()
	t.Setenv("BERTH_LEDGER_DIR", t.TempDir())
	dir := t.TempDir()
	return Setup{
		StateDir: dir, Hint: "elsewhere", MPSDir: dir, Log: Log{Path: filepath.Join(dir, "berth.log"), MaxBytes: 1 << 20, Level: "info"},
		Sim: 2, SimVRAMMiB: 1000, Getenv: func(string) string { return "" },
		Launcher: launch.Launcher{JobsDir: filepath.Join(dir, "jobs"), Dir: "/"},
		Choose:   func(_ *Queue, first gpu.Sample, err error) ([]gpu.Device, error) { return first.Devices, err },
	}
}

func plain(*Queue) engine.Config {
	return engine.Config{Settings: settings.Settings{Rules: sched.DefaultRules()}}
}

func TestAQueueIsOpenedAndClosed(t *testing.T) {
	setup := simulated(t)
	m, err := Open(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Devices) != 2 || m.SimDir != filepath.Join(setup.StateDir, "sim") || m.Launcher.SimDir != m.SimDir || m.Launcher.Filter {
		t.Errorf("%+v, launcher %+v", m, m.Launcher)
	}
	m.Start(plain(m), 7)
	m.Engine.Outside(time.Now(), func(turn *engine.Turn) {
		if len(turn.Cards().Devices()) != 2 {
			t.Errorf("the engine knows %v", turn.Cards().Devices())
		}
	})
	_, err = Open(t.Context(), setup)
	locked, ok := errors.AsType[*store.LockedError](err)
	if !ok || locked.PID != os.Getpid() || problem.KindOf(err) != "" {
		t.Errorf("a second queue in the same place: %v", err)
	}
	m.Close()
	again, err := Open(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestWhatFailsLaterLeavesNothingOpen(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*Setup)
		kind  problem.Kind
		hint  string
	}{
		"a level that is none": {spoil: func(s *Setup) { s.Log.Level = "loud" }, kind: problem.Invalid},
		"a log in no place":    {spoil: func(s *Setup) { s.Log.Path = filepath.Join(s.StateDir, "none", "log") }, kind: problem.Unable, hint: "elsewhere"},
		"too many cards":       {spoil: func(s *Setup) { s.Sim = 1 << 20 }, kind: problem.Unable, hint: NoCardsHint},
		"the caller's choice": {kind: problem.Refused, hint: "others", spoil: func(s *Setup) {
			s.Choose = func(*Queue, gpu.Sample, error) ([]gpu.Device, error) {
				return nil, problem.Newf(problem.Refused, "others", "none of them will do")
			}
		}},
		"a file where supervisors go": {kind: problem.Unable, hint: "elsewhere", spoil: func(s *Setup) {
			if err := os.WriteFile(KeepDir(s.StateDir), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			setup := simulated(t)
			test.spoil(&setup)
			_, err := Open(t.Context(), setup)
			p, ok := errors.AsType[*problem.Problem](err)
			if !ok || p.Kind != test.kind || p.Hint != test.hint {
				t.Errorf("it says %+v", err)
			}
			st, err := store.Open(StoreDir(setup.StateDir))
			if err != nil {
				t.Fatalf("the store is still held: %v", err)
			}
			st.Close()
		})
	}
}

// TestAQueueIsReadAndRehearsed: a queue that no process works on is opened for
// reading and for a dry run, and neither changes it.
func TestAQueueIsReadAndRehearsed(t *testing.T) {
	setup := simulated(t)
	if _, err := Read(setup.StateDir, setup.Launcher, plain); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading where no queue is: %v", err)
	}
	q, err := Open(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{ID: "3", Seq: 3, Spec: job.Defaults()}
	j.Spec.Shell, j.Spec.GPUs = "true", 2
	j.Submitted(time.Now())
	if err := q.Store.Commit(store.Tx{Put: []*job.Job{j}}); err != nil {
		t.Fatal(err)
	}
	q.Close()

	rehearsal := simulated(t)
	for says, open := range map[string]func() (*Queue, error){
		"read":      func() (*Queue, error) { return Read(setup.StateDir, setup.Launcher, plain) },
		"rehearsed": func() (*Queue, error) { return Rehearse(t.Context(), rehearsal, setup.StateDir, plain) },
	} {
		q, err := open()
		if err != nil {
			t.Fatalf("%s: %v", says, err)
		}
		q.Engine.Outside(time.Now(), func(turn *engine.Turn) {
			if turn.Queue().Queued("3") == nil || turn.Queue().NextSeq != 4 {
				t.Errorf("%s: job 3 is not queued, or is not the last: %d follows", says, turn.Queue().NextSeq)
			}
			if trial := turn.Explain().Foresee([]string{"3"})["3"]; trial.Starts != (says == "rehearsed") {
				t.Errorf("%s: it would %+v", says, trial)
			}
		})
		if err := q.Store.Commit(store.Tx{Put: []*job.Job{j}}); err == nil {
			t.Errorf("%s: the store takes changes", says)
		}
		if _, err := q.Runner.Lease(); err == nil {
			t.Errorf("%s: a supervisor can be started", says)
		}
		q.Close()
	}
	if _, err := os.Stat(KeepDir(setup.StateDir)); err != nil {
		t.Error(err)
	}
}

func TestAQueueIsNotOpenedForSomeoneWhoLeft(t *testing.T) {
	setup := simulated(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOver)
	if _, err := Open(ctx, setup); !errors.Is(err, errOver) {
		t.Errorf("it says %v", err)
	}
}

var errOver = errors.New("over")

func TestWhatHangsIsNotWaitedFor(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	hang := make(chan struct{})
	defer close(hang)
	began := make(chan struct{})
	go func() {
		<-began
		cancel(errOver)
	}()
	_, err := Await(ctx, func() (int, error) {
		close(began)
		<-hang
		return 1, nil
	})
	if !errors.Is(err, errOver) {
		t.Errorf("it says %v", err)
	}
	if got, err := Await(context.Background(), func() (int, error) { return 7, nil }); got != 7 || err != nil {
		t.Errorf("without an interrupt: %d, %v", got, err)
	}
}

// TestWhoseSlurmsNamesAre: where scontrol is a link to berth, the machine counts as
// one without Slurm, so that jobs keep berth's ids.
func TestWhoseSlurmsNamesAre(t *testing.T) {
	for program, slurm := range map[string]bool{"berth": false, "scontrol-22.05": true} {
		dir := t.TempDir()
		t.Setenv("PATH", dir)
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(dir, "scontrol")); err != nil {
			t.Fatal(err)
		}
		if hasSlurm(nil) != slurm {
			t.Errorf("scontrol is %s: belongs to a Slurm cluster: %t", program, !slurm)
		}
	}
}
