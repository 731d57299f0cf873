package engine

import (
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/predict"
	"berth/internal/sched"
)

// expectations is what ran before, and which jobs in the queue would be expected
// otherwise if more were known of their kind.
type expectations struct {
	book   *predict.Book
	alike  map[string]map[string]bool // jobs in the queue by what their commands have in common
	learnt map[string]int             // how many of these have ended since such a job was queued
	autos  map[string]map[string]bool // those with vram=auto and nothing known, likewise
	review []string                   // jobs in the queue of whose kind more is known now
}

func newExpectations() *expectations {
	return &expectations{
		book: predict.NewBook(), alike: map[string]map[string]bool{}, learnt: map[string]int{}, autos: map[string]map[string]bool{},
	}
}

func (x *expectations) enter(id, kind string) {
	if kind != "" {
		x.alike[kind] = with(x.alike[kind], id)
	}
}

func (x *expectations) leave(id, kind string) {
	without(x.autos, kind, id)
	if without(x.alike, kind, id) {
		delete(x.learnt, kind)
	}
}

func with(set map[string]bool, id string) map[string]bool {
	if set == nil {
		set = map[string]bool{}
	}
	set[id] = true
	return set
}

// without takes an id out of one of several sets, and reports whether it was
// the last.
func without(sets map[string]map[string]bool, name, id string) (last bool) {
	set, there := sets[name]
	if !there {
		return false
	}
	if delete(set, id); len(set) > 0 {
		return false
	}
	delete(sets, name)
	return true
}

// kindOf is what a job's command has in common with others; empty for a job
// without a card, of which nobody expects anything.
func kindOf(j *job.Job) string {
	if j.Spec.GPUs == 0 {
		return ""
	}
	return predict.Normalise(j.Spec.Command())
}

// past is what a job that is over says of others. A run that somebody ended
// says nothing of how long it takes, nor does one that never was, and nobody
// plans with jobs that hold no card.
func past(j *job.Job) (predict.Past, bool) {
	switch {
	case j.Spec.GPUs == 0 || j.Spec.Adopt != nil || j.StartedAt.IsZero() || j.EndedAt.Before(j.StartedAt):
		return predict.Past{}, false
	case j.Outcome == job.WasCancelled || j.Outcome == job.Lost || j.Outcome == job.Launch:
		return predict.Past{}, false
	}
	_, peak := highest(j.PeakMiB)
	if j.Outcome != job.OK && j.Outcome != job.OOM {
		peak = 0 // it may not have reached it
	}
	return predict.Past{
		User: j.User, Command: j.Spec.Command(), GPUs: j.Spec.GPUs,
		Ran: j.EndedAt.Sub(j.StartedAt), PeakMiB: peak, OK: j.Outcome == job.OK,
	}, true
}

// maxPast is how many of the jobs that are over an engine learns from when it
// begins: what they say of others fades quickly with their age, and nobody
// should have to wait for it.
const maxPast = 4096

// recall takes in how the newest jobs ended before this engine was there, the
// oldest of them first.
func (l *line) recall(newest func(most int) ([]*job.Job, error)) {
	over, err := newest(maxPast)
	if err != nil {
		l.log.Warn("how earlier jobs ended is not known; less can be expected of others", "err", err)
	}
	for _, j := range over {
		if p, ok := past(j); ok {
			l.expect.book.Add(p)
		}
	}
}

// ask is a job as the book knows jobs.
func (l *line) ask(j *job.Job) predict.Ask {
	return predict.Ask{
		User: j.User, Command: j.Spec.Command(), Key: l.inLine[j.ID].kind, GPUs: j.Spec.GPUs, Limit: j.Spec.TimeLimit,
	}
}

// span is how long a job is expected to run. Nobody plans with jobs that hold
// no card.
func (l *line) span(j *job.Job) sched.Estimate {
	if j.Spec.GPUs == 0 {
		return sched.Estimate{}
	}
	g := l.expect.book.Duration(l.ask(j))
	return sched.Estimate{Low: g.Low, Mid: g.Mid, High: g.High}
}

