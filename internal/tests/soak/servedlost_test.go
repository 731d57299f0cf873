package soak

import (
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestKillServedSupervisor kills supervisors under a daemon. Their jobs are
// lost, with every process they had, and the cards serve others.
func TestKillServedSupervisor(t *testing.T) {
	for _, who := range []string{"", " of a plain user"} {
		t.Run("while the daemon"+who+" looks on", func(t *testing.T) { loseLookedOn(t, who != "") })
		t.Run("together with the daemon"+who, func(t *testing.T) { loseTogether(t, who != "") })
	}
	for step, want := range map[string]string{"before fork": "lost", "after fork": "lost", "before end": "lost", "after end": "exit:7"} {
		t.Run("at its step "+step, func(t *testing.T) { loseAt(t, step, want) })
	}
	t.Run("at any moment", func(t *testing.T) {
		rng, begun, n := chance(t), time.Now(), &toll{}
		for wanted := kills(t, 10); n.kills < wanted && !t.Failed(); {
			loseAny(t, rng, n)
		}
		n.log(t, begun, "; the jobs of killed supervisors ended as lost")
	})
}

// newVictims has three jobs with processes in sessions of their own on three
// cards, and three short ones that wait for those cards.
func newVictims(t *testing.T, plainUser bool) (h *host, b *berth, lines []line, ids []string) {
	h = newHost(t, 3)
	if plainUser {
		h.asPlainUser()
	}
	lines = victims(3)
	b = h.up()
	return h, b, lines, h.submit(lines...)
}

func loseLookedOn(t *testing.T, plainUser bool) {
	h, b, lines, ids := newVictims(t, plainUser)
	slowest := time.Duration(0)
	for n := 1; n <= 3; n++ {
		keep, id := h.held(n)
		begun := time.Now()
		syscall.Kill(keep.pid, syscall.SIGKILL)
		h.mustLoseServed(n, id)
		slowest = max(slowest, time.Since(begun))
	}
	t.Logf("lost within %s", slowest.Round(time.Millisecond))
	h.mustHaveLostServed(b, lines, ids)
}

func loseTogether(t *testing.T, plainUser bool) {
	h, b, lines, ids := newVictims(t, plainUser)
	var doomed []process
	for n := 1; n <= 3; n++ {
		keep, _ := h.held(n)
		doomed = append(doomed, keep)
	}
	b.signal(syscall.SIGSTOP) // it is not to see them die
	for _, keep := range doomed {
		syscall.Kill(keep.pid, syscall.SIGKILL)
	}
	b.kill()
	begun := time.Now()
	b = h.serve()
	h.awaitAnswer(b)
	for n := 1; n <= 3; n++ {
		h.mustLoseServed(n, ids[n-1])
	}
	t.Logf("lost within %s of the next daemon's start", since(begun))
	h.mustHaveLostServed(b, lines, ids)
}

// mustLoseServed waits until a job is over, which must be lost, and checks
// that nothing of it is left by then.
func (h *host) mustLoseServed(n int, id string) {
	h.t.Helper()
	var v job.View
	testkit.Eventually(h.t, "job "+id+" is over", func() bool {
		v = h.job(id)
		return v.State.Terminal()
	})
	for _, p := range h.jobProcesses(id) {
		h.t.Errorf("job %s is over, but there is %s", id, p)
	}
	if outcome(v) != "lost" || v.ExitCode != nil {
		h.t.Errorf("line %d ended %q, exit code %s, not lost", n, outcome(v), text(v.ExitCode))
	}
}

// mustHaveLostServed checks a host whose first three jobs were lost and whose
// others ran on the same cards.
func (h *host) mustHaveLostServed(b *berth, lines []line, ids []string) {
	h.t.Helper()
	for i, l := range lines[3:] {
		var v job.View
		testkit.Eventually(h.t, "the jobs that waited have ended", func() bool {
			v = h.job(ids[3+i])
			return v.State.Terminal()
		})
		if outcome(v) != l.outcome() {
			h.t.Errorf("job %s ended %q, not %s", ids[3+i], outcome(v), l.outcome())
		}
	}
	h.mustBeSound(lines)
	h.down(b)
	h.mustBeClean()
}

// loseAt has supervisors that die at a step of their own.
func loseAt(t *testing.T, step, want string) {
	h := newHost(t, 2)
	dir, err := faulty()
	if err != nil {
		t.Fatal(err)
	}
	// The daemon gives supervisors nothing of its environment, so that they
	// are told by a program in their place.
	h.program = t.TempDir()
	copyProgram(t, filepath.Join(dir, "berth"), filepath.Join(h.program, "berth"))
	script := "#!/bin/sh\nBERTH_KEEP_FAULT='" + step + "' exec " + filepath.Join(dir, "berth-keep") + " \"$@\"\n"
	testkit.Write(t, filepath.Join(h.program, "berth-keep"), script, 0o755)
	b := h.up()
	l := line{number: 1, cards: 1, alone: true, kind: "child", code: 7}
	id := h.submit(l)[0]
	testkit.Eventually(t, "the job is over", func() bool { return h.job(id).State.Terminal() })
	v := h.job(id)
	if outcome(v) != want || v.Attempt != 1 {
		t.Errorf("it ended %q in attempt %d, want %s", outcome(v), v.Attempt, want)
	}
	for _, p := range h.jobProcesses(id) {
		t.Errorf("it is over, but there is %s", p)
	}
	h.down(b)
	h.mustBeClean()
}

// loseAny kills supervisors at random while a mixture runs, and now and then
// the daemon with them.
func loseAny(t *testing.T, rng *rand.Rand, n *toll) {
	lines, killed := mixture(rng, 40, 280*time.Millisecond), 0
	h := newHost(t, 3)
	h.toll = n
	b := h.up()
	ids := h.submit(lines...)
	for begun := time.Now(); h.live() > 0; {
		if time.Since(begun) > 2*testkit.Patience {
			t.Fatal("it does not come to an end")
		}
		if killed < 15 {
			killed += h.killOne(rng)
			if rng.IntN(4) == 0 {
				b.kill()
				b = h.up()
			}
		}
		pause(b, upTo(rng, 100*time.Millisecond))
	}
	n.kills, n.jobs = n.kills+killed, n.jobs+len(lines)
	books, lost := h.mustBeSound(lines), 0
	for i, l := range lines {
		v := h.job(ids[i])
		r := books.runs[[2]int{l.number, v.Attempt}]
		switch {
		case outcome(v) == "lost":
			lost++
		case outcome(v) != l.outcome():
			t.Errorf("line %d ended %s, not %s or lost; itself says %+v", l.number, outcome(v), l.outcome(), r)
		case r == nil || r.ends != 1 || r.code != l.code:
			t.Errorf("line %d is said to have ended %s in attempt %d, but itself says %+v", l.number, outcome(v), v.Attempt, r)
		}
	}
	if lost > killed {
		t.Errorf("%d jobs are lost, with %d supervisors killed", lost, killed)
	}
	h.down(b)
	h.mustBeClean()
}

// live is how many jobs are not over.
func (h *host) live() int {
	h.t.Helper()
	status, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
	if err != nil {
		h.t.Fatalf("status: %v", err)
	}
	return status.Counts["queued"] + status.Counts["running"]
}
