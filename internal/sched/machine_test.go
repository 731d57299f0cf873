package sched

import (
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"berth/internal/job/reason"
)

// TestAMachineThatJobsLeaveIsOneThatNeverHadThem puts jobs on a machine, copies it,
// and lets some leave.
func TestAMachineThatJobsLeaveIsOneThatNeverHadThem(t *testing.T) {
	exact := gocmp.Options{gocmp.AllowUnexported(machine{}, hostUse{}, slot{}, holding{}), cmpopts.EquateEmpty()}
	same := gocmp.Options{exact, cmpopts.IgnoreFields(slot{}, "closed")}
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		all := s.machine()
		var m machine
		m.copyOf((&State{Rules: s.Rules, Cards: s.Cards[:len(s.Cards)/2]}).machine(), nil) // what it had is forgotten
		m.copyOf(all, nil)
		stay, gone := s, map[*Allocation]bool{}
		stay.Allocations = nil
		for _, h := range inOrder(s.Allocations) {
			if rapid.Bool().Draw(t, "leaves") {
				m.vacate(h)
				gone[h] = true
			} else {
				stay.Allocations = append(stay.Allocations, *h)
			}
		}
		if diff := gocmp.Diff(stay.machine(), &m, same); diff != "" {
			t.Fatalf("a machine that jobs left (-never had them +left):\n%s", diff)
		}
		var copied machine
		if copied.copyOf(all, gone); !gocmp.Equal(m, copied, exact) {
			t.Fatalf("a copy without those jobs (-left +copied):\n%s", gocmp.Diff(m, copied, exact))
		}
		if diff := gocmp.Diff(s.machine(), all, same); diff != "" {
			t.Fatalf("the machine that was copied changed:\n%s", diff)
		}
	})
}

func TestWhatIsMeasuredOfACardGoesWithItsJob(t *testing.T) {
	s := State{Rules: DefaultRules(), Cards: cardsOf(1000, 1000), Allocations: []Allocation{{Job: "1", Cards: []int{0}}, {Job: "2", Cards: []int{1}}}}
	s.Rules.MemThreshold = 0.5
	s.Cards[0].UsedMiB, s.Cards[1].UsedMiB, s.Cards[1].Paused = 900, 900, true
	m := s.machine()
	if m.slots[0].closed != reason.ObstacleMemory {
		t.Fatalf("gpu0 is closed by %q", m.slots[0].closed)
	}
	m.unbook(&s.Allocations[0]) // a job that is not there yet
	if m.slots[0].closed != reason.ObstacleMemory {
		t.Error("gpu0 is open though nobody left it")
	}
	m.vacate(&s.Allocations[0])
	m.vacate(&s.Allocations[1])
	if m.slots[0].closed != "" || m.slots[1].closed != reason.ObstaclePaused {
		t.Errorf("gpu0 is closed by %q, gpu1 by %q", m.slots[0].closed, m.slots[1].closed)
	}
}

func TestEnoughIsWhetherThereIsAGrant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		m := s.machine()
		for _, p := range s.Queue.First(s.Queue.Len()) {
			k := newCandidates(m, &p.Request)
			closed := rapid.SampledFrom([]keeps{nil, func(c *slot, _ *Request) bool { return c.Index%2 == 0 }}).Draw(t, "kept")
			if _, ok := m.grant(&k, &p.Request, closed); ok != m.enough(&k, &p.Request, closed) {
				t.Fatalf("job %s is granted cards: %v", p.Job, ok)
			}
		}
	})
}

func drawAmounts(t *rapid.T) amounts {
	small := rapid.IntRange(0, 2)
	term := rapid.SampledFrom([]term{{}, anyTerm, termOf(Estimate{Low: hour, Mid: hour, High: hour}, 0, 0), termOf(Estimate{Low: hour, Mid: 2 * hour, High: 9 * hour}, 0, 3*hour), termOf(Estimate{}, 0, hour)})
	return amounts{
		gpus: small.Draw(t, "gpus"), vramMiB: int64(small.Draw(t, "vram")), share: float64(small.Draw(t, "share")) / 2,
		cpus: small.Draw(t, "cpus"), memMiB: int64(small.Draw(t, "mem")), term: term.Draw(t, "lasts"),
	}
}

// TestAFrontierKnowsAllThatFailed holds it, and what nobody could be preempted for,
// against lists of everything that was put there.
func TestAFrontierKnowsAllThatFailed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var put []amounts
		var f frontier
		var l notHelped
		for range rapid.IntRange(0, 9).Draw(t, "fail") {
			a := drawAmounts(t)
			put = append(put, a)
			f.put(a)
			l.put(a)
		}
		asks := drawAmounts(t)
		if want := slices.ContainsFunc(put, func(a amounts) bool { return asks.covers(&a) }); f.has(&asks) != want {
			t.Fatalf("%+v is on the frontier %+v: %v; put were %+v", asks, f, !want, put)
		}
		if want := slices.ContainsFunc(put, func(a amounts) bool { return asks.asMuch(&a) }); l.has(&asks) != want {
			t.Fatalf("nobody moves for %+v by %+v: %v; put were %+v", asks, l, !want, put)
		}
	})
}
