package keep

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

func TestTheProcessTableKnowsUs(t *testing.T) {
	self, err := ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if self.PID != os.Getpid() || self.Parent != os.Getppid() || self.Start == 0 || self.Dead() {
		t.Errorf("read %+v", self)
	}
	table, err := Processes()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(table, func(p Process) bool { return p.PID == self.PID && p.Start == self.Start }) {
		t.Error("not in the table")
	}
}

func TestACommandNameCannotForgeFields(t *testing.T) {
	t.Parallel()
	p, err := parseStat([]byte("42 (a) R 1 (x) ) S 7 8 9 0 -1 0 0 0 0 0 5 6 70 800 20 0 1 0 12345 0 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p != (Process{PID: 42, Parent: 7, Group: 8, Session: 9, State: 'S', Threads: 1, Start: 12345, CPUTicks: 881}) {
		t.Errorf("read %+v", p)
	}
	for _, text := range []string{"", "42", "42 (a", "42 (a) S 1 2", "x (a) S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345"} {
		if _, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestASignalReachesTheProcessItIsMeantFor(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := ReadProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	namesake := p
	namesake.Start++
	if err := namesake.Signal(sigKILL); err != nil {
		t.Errorf("a process that is gone: %v", err)
	}
	if now, err := ReadProcess(p.PID); err != nil || now.Dead() {
		t.Fatal("a namesake was killed")
	}
	if err := p.Signal(sigTERM); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if got := cmd.ProcessState.String(); got != "signal: terminated" {
		t.Error(got)
	}
	if err := p.Signal(sigTERM); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

func TestSignalsHaveNames(t *testing.T) {
	t.Parallel()
	for n := 1; n <= lastSignal; n++ {
		if got, ok := SignalNumber(SignalName(n)); !ok || got != n {
			t.Errorf("%d is %q, which is %d", n, SignalName(n), got)
		}
	}
	if n, ok := SignalNumber("sigusr1"); n != 10 || !ok {
		t.Error("sigusr1")
	}
	for _, bad := range []string{"", "SIG", "0", "65", "NOPE"} {
		if _, ok := SignalNumber(bad); ok {
			t.Errorf("%q is not a signal", bad)
		}
	}
}
