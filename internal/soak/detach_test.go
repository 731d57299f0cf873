package soak

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"berth/internal/testkit"
)

// TestKillAtTheHandOver kills a run that leaves its terminal, or the berth in
// the background that takes its queue over, between any two steps of that.
// Whoever is left goes on, or the next berth run does: every line runs once.
func TestKillAtTheHandOver(t *testing.T) {
	for _, step := range []string{"successor waits", "left", "inherits", "nowhere"} {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
			lines := []line{
				{number: 1, cards: 1, alone: true, kind: "plain", hold: 1500 * time.Millisecond},
				{number: 2, cards: 1, alone: true, kind: "plain", hold: 100 * time.Millisecond, code: 3},
				{number: 3, cards: 1, alone: true, kind: "plain", hold: 700 * time.Millisecond},
				{number: 4, cards: 1, alone: true, kind: "plain"},
			}
			s := newSite(t, 2, lines)
			events := s.flags
			s.flags = slices.DeleteFunc(slices.Clone(events), func(flag string) bool { return flag == "--json" })
			b := s.sit("TERM=xterm", "BERTH_FAULT="+step)
			testkit.Eventually(t, "a job runs", func() bool { return s.wrote("printed 1 1") })
			b.signal(syscall.SIGHUP)
			b.wait()
			if killed := step == "successor waits" || step == "left"; b.killed() != killed {
				t.Fatalf("killed: %v; it said\n%s", b.killed(), b.said())
			}
			testkit.Eventually(t, "no berth runs in the background", func() bool {
				return !slices.ContainsFunc(s.processes(), func(p process) bool { return slices.Contains(p.words, "--detached") })
			})
			s.flags = events
			s.start().mustEnd(worst(lines))
			s.mustHaveRunAll(lines, "")
			s.mustKnowTheEnd(lines)
			s.mustBeClean()
		})
	}
}

// sit runs a berth that may die at a step, on a terminal of its own.
func (s *site) sit(env ...string) *berth {
	s.t.Helper()
	master, slave, err := pty.Open()
	testkit.Must(s.t, err)
	defer slave.Close()
	s.t.Cleanup(func() { master.Close() })
	dir, err := faulty()
	testkit.Must(s.t, err)
	b := &berth{t: s.t, cmd: s.command(), done: make(chan struct{})}
	b.cmd.Path = filepath.Join(dir, "berth")
	b.cmd.Env = append(b.cmd.Env, env...)
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = slave, slave, slave
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testkit.Must(s.t, b.cmd.Start())
	go func() { _, _ = io.Copy(b, master) }() // a terminal without its program is an error to read
	go func() {
		b.cmd.Wait()
		close(b.done)
	}()
	return b
}
