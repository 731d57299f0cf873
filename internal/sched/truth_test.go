package sched

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// truth is a small workload of which it is known how long everything runs: what
// is foretold of it is held against what comes.
type truth struct {
	state State
	lasts map[string]time.Duration // whole runs, by job
}

// drawTruth is drawn from the seed alone. Where spread is above 1, a run lasts
// for something between what is expected at least and at most.
func drawTruth(seed uint64, rules Rules, spread float64) truth {
	r := rand.New(rand.NewPCG(seed, 11))
	now := sundayNoon
	w := truth{lasts: map[string]time.Duration{}, state: State{
		Now: now, Rules: rules, Queue: NewQueue(), Host: Host{CPUs: 32, MemMiB: 64000}, FairQuantum: FairQuantum, Usage: map[string]float64{},
	}}
	w.state.Queue.SetRules(rules)
	cards := 2 + r.IntN(3)
	span := func(id string) Estimate {
		mid := time.Duration(1+r.IntN(240)) * time.Minute
		s := Estimate{Low: time.Duration(float64(mid) / spread), Mid: mid, High: time.Duration(float64(mid) * spread)}
		w.lasts[id] = time.Duration(float64(s.Low) * math.Pow(spread*spread, r.Float64()))
		return s
	}
	for i := range cards {
		w.state.Cards = append(w.state.Cards, cardOf(i, gib24))
		id := fmt.Sprint("h", i)
		h := Allocation{Job: id, User: "cay", Cards: []int{i}, Alone: true, Run: span(id), Started: now}
		w.state.Allocations = append(w.state.Allocations, h)
	}
	for i := range 4 + r.IntN(24) {
		spec := idle(1 + r.IntN(2))
		switch r.IntN(6) {
		case 0:
			spec = idle(cards)
		case 1:
			spec = share(float64(1+r.IntN(3)) / 4)
		case 2:
			spec = vram(4000 * (1 + r.Int64N(4)))
		}
		spec.CPUs = r.IntN(3)
		id := fmt.Sprint(i)
		w.state.Queue.Add(Pending{
			Job: id, User: []string{"ann", "bob", "cay"}[r.IntN(3)], Rank: int64(i), Seq: int64(i), Priority: r.IntN(6) / 5,
			Since: now.Add(-time.Minute), Request: NewRequest(spec, spec.VRAMMiB, rules), Run: span(id),
		})
	}
	w.state.Queue.Tick(now)
	for i := range w.state.Allocations {
		h := &w.state.Allocations[i]
		w.state.Usage[h.User] += FairQuantum * h.FairWeight(w.state.Host.Scale(cards))
	}
	return w
}

// play lets the workload go on until nothing waits, and tells when each began. Usage
// is counted as an engine does. Nothing is submitted meanwhile.
func (w *truth) play(t *testing.T) map[string]time.Time {
	s, began, ended := w.state, map[string]time.Time{}, map[string]float64{}
	scale := s.Host.Scale(len(s.Cards))
	ran := func(h *Allocation) float64 { return h.FairWeight(scale) * s.Now.Sub(h.Started).Seconds() }
	for s.Queue.Len() > 0 {
		s.Queue.Tick(s.Now)
		s.Usage = maps.Clone(ended)
		for i := range s.Allocations {
			h := &s.Allocations[i]
			s.Usage[h.User] += ran(h) + FairQuantum*h.FairWeight(scale)
		}
		for _, start := range Decide(s).Starts {
			p, _ := s.Queue.Get(start.Job)
			s.Queue.Remove(start.Job)
			began[start.Job] = s.Now
			s.Allocations = append(s.Allocations, begun(&s, &p, start.Grant))
		}
		if s.Queue.Len() > 0 && len(s.Allocations) == 0 {
			t.Fatal("nothing runs, and nothing starts")
		}
		end := func(h Allocation) time.Time { return h.Started.Add(w.lasts[h.Job]) }
		next := slices.MinFunc(s.Allocations, func(a, b Allocation) int { return end(a).Compare(end(b)) })
		s.Now = end(next)
		s.Allocations = slices.DeleteFunc(s.Allocations, func(h Allocation) bool {
			if end(h).After(s.Now) {
				return false
			}
			ended[h.User] += ran(&h)
			return true
		})
	}
	return began
}

