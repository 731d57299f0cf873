package soak

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// queues lists the processes of the site's own queue. A supervisor that has
// been forked and is not a program of its own yet looks like it: who kills that
// pid a moment later kills a supervisor with a job.
func (s *site) queues() []process {
	return slices.DeleteFunc(s.processes(), func(p process) bool {
		parent, _ := os.ReadFile("/proc/" + parentOf("/proc/"+strconv.Itoa(p.pid)) + "/cmdline")
		return len(p.words) < 2 || p.words[1] != "__queue" || bytes.Contains(parent, []byte("\x00__queue\x00"))
	})
}

// awaitNoQueue waits for the process of the queue to end, as it does after its jobs.
func (s *site) awaitNoQueue() {
	s.t.Helper()
	testkit.Eventually(s.t, "the queue ends", func() bool { return len(s.queues()) == 0 })
}

// killed are the processes of a run that a test kills.
type killed struct{ client, queue bool }

var killable = []killed{{client: true}, {queue: true}, {client: true, queue: true}}

func (k killed) String() string {
	return map[killed]string{{client: true}: "the client", {queue: true}: "the queue", {client: true, queue: true}: "both"}[k]
}

// strike kills what k says of a run. It returns whether it hit the queue.
func (s *site) strike(b *berth, k killed) (hit bool) {
	if k.client {
		b.signal(syscall.SIGKILL)
	}
	if k.queue {
		for _, p := range s.queues() {
			hit = syscall.Kill(p.pid, syscall.SIGKILL) == nil || hit
		}
	}
	return hit
}

// killAll kills a run and its queue.
func (s *site) killAll(b *berth) {
	s.t.Helper()
	s.strike(b, killed{client: true, queue: true})
	b.wait()
	s.awaitNoQueue()
}

// doom is the end of one start of a run.
type doom struct {
	who killed

	mu        sync.Mutex
	hit, over bool
}

// strike kills what is doomed, while that start goes on.
func (d *doom) strike(s *site, b *berth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over && !d.hit {
		d.hit = s.strike(b, d.who)
	}
}

// avert keeps a strike that comes too late from the next start. It returns whether
// one hit the queue.
func (d *doom) avert() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	return d.hit
}

// TestKillAtEachStepOfARun kills the process of a run's queue between any two steps
// of its work, with its client and after it. The same command goes on: every line
// runs once.
func TestKillAtEachStepOfARun(t *testing.T) {
	for _, step := range []string{"restored", "before commit", "committed", "before reply", "leased", "before go", "gone", "before ack", "acked"} {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) { killAtStep(t, step+":1", false) })
	}
	for _, step := range []string{"leased:2", "before go:2", "gone:2", "before ack:1", "acked:1"} {
		t.Run(strings.ReplaceAll(step, " ", "-")+" alone", func(t *testing.T) { killAtStep(t, step, true) })
	}
}

func killAtStep(t *testing.T, step string, alone bool) {
	lines := []line{
		{number: 1, cards: 1, alone: true, kind: "gated", code: 3},
		{number: 2, cards: 1, alone: true, kind: "plain", hold: 20 * time.Millisecond},
		{number: 3, cards: 1, alone: true, kind: "plain"},
		{number: 4, cards: 1, alone: true, kind: "plain", hold: 100 * time.Millisecond},
	}
	s := newSite(t, 1, lines)
	dir, err := faulty()
	testkit.Must(t, err)
	cmd := s.command()
	cmd.Path = filepath.Join(dir, "berth")
	cmd.Env = append(cmd.Env, "BERTH_FAULT="+step)
	if !alone {
		s.openGate()
	}
	b := s.launch(cmd, nil)
	if alone {
		testkit.Eventually(t, "a job runs", func() bool { return s.wrote("ready 1 1") })
		b.kill()
		s.openGate()
	} else {
		if b.mustEnd(1); !strings.Contains(b.stderr.String(), "has ended") {
			t.Errorf("it said %s", b.stderr.String())
		}
	}
	s.awaitNoQueue()
	if len(s.endings()) == len(lines) {
		t.Fatal("the queue was not killed")
	}
	b = s.start()
	b.mustEnd(worst(lines))
	s.mustHaveRunAll(lines, b.said())
	s.mustKnowTheEnd(lines)
	s.mustBeClean()
}