// resolveAuto takes the declaration of a vram=auto job from what the same
// command used before, or else from commands that differ from it in numbers and
// paths only. With nothing known it stays undeclared, so that its first run has
// a card to itself and can be measured.
func (l *line) resolveAuto(now time.Time, j *job.Job, kind string) {
	if !j.Spec.VRAMAuto || j.VRAMMiB > 0 {
		return
	}
	peak, ok, err := l.changes.store.PeakFor(j.Spec.Command())
	if err != nil {
		l.log.Warn("look up earlier peaks", "job", j.ID, "err", err)
	}
	if !ok {
		peak, ok = l.alikePeak(j)
	}
	if !ok {
		l.expect.autos[kind] = with(l.expect.autos[kind], j.ID)
		return
	}
	j.VRAMMiB = l.autoMiB(now, j, peak)
	l.changes.fact(j)
}

// alikePeak is what commands like the job's may be expected to use.
func (l *line) alikePeak(j *job.Job) (mib int64, ok bool) {
	memory, ok := l.expect.book.VRAM(l.ask(j))
	return memory.HighMiB, ok && memory.HighMiB > 0
}

// autoMiB is what a vram=auto job declares after its command was measured: a
// little more, but not more than a card it may use can hold. What ran once is
// not refused for the sake of the margin.
func (l *line) autoMiB(now time.Time, j *job.Job, peakMiB int64) int64 {
	declared := sched.Budget(0, peakMiB, l.rules.SpikeBuffer)
	if most := l.capMiB(now, sched.NewRequest(j.Spec, declared, l.rules)); most > 0 {
		return min(declared, most)
	}
	return declared
}

// learn takes in how a job ended, for those that are like it. kind is what their
// commands have in common; empty: it says nothing of others.
func (l *line) learn(now time.Time, ended *job.Job) (kind string) {
	p, ok := past(ended)
	if !ok {
		return ""
	}
	p.Key = predict.Normalise(p.Command)
	l.expect.book.Add(p)
	l.learnPeak(now, p)
	l.learnSpan(p.Key)
	return p.Key
}

// learnPeak gives the vram=auto jobs that waited for a first measurement of
// their command what it was measured at.
func (l *line) learnPeak(now time.Time, p predict.Past) {
	if p.PeakMiB == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.expect.autos[p.Key])) {
		j := l.jobs[id]
		peak, known := p.PeakMiB, j.Spec.Command() == p.Command
		if !known {
			peak, known = l.alikePeak(j)
		}
		// One that has meanwhile failed for want of memory knows better.
		if known && j.VRAMMiB == 0 {
			j.VRAMMiB = l.autoMiB(now, j, peak)
			l.changes.fact(j)
			l.enterAgain(now, j)
		}
	}
}

// learnSpan expects anew how long those like it will run. There may be very
// many, and each further run says less: they are gone through after the first,
// the second, the fourth and so on.
func (l *line) learnSpan(kind string) {
	x := l.expect
	if len(x.alike[kind]) == 0 {
		return
	}
	x.learnt[kind]++
	if n := x.learnt[kind]; n&(n-1) != 0 || len(x.review) > len(l.inLine) {
		return
	}
	x.review = slices.AppendSeq(x.review, maps.Keys(x.alike[kind]))
	l.reviewSome()
}

// reviewAtOnce is how many of the queue are expected anew in one round: others
// have requests too.
const reviewAtOnce = 1000

// reviewSome goes on with those that learnSpan found.
func (l *line) reviewSome() {
	x := l.expect
	n := min(len(x.review), reviewAtOnce)
	if n == 0 {
		return
	}
	for _, id := range x.review[:n] {
		if _, in := l.inLine[id]; in {
			l.queue.Add(l.pending(l.jobs[id]))
		}
	}
	if x.review = x.review[n:]; len(x.review) == 0 {
		x.review, l.moved = nil, true
	}
}
