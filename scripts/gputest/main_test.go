package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// bundle is a directory with the programs as make gpu-test puts them together,
// without the helper: there is no card to read.
var bundle string

func TestMain(m *testing.M) {
	os.Exit(testkit.RunWith(m, func(dir string) {
		bundle = dir
		if err := errors.Join(testkit.Build(dir, "", "scripts/gputest"), os.Chmod(dir, 0o755)); err != nil {
			panic(err)
		}
	}, "cmd/berth", "cmd/berth-keep"))
}

func TestTheBundleProvesBerthOnSimulatedCards(t *testing.T) {
	file := filepath.Join(t.TempDir(), "seen.json")
	cmd := exec.Command(filepath.Join(bundle, "gputest"), "-sim", "-json", file)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("gpu-test -sim: %v\n%s\n%s", err, &out, &errs)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Host    struct{ Berth string }
		Results []result
	}
	if err := json.Unmarshal(data, &seen); err != nil {
		t.Fatal(err)
	}
	if len(seen.Results) != len(checks) || !strings.HasPrefix(seen.Host.Berth, "berth ") {
		t.Errorf("%d results of %d checks, of %q", len(seen.Results), len(checks), seen.Host.Berth)
	}
	made := 0
	for i, r := range seen.Results {
		if r.Result == passed {
			made++
			if len(r.Figures) == 0 {
				t.Errorf("%s has no figures", r.Check)
			}
		} else if checks[i].sim && !strings.Contains(strings.Join(r.Why, " "), "cannot limit") {
			t.Errorf("%s: %s %v", r.Check, r.Result, r.Why)
		}
		if !strings.Contains(out.String(), r.Check) {
			t.Errorf("%s is not in the table", r.Check)
		}
	}
	if made < 9 {
		t.Errorf("only %d checks were made:\n%s", made, &out)
	}
}

// lying makes a bundle whose berth answers one verb with a script.
func lying(t *testing.T, verb, script string) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = %s ]; then\n%s\nfi\nexec %s/berth \"$@\"\n", verb, script, bundle)
	if err := os.WriteFile(filepath.Join(dir, "berth"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWhatIsWrongFailsTheRun(t *testing.T) {
	tests := []struct {
		name, verb, script, check, want string
		code                            int
	}{
		{"a berth that shows a card that is not there fails discovery", "gpus", `echo '[{"index":0,"total_mib":1}]'; exit 0`, "discovery", "berth gpus shows", 1},
		{"a berth that gives no reason fails packing", "why", `echo 'it waits'; exit 0`, "packing", "without the", 1},
		{"a berth without the verb skips the check with its words", "adopt", `echo 'berth: unknown command "adopt"' >&2; exit 2`, "adopt", `not supported by this berth: berth: unknown command "adopt"`, 0},
		{"a daemon that ends at once is told with its last words", "serve", `echo 'berth: no room'; exit 1`, "discovery", "the daemon ended at once: berth: no room", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run([]string{"-sim", "-bin", lying(t, test.verb, test.script), "-run", "^" + test.check + "$"}, &out, &errs)
			if code != test.code || !strings.Contains(out.String(), test.want) {
				t.Errorf("exit %d, want %d with %q:\n%s\n%s", code, test.code, test.want, &out, &errs)
			}
			if test.code != 0 && !strings.Contains(errs.String(), "berth's log") {
				t.Errorf("the failure does not show berth's log:\n%s", &errs)
			}
		})
	}
}

// testHost is a host of simulated cards.
func testHost(t *testing.T) *host {
	t.Helper()
	h, err := openHost(context.Background(), options{sim: true, bin: bundle}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

func TestAProcessThatIsLeftBehindFailsItsCheckAndIsEnded(t *testing.T) {
	h := testHost(t)
	pid := 0
	exited := make(chan struct{})
	r := h.try(t.Context(), check{name: "messy", about: "leaves a process", limit: time.Minute, sim: true, run: func(_ context.Context, t *trial) {
		cmd := t.command(context.Background(), "sleep", "600")
		need(cmd.Start())
		pid = cmd.Process.Pid
		go func() {
			_ = cmd.Wait()
			close(exited)
		}()
	}})
	if r.Result != failed || !strings.Contains(strings.Join(r.Why, " "), fmt.Sprintf("left behind: sleep (%d)", pid)) {
		t.Errorf("%+v", r)
	}
	select {
	case <-exited:
	case <-time.After(time.Minute):
		t.Error("the process lives on")
	}
}

func TestACheckThatTakesTooLongFailsAndUndoesItsWork(t *testing.T) {
	h := testHost(t)
	undone := false
	r := h.try(t.Context(), check{name: "slow", limit: 50 * time.Millisecond, sim: true, run: func(ctx context.Context, t *trial) {
		t.later(func() { undone = true })
		need(poll(ctx, time.Millisecond, "nothing", func() (bool, error) { return false, nil }))
	}})
	if r.Result != failed || !undone || !strings.Contains(strings.Join(r.Why, " "), "not finished within 50ms: waited for nothing") {
		t.Errorf("undone %v: %+v", undone, r)
	}
}

func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	place := t.TempDir()
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bundle, "gputest"), "-sim", "-v", "-run", "packing")
	cmd.Env = append(os.Environ(), "TMPDIR="+place)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A job holds memory as soon as its simulated process is there.
	started, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(started, 20*time.Millisecond, "a job", func() (bool, error) { return len(underPlace(place)) > 0, nil }); err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit %d:\n%s\n%s", code, &out, &errs)
	}
	if left, _ := os.ReadDir(place); len(left) > 0 {
		t.Errorf("left in the place for temporary files: %v", left)
	}
	if left := underPlace(place); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

// underPlace are the jobs that know a simulation directory below a directory.
func underPlace(place string) []int { return holding("BERTH_SIM_DIR=" + place) }
