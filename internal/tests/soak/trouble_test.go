package soak

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

// TestDiskFull fills the log directory's disk while jobs run. They go on and
// their ends are recorded, berth says what is wrong and starts nothing, and
// finishes when there is room again.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	lines := []line{
		{number: 1, cards: 1, alone: true, kind: "gated"},
		{number: 2, cards: 1, alone: true, kind: "gated", code: 7},
		{number: 3, cards: 1, alone: true, kind: "plain"},
		{number: 4, cards: 1, alone: true, kind: "plain", code: 3},
	}
	s := newSite(t, 2, lines)
	if err := os.Mkdir(s.logDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("soak", s.logDir, "tmpfs", 0, "size=8m,mode=0755"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		s.sweep()
		syscall.Unmount(s.logDir, syscall.MNT_DETACH)
	})

	b := s.start()
	testkit.Eventually(t, "both jobs run", func() bool { return s.wrote("ready 1 1") && s.wrote("ready 2 1") })
	s.fillDisk()
	s.openGate()
	testkit.Eventually(t, "both jobs did their work", func() bool { return s.wrote("end 1 1 0") && s.wrote("end 2 1 7") })
	testkit.Eventually(t, "berth says what is wrong", func() bool {
		return strings.Contains(b.said(), `"event":"warning"`) && strings.Contains(b.said(), "full")
	})
	// There is room for the ends, and nothing starts on top of them.
	testkit.Eventually(t, "both ends are recorded", func() bool { return strings.Count(b.said(), `"event":"ended"`) == 2 })
	testkit.Never(t, 500*time.Millisecond, "a job starts or berth gives up", func() bool {
		return s.wrote("start 3") || s.wrote("start 4") || !b.running()
	})
	if n := strings.Count(b.said(), `"event":"warning"`); n > 3 {
		t.Errorf("it was said %d times:\n%s", n, b.said())
	}

	if err := os.Remove(filepath.Join(s.logDir, "ballast")); err != nil {
		t.Fatal(err)
	}
	b.mustEnd(7)
	ended := s.endings()
	for _, l := range lines {
		if got := ended[l.number].outcome(); got != l.outcome() {
			t.Errorf("line %d ended %q, not %s", l.number, got, l.outcome())
		}
	}
	s.mustAgree(b.said(), ended)
	s.mustBeSound(lines)
	s.mustBeClean()
}

// fillDisk leaves no byte free beside the log directory's files.
func (s *site) fillDisk() {
	s.t.Helper()
	file, err := os.Create(filepath.Join(s.logDir, "ballast"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	for block := bytes.Repeat([]byte("x"), 1<<16); len(block) > 0; {
		if _, err := file.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

// TestInterruptedOnAFullDisk: Ctrl-C stops the jobs, and they run again once there
// is room.
func TestInterruptedOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	lines := interruptible("grace=1s")
	s := newSite(t, 2, lines)
	if err := os.Mkdir(s.logDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("soak", s.logDir, "tmpfs", 0, "size=8m,mode=0755"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		s.sweep()
		syscall.Unmount(s.logDir, syscall.MNT_DETACH)
	})
	b := s.start()
	s.awaitReady()
	s.fillDisk()
	b.signal(syscall.SIGINT)
	b.mustEnd(130)
	s.mustHaveStopped()
	if err := os.Remove(filepath.Join(s.logDir, "ballast")); err != nil {
		t.Fatal(err)
	}
	s.mustFinishNextTime(lines)
}

func (s *site) openGate() { testkit.Write(s.t, filepath.Join(s.dir, "gate"), "") }

// TestUnreadableGPUs: while the cards cannot be read nothing is put on them,
// and what runs goes on.
func TestUnreadableGPUs(t *testing.T) {
	for _, fault := range []string{"unreadable", "hang"} {
		t.Run(fault, func(t *testing.T) {
			if testing.Short() && fault == "hang" {
				t.Skip("a look that hangs is given 15 s")
			}
			unreadable(t, fault)
		})
	}
}

func unreadable(t *testing.T, fault string) {
	lines := []line{
		{number: 1, cards: 1, alone: true, kind: "gated", code: 3},
		{number: 2, cards: 1, alone: true, kind: "plain"},
	}
	s := newSite(t, 1, lines)
	b := s.start()
	testkit.Eventually(t, "the job runs", func() bool { return s.wrote("ready 1 1") })
	broken := filepath.Join(s.logDir, "sim", "fault")
	testkit.Write(t, broken, fault)
	if fault == "unreadable" {
		testkit.Eventually(t, "berth says so", func() bool { return strings.Contains(b.said(), `"event":"gpus_unreadable"`) })
	}
	s.openGate()
	testkit.Eventually(t, "the running job ends as it would have", func() bool { return s.endings()[1].outcome() == "exit:3" })
	testkit.Never(t, 500*time.Millisecond, "a job is put on a card or berth gives up", func() bool {
		return s.wrote("start 2") || !b.running()
	})
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	b.mustEnd(3)
	s.mustHaveRunAll(lines, b.said())
	s.mustBeClean()
}

// TestTerminalGone closes the terminal under berth: the queue goes on in the
// background, and so do the jobs.
func TestTerminalGone(t *testing.T) {
	lines := []line{
		{number: 1, cards: 1, alone: true, kind: "gated", code: 7},
		{number: 2, cards: 1, alone: true, kind: "plain"},
	}
	s := newSite(t, 1, lines)
	events := s.flags
	s.flags = []string{"--sim", "1", "--poll", "0.1"}
	s.env = append(s.env, "TERM=xterm")
	master, slave := openTerminal(t)
	cmd := s.command()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	ended := make(chan int, 1)
	go func() {
		cmd.Wait()
		ended <- cmd.ProcessState.ExitCode()
	}()
	screen := make([]byte, 1<<16)
	if n, err := master.Read(screen); err != nil || n == 0 {
		t.Fatalf("nothing on the terminal: %v", err)
	}
	testkit.Eventually(t, "the job runs", func() bool { return s.wrote("ready 1 1") })
	master.Close() // the kernel sends HUP, and every write fails from now on
	testkit.Eventually(t, "berth leaves", func() bool { return len(ended) > 0 })
	testkit.Never(t, 300*time.Millisecond, "the job ends with the terminal", func() bool { return len(s.jobProcesses("")) == 0 })
	s.openGate()
	s.awaitNoQueue()
	s.flags = events
	s.start().mustEnd(7)
	s.mustHaveRunAll(lines, "")
	s.mustBeClean()
}

// openTerminal makes a terminal: what a window holds, and what a program sees.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}