// TestComingBack leaves a run in every way while its jobs run, and comes back with
// the same command to a file that has changed meanwhile, and changes again.
func TestComingBack(t *testing.T) {
	for _, k := range killable {
		t.Run(k.String(), func(t *testing.T) {
			lines := []line{
				{number: 1, cards: 1, alone: true, kind: "gated", code: 3},
				{number: 2, cards: 1, alone: true, kind: "plain"},
				{number: 3, cards: 1, alone: true, kind: "plain"},
				{number: 4, cards: 1, alone: true, kind: "plain", code: 7},
			}
			s := newSite(t, 1, lines[:2])
			b := s.start()
			testkit.Eventually(t, "a job runs", func() bool { return s.wrote("ready 1 1") })
			keeps := s.keeps()
			s.strike(b, k)
			if status := b.wait(); k.client != b.killed() || !k.client && status != 1 {
				t.Fatalf("the client ended with %d; it said\n%s%s", status, b.said(), b.stderr.String())
			}
			if k.queue {
				s.awaitNoQueue()
			} else if len(s.queues()) != 1 {
				t.Fatal("the queue has ended with its client")
			}
			s.write(lines[:3])
			b = s.start()
			testkit.Eventually(t, "the third line is queued", func() bool { return s.knows(3) })
			s.write(lines)
			testkit.Eventually(t, "the fourth line is queued", func() bool { return s.knows(4) })
			for token, keep := range s.keeps() {
				if keeps[token].pid != keep.pid {
					t.Errorf("supervisor %s is not of the first run", token)
				}
			}
			s.openGate()
			b.mustEnd(7)
			s.mustHaveRunAll(lines, b.said())
			s.awaitNoQueue()
			s.mustKnowTheEnd(lines)
			s.mustBeClean()
		})
	}
}

// knows reports whether the board has a job.
func (s *site) knows(id int) bool {
	return strings.Contains(testkit.Read(s.t, filepath.Join(s.logDir, "status.txt")), fmt.Sprintf("job %d ", id))
}

// TestARunLeftAlone: with its client killed, a queue runs its jobs to the end and
// leaves no process.
func TestARunLeftAlone(t *testing.T) {
	lines := []line{
		{number: 1, cards: 1, alone: true, kind: "gated", code: 3},
		{number: 2, cards: 1, alone: true, kind: "child"},
	}
	s := newSite(t, 1, lines)
	b := s.start()
	testkit.Eventually(t, "a job runs", func() bool { return s.wrote("ready 1 1") })
	b.kill()
	s.openGate()
	s.awaitNoQueue()
	s.mustHaveRunAll(lines, "")
	s.mustBeClean()
	s.mustKnowTheEnd(lines)
}

// TestARunWithoutItsDirectory: a queue that nobody follows, and whose directory is
// gone, ends after its jobs and starts no other.
func TestARunWithoutItsDirectory(t *testing.T) {
	s := newSite(t, 1, []line{
		{number: 1, cards: 1, alone: true, kind: "gated"},
		{number: 2, cards: 1, alone: true, kind: "plain"},
	})
	b := s.start()
	testkit.Eventually(t, "a job runs", func() bool { return s.wrote("ready 1 1") })
	b.kill()
	testkit.Eventually(t, "the directory is gone", func() bool { return os.RemoveAll(s.logDir) == nil })
	testkit.Never(t, 300*time.Millisecond, "the queue ends before its job", func() bool { return len(s.queues()) == 0 })
	s.openGate()
	s.awaitNoQueue()
	if s.wrote("start 2") || !s.wrote("end 1 1") {
		t.Error(testkit.Read(t, filepath.Join(s.dir, "ledger")))
	}
}
