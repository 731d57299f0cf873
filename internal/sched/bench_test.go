package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"berth/internal/job/reason"
)

const queued = 100_000

// benchState is eight cards, half full, and a hundred thousand jobs.
func benchState(request func(i int) Request) State {
	s := State{Rules: DefaultRules(), Queue: NewQueue(), Host: Host{CPUs: 64, MemMiB: 512 * 1024}}
	for i := range 8 {
		s.Cards = append(s.Cards, cardOf(i, gib24))
		s.Allocations = append(s.Allocations, Allocation{Job: fmt.Sprintf("h%d", i), Cards: []int{i}, BudgetMiB: []int64{12000}})
	}
	// Jobs arrive in another order than they are queued in, so that the walk
	// does not profit from how they lie in memory.
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(queued) {
		s.Queue.Add(Pending{Job: fmt.Sprint(i), Rank: int64(i), Seq: int64(i), Request: request(i)})
	}
	return s
}

func benchDecide(b *testing.B, request func(i int) Request) {
	s := benchState(request)
	b.ResetTimer()
	fastest(b, func() {
		if plan := Decide(s); len(plan.Starts) == 0 {
			b.Fatal("nothing starts")
		}
	})
}

func BenchmarkDecide100kOneKind(b *testing.B) {
	benchDecide(b, func(int) Request { return Request{GPUs: 1, VRAMMiB: 5000} })
}

func BenchmarkDecide100kDistinct(b *testing.B) {
	benchDecide(b, func(i int) Request { return Request{GPUs: 1, VRAMMiB: 5000 + int64(i*7919%queued)/6, CPUs: i % 6} })
}

// BenchmarkDecide100kDistinctShapes varies everything a request has.
func BenchmarkDecide100kDistinctShapes(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 4))
	benchDecide(b, func(i int) Request {
		request := Request{GPUs: 1 + r.IntN(4), VRAMMiB: 1000 + r.Int64N(20000), CPUs: r.IntN(9), MemMiB: r.Int64N(60000)}
		switch r.IntN(4) {
		case 0:
			request.GPUs, request.Share = 1, r.Float64()
		case 1:
			request.Allow = joinIDs([]int{r.IntN(4), 4 + r.IntN(4)})
			request.GPUs = 1
		case 2:
			request.Exclusive = true
		}
		return request
	})
}

func BenchmarkDecide100kInfeasible(b *testing.B) {
	benchDecide(b, func(i int) Request {
		if i == queued-1 {
			return Request{GPUs: 1, VRAMMiB: 5000}
		}
		return Request{GPUs: 1, VRAMMiB: 90000}
	})
}

// lab gives the jobs to a hundred users who take turns and have limits, and
// makes arrays of ten of them.
func lab(s State) State {
	s.Rules.Fair, s.FairQuantum = true, 3600
	s.DefaultLimit, s.InUse, s.Usage, s.ArrayRuns = Limit{Jobs: 4, GPUs: 8}, map[string]Use{}, map[string]float64{}, map[string]int{}
	for i, p := range s.Queue.First(s.Queue.Len()) {
		p.User = fmt.Sprint("user", i%100)
		p.Array, p.ArrayLimit = fmt.Sprint(i/1000*100+i%100), 3
		s.InUse[p.User], s.Usage[p.User] = Use{Jobs: i % 5, GPUs: float64(i % 3)}, float64(i%100*37%1000)
		s.Queue.Add(p)
	}
	return s
}

func BenchmarkDecideLab100kArrays(b *testing.B) {
	s := lab(benchState(func(int) Request { return Request{GPUs: 1, VRAMMiB: 5000} }))
	fastest(b, func() {
		if plan := Decide(s); len(plan.Starts) == 0 {
			b.Fatal("nothing starts")
		}
	})
}

func BenchmarkDecideLab100kDistinct(b *testing.B) {
	s := lab(benchState(func(i int) Request {
		return Request{GPUs: 1, VRAMMiB: 5000 + int64(i*7919%queued)/6, CPUs: i % 6}
	}))
	fastest(b, func() {
		if plan := Decide(s); len(plan.Starts) == 0 {
			b.Fatal("nothing starts")
		}
	})
}

func BenchmarkOrderLab100k(b *testing.B) {
	s := lab(benchState(func(i int) Request { return Request{GPUs: 1, VRAMMiB: 5000 + int64(i%300)} }))
	fastest(b, func() {
		if len(Order(s, queued)) != queued {
			b.Fatal("jobs are missing")
		}
	})
}

// benchReasons explains the first ten thousand, of three hundred kinds.
func benchReasons[T any](b *testing.B, s State, explain func(State, []string) []T) {
	var jobs []string
	for _, p := range s.Queue.First(10_000) {
		jobs = append(jobs, p.Job)
	}
	b.ResetTimer()
	fastest(b, func() {
		if len(explain(s, jobs)) != len(jobs) {
			b.Fatal("a job has no reason")
		}
	})
}

func ofThreeHundred(i int) Request { return Request{GPUs: 1 + i%2, VRAMMiB: 15000 + int64(i%300)} }

func BenchmarkReasons10k(b *testing.B)    { benchReasons(b, benchState(ofThreeHundred), Reasons) }
func BenchmarkSentences10k(b *testing.B)  { benchReasons(b, benchState(ofThreeHundred), Sentences) }
func BenchmarkReasonsLab10k(b *testing.B) { benchReasons(b, lab(benchState(ofThreeHundred)), Reasons) }
func BenchmarkSentencesLab10k(b *testing.B) {
	benchReasons(b, lab(benchState(ofThreeHundred)), Sentences)
}

func BenchmarkExplain100kDistinct(b *testing.B) {
	s := benchState(func(i int) Request { return Request{GPUs: 1, VRAMMiB: 5000 + int64(i)} })
	fastest(b, func() {
		if Explain(s, fmt.Sprint(queued-1)).Kind != reason.TooMuchVRAM {
			b.Fatal("the last job is the largest")
		}
	})
}

func BenchmarkQueueAddRemove(b *testing.B) {
	s := benchState(func(i int) Request { return Request{GPUs: 1, VRAMMiB: int64(i % 10)} })
	i := 0
	fastest(b, func() {
		i = (i + 7919) % queued
		p, _ := s.Queue.Get(fmt.Sprint(i))
		s.Queue.Remove(p.Job)
		s.Queue.Add(p)
	})
}

func BenchmarkPosition100kDistinct(b *testing.B) {
	s := benchState(func(i int) Request { return Request{GPUs: 1, VRAMMiB: int64(i)} })
	fastest(b, func() {
		s.Queue.Position(fmt.Sprint(queued - 1))
	})
}
