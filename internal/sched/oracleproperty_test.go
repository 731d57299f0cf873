package sched

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/job/reason"
)

// comparablePlan takes out of a plan what the oracle does not say: the words of
// refusals, and their order.
func comparablePlan(p Plan) Plan {
	refused := slices.Clone(p.Infeasible)
	for i := range refused {
		refused[i].Reason = reason.Reason{}
	}
	slices.SortFunc(refused, func(a, b Refusal) int { return compareNames(a.Job, b.Job) })
	p.Infeasible = refused
	return p
}

// drawOracleState draws a small machine of every kind, or a larger one with many
// jobs that may be preempted.
func drawOracleState(t *rapid.T) State {
	if rapid.IntRange(0, 4).Draw(t, "crowd") == 0 {
		return drawCrowd(t)
	}
	s := drawAny(t)
	s.Queue.SetRules(s.Rules)
	s.Queue.Tick(s.Now)
	return s
}

// TestDecideIsWhatTheOracleSays holds every part of a plan: starts, refusals,
// reservations, preemptions, and when to decide again. scripts/test.sh runs it
// over 30,000 states.
func TestDecideIsWhatTheOracleSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawOracleState(t)
		want, got := comparablePlan(consult(s).plan), comparablePlan(Decide(s))
		if reflect.DeepEqual(want, got) {
			return // a diff of equal plans would take longer than to make them
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			text, _ := json.Marshal(NewSnapshot(s))
			t.Fatalf("plan (-oracle +decided):\n%s\n%s", diff, text)
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
		if s.hasShares() { // whoever waited within their share may be beyond it once another of their jobs started
			got = got[:min(len(got), len(want))]
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
		slow := consult(s)
		if slow.block == "" {
			return
		}
		starts, refused := outcome(Decide(s))
		for _, p := range s.Queue.First(s.Queue.Len()) {
			why := Explain(s, p.Job)
			_, started := starts[p.Job]
			if why.Kind == reason.WaitsBehind && (why.Job != slow.block || started || refused[p.Job]) {
				t.Fatalf("job %s %s, but job %s blocks", p.Job, why, slow.block)
			}
			if p.Job == slow.block && (why.Kind == reason.WaitsBehind || why.Kind == reason.WaitsForLimit || why.Kind == reason.WaitsForArray || why.Kind == reason.WaitsForGroup || why.Kind == reason.WaitsForResume) {
				t.Fatalf("job %s blocks, and yet %s", p.Job, why)
			}
		}
	})
}
