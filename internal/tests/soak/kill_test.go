package soak

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// TestKillBerth kills a run, the process of its queue, or both again and again
// while a mixed file runs. Every line must run once per attempt, and every end be
// known.
func TestKillBerth(t *testing.T) {
	rng, begun, n := chance(t), time.Now(), &toll{}
	for wanted := kills(t, 15); n.kills < wanted && !t.Failed(); {
		killRound(t, rng, n, min(n.kills+25, wanted))
	}
	n.log(t, begun, "")
}

// killRound kills until there were so many kills, or the file is done.
func killRound(t *testing.T, rng *rand.Rand, n *toll, most int) {
	lines := mixture(rng, 60, 280*time.Millisecond)
	s := newSite(t, 3, lines)
	s.toll = n
	var printed strings.Builder
	for {
		b, d := s.startDoomed(rng, n.kills < most)
		status := b.wait()
		printed.WriteString(complete(b.said()))
		if d.avert() || b.killed() {
			n.kills++
			continue
		}
		if want := worst(lines); status != want {
			t.Errorf("berth ended with %d, not %d: %s", status, want, b.stderr.String())
		}
		break
	}
	n.jobs += len(lines)
	s.mustHaveRunAll(lines, printed.String())
	s.mustKnowTheEnd(lines)
	s.mustBeClean()
}

// startDoomed starts a berth that is killed after a random time, or just as
// it says something: that is in the middle of its work.
func (s *site) startDoomed(rng *rand.Rand, doomed bool) (b *berth, d *doom) {
	s.t.Helper()
	d = &doom{who: killable[rng.IntN(len(killable))]}
	if !doomed {
		return s.start(), d
	}
	if rng.IntN(2) == 0 {
		at := 1 + rng.IntN(25)
		return s.startWith(func(b *berth, n int) {
			if n >= at {
				d.strike(s, b)
			}
		}), d
	}
	delay := upTo(rng, 30*time.Millisecond)
	if rng.IntN(3) > 0 {
		delay = upTo(rng, 350*time.Millisecond)
	}
	b = s.start()
	time.AfterFunc(delay, func() { d.strike(s, b) })
	return b, d
}

// complete drops a line that a kill cut short.
func complete(text string) string { return text[:strings.LastIndexByte(text, '\n')+1] }

// mustHaveRunAll checks that every line ran as often as it should have, that
// its end is known, and that its output is whole.
func (s *site) mustHaveRunAll(lines []line, printed string) {
	s.t.Helper()
	b := s.mustBeSound(lines)
	ended := s.endings()
	s.mustAgree(printed, ended)
	for _, l := range lines {
		e, over := ended[l.number]
		if !over {
			s.reportLost("line %d has no end: %s", l.number, l.text())
			continue
		}
		if e.outcome() != l.outcome() || e.Job.Attempt != l.attempts() {
			s.t.Errorf("line %d ended %s in attempt %d, not %s in attempt %d: %s", l.number, e.outcome(), e.Job.Attempt, l.outcome(), l.attempts(), l.text())
		}
		for attempt := 1; attempt <= l.attempts(); attempt++ {
			if r := b.runs[[2]int{l.number, attempt}]; r == nil || r.ends != 1 {
				s.t.Errorf("line %d attempt %d did not run to its end", l.number, attempt)
			}
		}
		if b.runs[[2]int{l.number, l.attempts() + 1}] != nil {
			s.t.Errorf("line %d ran once more than berth knows", l.number)
		}
		s.mustHaveWhole(l, e.Job.ID, l.attempts())
	}
}

// mustKnowTheEnd runs the file once more: what is over stays over, and counts.
func (s *site) mustKnowTheEnd(lines []line) {
	s.t.Helper()
	before := testkit.Read(s.t, s.dir+"/ledger")
	s.start().mustEnd(worst(lines))
	if testkit.Read(s.t, s.dir+"/ledger") != before {
		s.t.Error("something ran although all was over")
	}
}
