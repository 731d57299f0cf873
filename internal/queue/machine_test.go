package queue

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

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
		Choose:   func(_ *Machine, first gpu.Sample, err error) ([]gpu.Device, error) { return first.Devices, err },
	}
}

func TestAMachineIsOpenedAndClosed(t *testing.T) {
	setup := simulated(t)
	m, err := Open(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Devices) != 2 || m.SimDir != filepath.Join(setup.StateDir, "sim") || m.Launcher.SimDir != m.SimDir || m.Launcher.Filter {
		t.Errorf("%+v, launcher %+v", m, m.Launcher)
	}
	e := m.Engine(engine.Config{Settings: settings.Settings{Rules: sched.DefaultRules()}}, 7)
	e.Outside(time.Now(), func(turn *engine.Turn) {
		if len(turn.Cards().Devices()) != 2 {
			t.Errorf("the engine knows %v", turn.Cards().Devices())
		}
	})
	_, err = Open(t.Context(), setup)
	locked, ok := errors.AsType[*store.LockedError](err)
	if !ok || locked.PID != os.Getpid() || problem.KindOf(err) != "" {
		t.Errorf("a second machine in the same place: %v", err)
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
			s.Choose = func(*Machine, gpu.Sample, error) ([]gpu.Device, error) {
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

func TestAMachineIsNotOpenedForSomeoneWhoLeft(t *testing.T) {
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
