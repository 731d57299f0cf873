package sim

import "time"

// Replayed is one policy's replay as berth simulate --json shows it: a stable
// contract (docs/reference/simulate.md).
type Replayed struct {
	Metrics
	LeftOut    int                `json:"left_out"`
	Seeds      int                `json:"seeds"`
	Interval95 map[string]float64 `json:"interval95,omitempty"` // half its width, by figure

	// Result is that of the original workload; the figures may be means over
	// perturbed copies.
	Result Result `json:"-"`
}

// Watch connects a comparison to the outside world.
type Watch struct {
	Elapsed  func() time.Duration                     // reads a stopwatch; may be nil
	Progress func(policy string, ended, all int) bool // ended jobs, of those of all replays; false: stop; may be nil
}

// Compare replays the workload under each policy, and a perturbed copy of it
// for each seed. Every policy gets the same copies. done is false if Progress
// stopped it.
func Compare(w *Workload, policies []Policy, c Choices, seeds int, watch Watch) (replays []Replayed, done bool) {
	past, all := 0, len(policies)*(1+seeds)*len(w.Jobs)
	goOn := func(policy Policy, over int) bool {
		return watch.Progress == nil || watch.Progress(policy.Name, past+over, all)
	}
	once := func(jobs []Job, policy Policy) (Metrics, Result, bool) {
		in := w.input(jobs, policy, c)
		in.Elapsed = watch.Elapsed
		in.Progress = func(over int) bool { return goOn(policy, over) }
		result := run(in)
		if result.Stopped || !goOn(policy, len(jobs)) {
			return Metrics{}, result, false
		}
		past += len(jobs)
		return measure(in, result), result, true
	}
	for _, policy := range policies {
		metrics, result, done := once(w.Jobs, policy)
		if !done {
			return nil, false
		}
		replays = append(replays, Replayed{Metrics: metrics, LeftOut: w.LeftOut, Seeds: seeds, Result: result})
	}
	copies := make([][]Metrics, len(policies))
	for seed := range seeds {
		jobs := w.perturbed(uint64(seed))
		for i, policy := range policies {
			metrics, _, done := once(jobs, policy)
			if !done {
				return nil, false
			}
			copies[i] = append(copies[i], metrics)
		}
	}
	for i := range copies {
		if seeds > 0 {
			replays[i].Metrics, replays[i].Interval95 = average(copies[i])
		}
	}
	return replays, true
}
