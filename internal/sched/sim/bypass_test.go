package sim

import (
	"fmt"
	"testing"
	"time"

	"berth/internal/sched"

	"pgregory.net/rapid"
)

// TestEveryFeasibleJobStartsWithinItsBound lets any stream of jobs come after
// one, which is the only one of its user.
func TestEveryFeasibleJobStartsWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := aSiege(t)
		f := run(in).Fates[0]
		if got, most := f.Start-in.Jobs[0].Submit, bound(&in); got > most || f.Unfinished {
			t.Fatalf("it waited for %d ms, longer than %d, under %s (%s): %+v", got, most, in.Policy.Name, in.Estimates, f)
		}
	})
}

// bound is how long the first job of a siege waits at most. After twice
// MaxBypass nobody passes it any more. Then it waits behind one job of each
// other user that was passed for longer, and each of these and itself for what
// runs: that ends within the longest duration, and where it was thought to end
// later, jobs whose limits said that they would not be in the way may have been
// let in beside it for as long again.
//
// Under FIFO that is said of the oldest job of all, and the others become it in
// their turn.
func bound(in *input) Millis {
	longest, older, users := Millis(0), 0, map[string]bool{}
	for i := range in.Jobs {
		longest = max(longest, in.Jobs[i].runs(), in.Jobs[i].Limit)
		users[in.Jobs[i].User] = true
		if i > 0 && in.Jobs[i].Submit <= in.Jobs[0].Submit {
			older++
		}
	}
	passed, clearing := Millis(2*in.Policy.Rules.MaxBypass.Milliseconds()), 2*longest
	if in.Park != nil {
		clearing += 2 * in.Park.EachWay
	}
	if in.Policy.Rules.Policy == sched.FIFO {
		return Millis(1+older) * (passed + clearing)
	}
	return passed + Millis(len(users))*clearing
}

// aSiege is a job, the first, and many that come with it or later, from other
// users and for longer than it may be passed.
func aSiege(t *rapid.T) input {
	in := input{
		Machine:   Machine{GPUs: rapid.IntRange(1, 4).Draw(t, "gpus"), VRAMMiB: 10_000},
		Policy:    rapid.SampledFrom(Policies()).Draw(t, "policy"),
		Estimates: rapid.SampledFrom([]Estimates{History, Perfect, Limits, None, "24h0m0s", "1m0s"}).Draw(t, "estimates"),
	}
	in.Policy.Rules.MaxBypass = rapid.SampledFrom([]time.Duration{time.Minute, time.Minute, 10 * time.Minute}).Draw(t, "bypass")
	if rapid.Bool().Draw(t, "parking") {
		in.Park = &Parking{EachWay: rapid.SampledFrom([]Millis{0, 1000, 20_000}).Draw(t, "cost")}
	}
	in.Jobs = []Job{{ID: "besieged", User: "bob", Submit: 60_000, Duration: 60_000, GPUs: rapid.IntRange(1, in.Machine.GPUs).Draw(t, "needs")}}
	if in.Jobs[0].GPUs == 1 && rapid.Bool().Draw(t, "shares") {
		in.Jobs[0].Share = 0.5
	}
	users := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"ann", "cid", "dan"}), 1, 3, rapid.ID).Draw(t, "users")
	every := rapid.SampledFrom([]Millis{10_000, 60_000, 100_000}).Draw(t, "every")
	for i := range rapid.IntRange(60, 160).Draw(t, "jobs") {
		j := Job{
			ID: fmt.Sprint(i), User: rapid.SampledFrom(users).Draw(t, "user"), Submit: Millis(i) * every,
			Duration: rapid.SampledFrom([]Millis{1000, 60_000, 300_000, 300_000}).Draw(t, "duration"),
			GPUs:     rapid.IntRange(1, in.Machine.GPUs).Draw(t, "takes"),
			Priority: rapid.SampledFrom([]int{0, 5, 5}).Draw(t, "priority"),
		}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			j.Share = rapid.SampledFrom([]float64{0.3, 0.5, 0.6}).Draw(t, "share")
		case 1:
			j.Limit = j.Duration * rapid.SampledFrom([]Millis{1, 2}).Draw(t, "times")
		}
		in.Jobs = append(in.Jobs, j)
	}
	return in
}
