package sched

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/reason"
)

// slowly is of snapshots without times: who comes first by priority, turn and
// submission, who starts, and who is refused. What is kept for whom, who gives way
// and what was passed for too long are held to properties of their own and to the
// replays of internal/sim.
//
// It decides as simply as it can be written: it looks for the next job
// among all that are left, tries each afresh, and does its own sums of what
// users and arrays have. Only whether a job fits on the cards is asked of the
// code under test, as a machine that knows neither users nor arrays.
type slowly struct {
	state   State // with users and arrays
	cards   *decision
	turn    map[string]float64
	use     map[string]Use
	pools   map[string]int
	starts  []Start
	refused []string
	blocker string
}

func plain(s State) State {
	s.Rules.Fair, s.FairQuantum, s.DefaultLimit = false, 0, Limit{}
	s.Usage, s.Limits, s.InUse, s.Pools = nil, nil, nil, nil
	return s
}

func decideSlowly(s State) *slowly {
	bare := plain(s)
	n := &slowly{state: s, cards: newDecision(&bare), turn: copied(s.Usage), use: copied(s.InUse), pools: copied(s.Pools)}
	for left := s.Queue.First(s.Queue.Len()); len(left) > 0; {
		next := slices.MinFunc(left, n.compare)
		left = slices.DeleteFunc(left, func(p Pending) bool { return p.Job == next.Job })
		n.consider(next)
	}
	return n
}

// compare is the order: priority, turn, rank, sequence, id.
func (n *slowly) compare(a, b Pending) int {
	turn := 0
	if n.state.Rules.Fair {
		turn = cmp.Compare(n.turn[a.User], n.turn[b.User])
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), turn,
		cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Job, b.Job))
}

func (n *slowly) limit(user string) Limit {
	if own, ok := n.state.Limits[user]; ok {
		return own
	}
	return n.state.DefaultLimit
}

func (n *slowly) consider(p Pending) {
	limit, use, gpus := n.limit(p.User), n.use[p.User], p.Request.CountedGPUs()
	_, possible := Feasible(n.state, p.Request)
	switch {
	case !possible || limit.GPUs > 0 && gpus > limit.GPUs+1e-6:
		n.refused = append(n.refused, p.Job)
	case n.blocker != "" || n.state.MaxStarts > 0 && len(n.starts) >= n.state.MaxStarts:
	case p.PoolLimit > 0 && n.pools[p.Pool] >= p.PoolLimit:
	case limit.Jobs > 0 && use.Jobs >= limit.Jobs:
	case limit.GPUs > 0 && gpus > 0 && use.GPUs+gpus > limit.GPUs+1e-6:
	case n.fits(p):
		n.use[p.User] = Use{use.Jobs + 1, use.GPUs + gpus}
		n.turn[p.User] += n.state.FairQuantum * p.Request.FairWeight()
		if p.PoolLimit > 0 {
			n.pools[p.Pool]++
		}
	case n.state.Rules.Policy == FIFO:
		n.blocker = p.Job
	}
}

// fits starts the job if there is room on the cards.
func (n *slowly) fits(p Pending) bool {
	m, _ := n.state.Queue.member(p.Job)
	g := *m.group
	g.poolLimit = 0
	h := g.head(m.entry)
	ok := n.cards.start(&h, newKinship(n.cards.board, &p.Request), &account{})
	n.starts = n.cards.plan.Starts
	return ok
}

// TestDecideIsTheSlowDecision makes sure that no shortcut skips a job that
// would start, and none changes the order.
func TestDecideIsTheSlowDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		slow, plan := decideSlowly(s), Decide(s)
		if diff := gocmp.Diff(slow.starts, plan.Starts); diff != "" {
			t.Fatalf("starts (-slowly +decided):\n%s", diff)
		}
		var refused []string
		for _, r := range plan.Infeasible {
			refused = append(refused, r.Job)
		}
		slices.Sort(refused)
		slices.Sort(slow.refused)
		if diff := gocmp.Diff(slow.refused, refused); diff != "" {
			t.Fatalf("refused (-slowly +decided):\n%s", diff)
		}
	})
}

// TestWithoutLimitsThePlanIsFirstFit has no notion of users at all: jobs in
// the order of the queue, each on the cards if it fits.
func TestWithoutLimitsThePlanIsFirstFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawPlain(t)
		d := newDecision(&s)
		blocked := false
		for _, p := range s.Queue.First(s.Queue.Len()) {
			m, _ := s.Queue.member(p.Job)
			h := m.group.head(m.entry)
			if _, possible := Feasible(s, p.Request); !possible || blocked || d.spent() {
				continue
			}
			blocked = !d.start(&h, newKinship(d.board, &p.Request), &account{}) && s.Rules.Policy == FIFO
		}
		if diff := gocmp.Diff(d.plan.Starts, Decide(s).Starts); diff != "" {
			t.Fatalf("starts (-first fit +decided):\n%s", diff)
		}
	})
}

// TestAPlanCutInPiecesIsTheSamePlan starts one job at a time.
func TestAPlanCutInPiecesIsTheSamePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		s.MaxStarts = 0
		want := Decide(s).Starts
		s.MaxStarts = 1
		var got []Start
		for range s.Queue.Len() {
			plan := Decide(s)
			got = append(got, plan.Starts...)
			s = commit(s, plan)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("starts (-at once +one by one):\n%s", diff)
		}
	})
}

// TestFIFOStartsUpToTheBlocker names the job that everything else waits for.
func TestFIFOStartsUpToTheBlocker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		s.Rules.Policy = FIFO
		slow := decideSlowly(s)
		if slow.blocker == "" {
			return
		}
		starts, refused := outcome(Decide(s))
		for _, p := range s.Queue.First(s.Queue.Len()) {
			why := Explain(s, p.Job)
			_, started := starts[p.Job]
			if why.Kind == reason.WaitsBehind && (why.Job != slow.blocker || started || refused[p.Job]) {
				t.Fatalf("job %s %s, but job %s blocks", p.Job, why, slow.blocker)
			}
			if p.Job == slow.blocker && (why.Kind == reason.WaitsBehind || why.Kind == reason.WaitsForLimit || why.Kind == reason.WaitsForArray) {
				t.Fatalf("job %s blocks, and yet %s", p.Job, why)
			}
		}
	})
}
