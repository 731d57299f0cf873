package sched

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestWhatIsRememberedOfADecisionIsStillTrue asks a decision that was made of each
// waiting job who gives way to it and where it would have room, and holds that
// against what is found out anew. In between somebody leaves, and somebody is given
// cards.
func TestWhatIsRememberedOfADecisionIsStillTrue(t *testing.T) {
	yielded, roomy := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawCrowd(t)
		d := newDecision(&s)
		d.run(nil)
		jobs := s.Queue.First(s.Queue.Len())
		for range min(len(jobs), 12) {
			m, _ := s.Queue.member(rapid.SampledFrom(jobs).Draw(t, "asks").Job)
			h := m.group.head(m.entry)
			y, anew := d.yieldersTo(&h), d.findYielders(&h, asUsual)
			if !slices.Equal(y.now, anew.now) || !slices.Equal(y.later, anew.later) || !y.first.Equal(anew.first) {
				t.Fatalf("%v and %v give way to job %s, and are said to be %v and %v", anew.now, anew.later, h.job, y.now, y.later)
			}
			gives := func(h *Held) bool { return d.gone[h] || h.Aside.Mode != "" && !h.Other }
			leaves := func(h *Held) bool { return d.gone[h] || slices.Contains(y.now, h) }
			kept := d.keeperAt(&h, s.Now)
			if most := d.newCeiling(gives).fits(&h, keeper{}); most != d.most().fits(&h, keeper{}) {
				t.Fatalf("job %s can have room: %v, and it is said otherwise", h.job, most)
			}
			room := d.newCeiling(leaves).fits(&h, kept)
			if room != d.roomWithout(y.now).fits(&h, kept) {
				t.Fatalf("job %s has room: %v, and it is said otherwise", h.job, room)
			}
			if room {
				roomy++
			}
			yielded += len(y.now)
			switch rapid.IntRange(0, 3).Draw(t, "then") {
			case 0:
				if len(y.now) > 0 {
					d.gone[y.now[0]] = true
				}
			case 1:
				given := &Held{Job: "given", Cards: []int{rapid.IntRange(0, 7).Draw(t, "card")}, Alone: true}
				d.given = append(d.given, given)
				d.book(given)
			}
		}
	})
	if yielded < 50 || roomy < 50 {
		t.Errorf("%d gave way, and there was room %d times: nothing is shown by that", yielded, roomy)
	}
}
