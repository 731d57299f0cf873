package engine

import (
	"maps"
	"slices"

	"berth/internal/job"
	"berth/internal/predict"
	"berth/internal/sched"
)

// resolveAuto takes the declaration of a vram=auto job from what the same
// command used before, or else from commands that differ from it in numbers and
// paths only. With nothing known it stays undeclared, so that its first run has
// a card to itself and can be measured.
func (e *Engine) resolveAuto(j *job.Job) {
	if !j.Spec.VRAMAuto || j.VRAMMiB > 0 {
		return
	}
	peak, ok, err := e.store.PeakFor(j.Spec.Command())
	if err != nil {
		e.cfg.Log.Warn("look up earlier peaks", "job", j.ID, "err", err)
	}
	if !ok {
		peak, ok = e.alikePeak(j)
	}
	if !ok {
		kind := e.inLine[j.ID].kind
		e.autos[kind] = with(e.autos[kind], j.ID)
		return
	}
	j.VRAMMiB = e.autoMiB(j, peak)
	e.fact(j)
}

// alikePeak is what commands like the job's may be expected to use.
func (e *Engine) alikePeak(j *job.Job) (mib int64, ok bool) {
	memory, ok := e.book.VRAM(e.ask(j))
	return memory.HighMiB, ok && memory.HighMiB > 0
}

// autoMiB is what a vram=auto job declares after its command was measured: a
// little more, but not more than a card it may use can hold. What ran once is
// not refused for the sake of the margin.
func (e *Engine) autoMiB(j *job.Job, peakMiB int64) int64 {
	declared := sched.Budget(0, peakMiB, e.cfg.Rules.SpikeBuffer)
	most := sched.CapMiB(e.state(), sched.NewRequest(j.Spec, declared, e.cfg.Rules))
	if most > 0 {
		return min(declared, most)
	}
	return declared
}

// learn takes in how a job ended, for those that are like it.
func (e *Engine) learn(ended *job.Job) {
	p, ok := past(ended)
	if !ok {
		return
	}
	p.Key = predict.Normalise(p.Command)
	e.book.Add(p)
	e.learnPeak(p)
	e.learnSpan(p.Key)
}

// learnPeak gives the vram=auto jobs that waited for a first measurement of
// their command what it was measured at.
func (e *Engine) learnPeak(p predict.Past) {
	if p.PeakMiB == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(e.autos[p.Key])) {
		j := e.jobs[id]
		peak, known := p.PeakMiB, j.Spec.Command() == p.Command
		if !known {
			peak, known = e.alikePeak(j)
		}
		// One that has meanwhile failed for want of memory knows better.
		if known && j.VRAMMiB == 0 {
			j.VRAMMiB = e.autoMiB(j, peak)
			e.fact(j)
			e.lineAgain(j)
		}
	}
}

// learnSpan expects anew how long those like it will run. In the queue there may
// be very many, and each further run says less: they are gone through after the
// first, the second, the fourth and so on.
func (e *Engine) learnSpan(kind string) {
	for _, a := range e.active {
		if a.kind == kind {
			a.run = e.span(a.job)
		}
	}
	if len(e.alike[kind]) == 0 {
		return
	}
	e.learnt[kind]++
	if n := e.learnt[kind]; n&(n-1) != 0 || len(e.review) > len(e.inLine) {
		return
	}
	e.review = slices.AppendSeq(e.review, maps.Keys(e.alike[kind]))
	e.reviewSome()
}

// reviewAtOnce is how many of the queue are expected anew in one round: others
// have requests too.
const reviewAtOnce = 1000

// reviewSome goes on with those that learnSpan found.
func (e *Engine) reviewSome() {
	n := min(len(e.review), reviewAtOnce)
	if n == 0 {
		return
	}
	for _, id := range e.review[:n] {
		if _, in := e.inLine[id]; in {
			e.queue.Add(e.pending(e.jobs[id]))
		}
	}
	if e.review = e.review[n:]; len(e.review) == 0 {
		e.review, e.moved = nil, true
	}
}
