package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"berth/internal/sim"
)

// replayed is one policy's replay as --json shows it: a stable contract
// (docs/scheduling.md).
type replayed struct {
	sim.Metrics
	LeftOut    int                `json:"left_out"`
	Seeds      int                `json:"seeds"`
	Interval95 map[string]float64 `json:"interval95,omitempty"` // half its width, by figure

	// The workload as it is, for the page; the figures may be means over
	// copies of it.
	result sim.Result
}

// replayAll replays the workload under each policy, and as many perturbed
// copies of it as there are seeds. Every policy gets the same copies.
func replayAll(ctx context.Context, w *workload, set *settings, seeds int, p *progress) ([]replayed, error) {
	defer p.clear()
	boundMemory(len(w.jobs))
	p.total = len(set.policies) * (1 + seeds) * len(w.jobs)
	replays := make([]replayed, len(set.policies))
	for i, policy := range set.policies {
		metrics, result, err := replayOnce(ctx, w.input(w.jobs, policy, set), p)
		if err != nil {
			return nil, err
		}
		replays[i] = replayed{Metrics: metrics, LeftOut: w.leftOut, Seeds: seeds, result: result}
	}
	if seeds == 0 {
		return replays, nil
	}
	copies := make([][]sim.Metrics, len(set.policies))
	for seed := range seeds {
		jobs := w.perturbed(uint64(seed))
		for i, policy := range set.policies {
			metrics, _, err := replayOnce(ctx, w.input(jobs, policy, set), p)
			if err != nil {
				return nil, err
			}
			copies[i] = append(copies[i], metrics)
		}
	}
	for i := range replays {
		replays[i].Metrics, replays[i].Interval95 = sim.Average(copies[i])
	}
	return replays, nil
}

// boundMemory lets garbage take a few times what the workload itself does. A
// replay keeps little and throws much away: to collect seldom takes a fifth off
// the time of a long one.
func boundMemory(jobs int) {
	const beside, perJob = 256 << 20, 4 << 10
	debug.SetMemoryLimit(beside + int64(jobs)*perJob)
	debug.SetGCPercent(400)
}

// perturbed is a copy as it might as well have been. What a snapshot tells
// has happened: of its jobs only the lengths are not certain.
func (w *workload) perturbed(seed uint64) []sim.Job {
	jobs := sim.Perturb(w.jobs, uniform(seed))
	if w.fromSnapshot {
		for i := range jobs {
			jobs[i].Submit = w.jobs[i].Submit
		}
	}
	return jobs
}

// input is one replay. Of a daemon's own rules a policy replaces the order.
func (w *workload) input(jobs []sim.Job, policy sim.Policy, set *settings) sim.Input {
	in := sim.Input{
		Jobs: jobs, Machine: w.machine, Policy: policy, Park: set.park, Estimates: set.estimates,
		Begin: w.begin, Running: w.running, Usage: w.usage, Foreign: w.foreign,
		Limits: w.limits, DefaultLimit: w.defaultLimit,
	}
	if w.rules != nil {
		rules := *w.rules
		rules.Policy, rules.Fair, rules.Slice = policy.Rules.Policy, policy.Rules.Fair, policy.Rules.Slice
		if set.changed("max-bypass") {
			rules.MaxBypass = policy.Rules.MaxBypass
		}
		if set.changed("placement") {
			rules.Placement = policy.Rules.Placement
		}
		in.Policy.Rules = rules
	}
	if w.estimates != "" && !set.changed("estimates") {
		in.Estimates = w.estimates
	}
	return in
}

func replayOnce(ctx context.Context, in sim.Input, p *progress) (sim.Metrics, sim.Result, error) {
	began := time.Now()
	in.Elapsed = func() time.Duration { return time.Since(began) }
	in.Progress = func(over int) bool {
		p.show(in.Policy.Name, over)
		return ctx.Err() == nil
	}
	result := sim.Run(in)
	if result.Stopped || ctx.Err() != nil {
		return sim.Metrics{}, result, context.Canceled
	}
	p.past += len(in.Jobs)
	return sim.Measure(in, result), result, nil
}

// uniform draws numbers from 0 up to 1 by SplitMix64: the same for a seed on
// every machine and in every version.
func uniform(seed uint64) func() float64 {
	state := seed
	return func() float64 {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		return float64(z>>11) / (1 << 53)
	}
}

// progress says on a terminal how far a long replay is, and nothing of a
// short one or elsewhere.
type progress struct {
	out    io.Writer // nil: nobody looks
	now    func() time.Time
	shown  time.Time
	past   int // jobs of earlier replays
	total  int
	marked bool
}

const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 100 * time.Millisecond
)

func newProgress(out io.Writer, now func() time.Time) *progress {
	p := &progress{now: now, shown: now().Add(progressAfter - progressEvery)}
	if file, ok := out.(*os.File); ok && isTerminal(file) && os.Getenv("TERM") != "dumb" {
		p.out = out
	}
	return p
}

func (p *progress) show(policy string, over int) {
	if p.out == nil || p.total == 0 || p.now().Sub(p.shown) < progressEvery {
		return
	}
	p.shown, p.marked = p.now(), true
	fmt.Fprintf(p.out, "\r\x1b[Kreplaying (%s): %d %% of %s", policy, 100*(p.past+over)/p.total, plural(p.total, "job"))
}

func (p *progress) clear() {
	if p.marked {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
