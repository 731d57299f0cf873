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
func (t *Turn) resolveAuto(j *job.Job) {
	if !j.Spec.VRAMAuto || j.VRAMMiB > 0 {
		return
	}
	peak, ok, err := t.store.PeakFor(j.Spec.Command())
	if err != nil {
		t.cfg.Log.Warn("look up earlier peaks", "job", j.ID, "err", err)
	}
	if !ok {
		peak, ok = t.alikePeak(j)
	}
	if !ok {
		kind := t.inLine[j.ID].kind
		t.autos[kind] = with(t.autos[kind], j.ID)
		return
	}
	j.VRAMMiB = t.autoMiB(j, peak)
	t.fact(j)
}

// alikePeak is what commands like the job's may be expected to use.
func (t *Turn) alikePeak(j *job.Job) (mib int64, ok bool) {
	memory, ok := t.book.VRAM(t.ask(j))
	return memory.HighMiB, ok && memory.HighMiB > 0
}

// autoMiB is what a vram=auto job declares after its command was measured: a
// little more, but not more than a card it may use can hold. What ran once is
// not refused for the sake of the margin.
func (t *Turn) autoMiB(j *job.Job, peakMiB int64) int64 {
	declared := sched.Budget(0, peakMiB, t.cfg.Rules.SpikeBuffer)
	most := sched.CapMiB(t.state(), sched.NewRequest(j.Spec, declared, t.cfg.Rules))
	if most > 0 {
		return min(declared, most)
	}
	return declared
}

// learn takes in how a job ended, for those that are like it.
func (t *Turn) learn(ended *job.Job) {
	p, ok := past(ended)
	if !ok {
		return
	}
	p.Key = predict.Normalise(p.Command)
	t.book.Add(p)
	t.learnPeak(p)
	t.learnSpan(p.Key)
}

// learnPeak gives the vram=auto jobs that waited for a first measurement of
// their command what it was measured at.
func (t *Turn) learnPeak(p predict.Past) {
	if p.PeakMiB == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(t.autos[p.Key])) {
		j := t.jobs[id]
		peak, known := p.PeakMiB, j.Spec.Command() == p.Command
		if !known {
			peak, known = t.alikePeak(j)
		}
		// One that has meanwhile failed for want of memory knows better.
		if known && j.VRAMMiB == 0 {
			j.VRAMMiB = t.autoMiB(j, peak)
			t.fact(j)
			t.lineAgain(j)
		}
	}
}

// learnSpan expects anew how long those like it will run. In the queue there may
// be very many, and each further run says less: they are gone through after the
// first, the second, the fourth and so on.
func (t *Turn) learnSpan(kind string) {
	for _, a := range t.active {
		if a.kind == kind {
			a.run = t.span(a.job)
		}
	}
	if len(t.alike[kind]) == 0 {
		return
	}
	t.learnt[kind]++
	if n := t.learnt[kind]; n&(n-1) != 0 || len(t.review) > len(t.inLine) {
		return
	}
	t.review = slices.AppendSeq(t.review, maps.Keys(t.alike[kind]))
	t.reviewSome()
}

// reviewAtOnce is how many of the queue are expected anew in one round: others
// have requests too.
const reviewAtOnce = 1000

// reviewSome goes on with those that learnSpan found.
func (t *Turn) reviewSome() {
	n := min(len(t.review), reviewAtOnce)
	if n == 0 {
		return
	}
	for _, id := range t.review[:n] {
		if _, in := t.inLine[id]; in {
			t.queue.Add(t.pending(t.jobs[id]))
		}
	}
	if t.review = t.review[n:]; len(t.review) == 0 {
		t.review, t.moved = nil, true
	}
}
