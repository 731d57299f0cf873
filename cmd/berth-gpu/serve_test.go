//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/machine/gpu"
	"berth/internal/tests/fakenvml"
	"berth/internal/tests/testkit"
)

// looks waits until the helper has looked at card 0 that many more times, from
// beginning to end.
func (h *helper) looks(count int) {
	h.t.Helper()
	testkit.Eventually(h.t, "it is idle", func() bool { return h.pageWord() == pageIdle })
	for range count {
		testkit.Eventually(h.t, "it looks", func() bool { return h.pageWord() == 1 })
		testkit.Eventually(h.t, "it is idle again", func() bool { return h.pageWord() == pageIdle })
	}
}

func TestASpikeBetweenTwoSamplesIsReported(t *testing.T) {
	box := boxOf(t, 1)
	low := fakenvml.Process{PID: 100, UsedMiB: 1000}
	high := fakenvml.Process{PID: 100, UsedMiB: 9000}
	box.SetProcesses(0, low)
	box.Slow(5) // long enough for the test to see each look
	h := start(t, box)
	peak := func(ask gpu.HelperRequest) int64 {
		t.Helper()
		processes := h.sample(ask).Devices[0].Processes
		if len(processes) != 1 || processes[0].UsedMiB != 1000 {
			t.Fatalf("processes %+v", processes)
		}
		return processes[0].PeakMiB
	}
	watch := gpu.HelperRequest{Watch: 20 * time.Millisecond, WatchFor: time.Minute}
	if got := peak(watch); got != 0 {
		t.Errorf("a peak of %d MiB before anything was watched", got)
	}
	h.looks(2)
	box.SetProcesses(0, high)
	h.looks(2)
	box.SetProcesses(0, low)
	h.looks(2)
	if got := peak(watch); got != 9000 {
		t.Errorf("the peak is %d MiB, want 9000", got)
	}
	h.looks(2)
	if got := peak(gpu.HelperRequest{}); got != 1000 {
		t.Errorf("the peak since the last sample is %d MiB, want 1000", got)
	}
	if got := peak(gpu.HelperRequest{}); got != 0 {
		t.Errorf("a peak of %d MiB that nobody asked to watch for", got)
	}
}

func TestAWatchEndsAfterItsTime(t *testing.T) {
	box := boxOf(t, 1)
	box.Slow(2)
	h := start(t, box)
	h.sample(gpu.HelperRequest{Watch: 5 * time.Millisecond, WatchFor: 5 * time.Second})
	h.looks(1)
	quietSince := time.Now()
	testkit.Eventually(t, "it has not looked for a second", func() bool {
		if h.pageWord() != pageIdle {
			quietSince = time.Now()
		}
		return time.Since(quietSince) > time.Second
	})
}

func TestACardLostUnderTheWatchIsLeftToTheNextSample(t *testing.T) {
	box := boxOf(t, 2)
	h := start(t, box)
	h.sample(gpu.HelperRequest{Watch: 5 * time.Millisecond})
	box.Lose(0)
	testkit.Eventually(t, "a look was taken", func() bool { return h.pageWord() != pageIdle })
	s := h.sample(gpu.HelperRequest{})
	if len(s.Faults) != 1 || s.Faults[0].UUID != uuid(0) || len(s.Devices) != 1 {
		t.Errorf("sample %+v", s)
	}
}

func TestItLetsGoOfNVMLWhenItEnds(t *testing.T) {
	for _, row := range []struct {
		name string
		end  func(*helper)
	}{
		{"because its input ends", func(h *helper) { h.in.Close() }},
		{"because of SIGTERM", func(h *helper) { h.terminate() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			box := boxOf(t, 2)
			h := start(t, box)
			h.hello()
			if !slices.Equal(box.Inits(), []int{h.cmd.Process.Pid}) || box.Shutdowns() != nil {
				t.Fatalf("started by %v, ended by %v", box.Inits(), box.Shutdowns())
			}
			row.end(h)
			if status := h.ended(); status != 0 {
				t.Errorf("exit status %d", status)
			}
			if !slices.Equal(box.Shutdowns(), box.Inits()) {
				t.Errorf("started by %v, ended by %v", box.Inits(), box.Shutdowns())
			}
		})
	}
}

