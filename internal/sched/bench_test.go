package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

const queued = 100_000

// benchState is eight cards, half full, and a hundred thousand jobs.
func benchState(request func(i int) Request) State {
	s := State{Rules: DefaultRules(), Queue: NewQueue(), Host: Host{CPUs: 64, MemMiB: 512 * 1024}}
	for i := range 8 {
		s.Cards = append(s.Cards, cardOf(i, gib24))
		s.Held = append(s.Held, Held{Job: fmt.Sprintf("h%d", i), Cards: []int{i}, BudgetMiB: []int64{12000}})
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
	for b.Loop() {
		if plan := Decide(s); len(plan.Starts) == 0 {
			b.Fatal("nothing starts")
		}
	}
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

func BenchmarkExplain100kDistinct(b *testing.B) {
	s := benchState(func(i int) Request { return Request{GPUs: 1, VRAMMiB: 5000 + int64(i)} })
	for b.Loop() {
		if Explain(s, fmt.Sprint(queued-1)).Kind != TooMuchVRAM {
			b.Fatal("the last job is the largest")
		}
	}
}

func BenchmarkQueueAddRemove(b *testing.B) {
	s := benchState(func(i int) Request { return Request{GPUs: 1, VRAMMiB: int64(i % 10)} })
	i := 0
	for b.Loop() {
		i = (i + 7919) % queued
		p, _ := s.Queue.Get(fmt.Sprint(i))
		s.Queue.Remove(p.Job)
		s.Queue.Add(p)
	}
}

func BenchmarkPosition100kDistinct(b *testing.B) {
	s := benchState(func(i int) Request { return Request{GPUs: 1, VRAMMiB: int64(i)} })
	for b.Loop() {
		s.Queue.Position(fmt.Sprint(queued - 1))
	}
}