// begun is a job that runs from now on.
func begun(s *State, p *Pending, g job.Grant) Allocation {
	h := Allocation{
		Job: p.Job, User: p.User, Priority: p.Priority, Rank: p.Rank, Seq: p.Seq, Cards: g.GPUs, CPUs: p.Request.CPUs, MemMiB: p.Request.MemMiB,
		Share: p.Request.Share, Alone: p.Request.undeclared(), Exclusive: p.Request.Exclusive, Started: s.Now, Run: p.Run, Limit: p.Limit,
	}
	for range g.GPUs {
		h.BudgetMiB = append(h.BudgetMiB, p.Request.budgetOn(gib24))
	}
	return h
}

// calibration counts how forecasts came true.
type calibration struct {
	jobs, exact, within, early, late int
	off                              []float64 // hours that Mid was too late, of each
}

func calibrate(t *testing.T, rules Rules, spread float64) calibration {
	var c calibration
	for seed := range uint64(120) {
		w := drawTruth(seed, rules, spread)
		foretold := map[string]reason.Forecast{}
		jobs := Order(w.state, w.state.Queue.Len())
		for i, f := range NewPreview(w.state, jobs).forecasts() {
			foretold[jobs[i]] = f
		}
		for job, at := range w.play(t) {
			f := foretold[job]
			c.jobs++
			switch {
			case at.Before(f.Low):
				c.early++
			case at.After(f.High):
				c.late++
			default:
				c.within++
			}
			if f.Mid.Equal(at) {
				c.exact++
			}
			c.off = append(c.off, f.Mid.Sub(at).Hours())
		}
	}
	slices.Sort(c.off)
	return c
}

func (c *calibration) percent(n int) float64 { return 100 * float64(n) / float64(c.jobs) }

// offBy is by how many hours Mid was too late, in that part of all cases at most.
func (c *calibration) offBy(part float64) float64 { return c.off[int(part*float64(len(c.off)-1))] }

func (c *calibration) String() string {
	return fmt.Sprintf("%d jobs: %.1f%% within, %.1f%% before, %.1f%% after; %.1f%% exact; too late by %.2f h (p5), %.2f h (p50), %.2f h (p95)",
		c.jobs, c.percent(c.within), c.percent(c.early), c.percent(c.late), c.percent(c.exact), c.offBy(.05), c.offBy(.5), c.offBy(.95))
}

// TestForecastsComeTrue plays small workloads to their end and compares. With exact
// knowledge of how long all runs last, every forecast is exact.
// docs/studies/forecast.md has the figures.
func TestForecastsComeTrue(t *testing.T) {
	for _, row := range []struct {
		says   string
		policy Policy
		fair   bool
		spread float64 // what is known of a run is right within this factor
		within float64 // percent, at least
		exact  float64 // percent, at least
		late   float64 // in nineteen of twenty cases Mid is too late by so many hours at most
	}{
		{"fifo, all known", FIFO, false, 1, 100, 100, 0},
		{"fifo, half to double", FIFO, false, 2, 99, 0, 3},
		{"backfill, all known", Backfill, false, 1, 100, 100, 0},
		{"backfill, half to double", Backfill, false, 2, 92, 0, 8},
		{"conservative, all known", Conservative, false, 1, 100, 100, 0},
		{"conservative, half to double", Conservative, false, 2, 91, 0, 8},
		{"in turn, all known", Backfill, true, 1, 100, 100, 0},
		{"in turn, half to double", Backfill, true, 2, 91, 0, 9},
		{"shortest, all known", Shortest, false, 1, 100, 100, 0},
		{"shortest, half to double", Shortest, false, 2, 86, 0, 10},
		{"las, half to double", LAS, false, 2, 86, 0, 16},
	} {
		t.Run(row.says, func(t *testing.T) {
			t.Parallel()
			rules := DefaultRules()
			rules.Policy, rules.Fair = row.policy, row.fair
			c := calibrate(t, rules, row.spread)
			t.Log(&c)
			if c.percent(c.within) < row.within || c.percent(c.exact) < row.exact || c.offBy(.95) > row.late {
				t.Errorf("want %.0f%% within, %.0f%% exact, and no more than %.0f h too late", row.within, row.exact, row.late)
			}
		})
	}
}