func TestWhatIsNoRequestIsAnswered(t *testing.T) {
	box := boxOf(t, 1)
	h := start(t, box)
	h.raw("no JSON\n")
	if reply := h.receive(); !strings.HasPrefix(reply.Error, "read a request: ") {
		t.Errorf("reply %+v", reply)
	}
	if reply := h.ask(gpu.HelperRequest{Do: "dance"}); reply.Error != `unknown request "dance"` {
		t.Errorf("reply %+v", reply)
	}
	h.raw("\n")
	if reply := h.ask(gpu.HelperRequest{Do: gpu.HelperSample}); reply.Sample == nil || reply.CPU <= 0 {
		t.Errorf("it is confused: %+v", reply)
	}
	go func() { _, _ = h.in.WriteString(strings.Repeat("x", maxRequest+1)) }() // it stops reading in the middle
	if reply := h.receive(); !strings.Contains(reply.Error, "1048576 bytes") {
		t.Errorf("reply %+v", reply)
	}
	if status := h.ended(); status != exitUsage {
		t.Errorf("exit status %d", status)
	}
	if !slices.Equal(box.Shutdowns(), box.Inits()) {
		t.Errorf("started by %v, ended by %v", box.Inits(), box.Shutdowns())
	}
}

func TestAFileThatAShellLeftOpenIsNotWrittenTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	box := boxOf(t, 1)
	box.Abort(0) // in the middle of a call the page is not idle
	cmd := exec.Command(program(t), "serve")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), box.Env()...), []*os.File{file}
	cmd.Stdin = strings.NewReader(`{"id":1,"do":"sample"}` + "\n")
	if err := cmd.Run(); err == nil {
		t.Error("the library did not abort")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file holds %q (%v)", text, err)
	}
}

func TestOncePrintsWhatThereIs(t *testing.T) {
	box := boxOf(t, 2)
	run := func(args ...string) (string, string, int) {
		var out, errs bytes.Buffer
		cmd := exec.Command(program(t), append([]string{"once"}, args...)...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), box.Env()...), &out, &errs
		_ = cmd.Run() // its state says how it ended
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	out, _, status := run()
	var seen onceLook
	if err := json.Unmarshal([]byte(out), &seen); err != nil || status != 0 {
		t.Fatalf("%q: %v, exit status %d", out, err, status)
	}
	if seen.Protocol != gpu.HelperProtocol || seen.Facts.Driver != "580.159.04" || !slices.Equal(uuids(seen.Sample.Devices), []string{uuid(0), uuid(1)}) {
		t.Errorf("it saw %+v", seen)
	}
	if out, _, _ := run("-only", "1"); strings.Contains(out, uuid(0)) || !strings.Contains(out, uuid(1)) {
		t.Errorf("only card 1: %s", out)
	}
	if out, errs, status := run("-only", "2"); out != "" || errs != "berth-gpu: no GPU 2: the driver has 2, numbered from 0\n" || status != exitFailed {
		t.Errorf("%q, %q, exit status %d", out, errs, status)
	}
	box.FailInit(9)
	if out, errs, status := run(); out != "" || errs != "berth-gpu: start NVML: Driver Not Loaded\n" || status != exitFailed {
		t.Errorf("%q, %q, exit status %d", out, errs, status)
	}
}

func TestTheCommandLine(t *testing.T) {
	for _, row := range []struct {
		name      string
		args      []string
		out, errs string // what must be in them
		status    int
	}{
		{"help is help", []string{"-h"}, "Example:\n  berth-gpu once", "", 0},
		{"help on a command too", []string{"serve", "-h"}, "Exit status: 0", "", 0},
		{"the version is told", []string{"version"}, "berth-gpu ", "", 0},
		{"nothing is too little", nil, "", "expected a command\nhint: berth-gpu -h", exitUsage},
		{"an unknown word is named", []string{"dance"}, "", `unknown command "dance"`, exitUsage},
		{"an unknown flag is named", []string{"once", "-all"}, "", "-all", exitUsage},
		{"a negative number is refused", []string{"once", "-only", "-2"}, "", "-only: expected a GPU number from 0 on, found -2", exitUsage},
		{"nothing is too few calls", []string{"cost", "-n", "0"}, "", "-n: expected 1 to 10000 calls, found 0", exitUsage},
		{"a million calls are too many", []string{"cost", "-n", "1000000"}, "", "expected 1 to 10000 calls", exitUsage},
		{"only cost takes a number of calls", []string{"once", "-n", "5"}, "", "-n", exitUsage},
		{"help tells of costs", []string{"cost", "-h"}, "berth-gpu cost -n 1000", "", 0},
		{"what is left over is named", []string{"once", "again"}, "", `unexpected argument "again"`, exitUsage},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if status := command(row.args, strings.NewReader(""), &out, &errs); status != row.status {
				t.Errorf("exit status %d, want %d", status, row.status)
			}
			if !strings.Contains(out.String(), row.out) || !strings.Contains(errs.String(), row.errs) || (row.errs == "") != (errs.Len() == 0) {
				t.Errorf("%q and %q", out.String(), errs.String())
			}
		})
	}
}
