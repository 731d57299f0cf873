package soak

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

func TestInterrupt(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String()+" stops the jobs, the stubborn one after its grace", func(t *testing.T) {
			lines := interruptible("grace=1s")
			s := newSite(t, 2, lines)
			b := s.start()
			s.awaitReady()
			begun := time.Now()
			b.signal(sig)
			b.mustEnd(130)
			if took := time.Since(begun); took < time.Second || took > 8*time.Second { // ten, had it the usual grace
				t.Errorf("it took %s to stop a job with a grace of 1s", took)
			}
			s.mustHaveStopped()
			s.mustFinishNextTime(lines)
		})
	}
	t.Run("a signal of Slurm, to client and queue, is one", func(t *testing.T) {
		lines := interruptible("grace=2s")
		s := newSite(t, 2, lines)
		s.env = append(s.env, "SLURM_JOB_ID=1", "SLURMD_NODENAME=n1")
		b := s.start()
		s.awaitReady()
		begun := time.Now()
		for _, p := range s.queues() {
			testkit.Must(t, syscall.Kill(p.pid, syscall.SIGTERM))
		}
		b.signal(syscall.SIGTERM)
		b.mustEnd(130)
		if took := time.Since(begun); took < 2*time.Second {
			t.Errorf("it took %s to stop a job with a grace of 2s", took)
		}
		s.mustHaveStopped()
		s.mustFinishNextTime(lines)
	})
	t.Run("a second interrupt does not wait for the grace", func(t *testing.T) {
		lines := interruptible("grace=5m")
		s := newSite(t, 2, lines)
		b := s.start()
		s.awaitReady()
		b.signal(syscall.SIGINT)
		testkit.Eventually(t, "the polite job was told", func() bool { return s.wrote("term 1 1") })
		if !b.running() {
			t.Error("berth did not wait for the stubborn job")
		}
		b.signal(syscall.SIGINT)
		b.mustEnd(130)
		s.mustHaveStopped()
		s.mustFinishNextTime(lines)
	})
}

// interruptible are a job that heeds TERM, one that does not, and one that
// has not begun.
func interruptible(grace string) []line {
	return []line{
		{number: 1, block: grace, cards: 1, alone: true, kind: "polite", hold: 5 * time.Minute},
		{number: 2, block: grace, cards: 1, alone: true, kind: "stubborn", hold: 5 * time.Minute},
		{number: 3, cards: 1, alone: true, kind: "plain"},
	}
}

func (s *site) awaitReady() {
	s.t.Helper()
	testkit.Eventually(s.t, "both jobs run", func() bool { return s.wrote("ready 1 1") && s.wrote("ready 2 1") })
}

// mustHaveStopped checks that an interrupt ended both jobs and started none.
func (s *site) mustHaveStopped() {
	s.t.Helper()
	s.mustBeClean()
	if !s.wrote("term 1 1") {
		s.t.Error("the polite job was not sent TERM")
	}
	if s.wrote("end 1 1") || s.wrote("end 2 1") || s.wrote("start 3") {
		s.t.Errorf("not stopped:\n%s", testkit.Read(s.t, filepath.Join(s.dir, "ledger")))
	}
	if ended := s.endings(); len(ended) > 0 {
		s.t.Errorf("an interrupt is not an end, but the journal has %v", ended)
	}
}

func (s *site) mustFinishNextTime(lines []line) {
	s.t.Helper()
	testkit.Write(s.t, filepath.Join(s.dir, "quick"), "")
	s.start().mustEnd(0)
	ended := s.endings()
	for _, l := range lines {
		if got := ended[l.number].outcome(); got != "ok" {
			s.t.Errorf("line %d ended %q, not ok", l.number, got)
		}
	}
	s.mustBeSound(lines)
	s.mustBeClean()
}
