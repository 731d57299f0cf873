package engine

import (
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/predict"
	"berth/internal/sched"
)

// expectations is what earlier jobs tell about queued ones, and which queued
// jobs to estimate again when more is known.
type expectations struct {
	book   *predict.Book
	hosts  *predict.Book              // of jobs without a card, which say nothing about others
	alike  map[string]map[string]bool // queued jobs by kind
	learnt map[string]int             // how many of a kind have ended since one was queued
	autos  map[string]map[string]bool // queued jobs with vram=auto whose own command was not measured, by kind
	review []string                   // queued jobs to estimate again
}

func newExpectations() *expectations {
	return &expectations{
		book: predict.NewBook(), hosts: predict.NewBook(), alike: map[string]map[string]bool{}, learnt: map[string]int{}, autos: map[string]map[string]bool{},
	}
}

// bookOf has the runs that tell about a job with this many cards.
func (x *expectations) bookOf(cards int) *predict.Book {
	if cards == 0 {
		return x.hosts
	}
	return x.book
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

// without removes an id from one of several sets, and reports whether the set is
// empty now.
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

// commandOf is what tells a job's command from others: not all of a long one,
// because it is looked at whenever the job is queued.
func commandOf(j *job.Job) string { return j.Spec.CommandHead(job.KindBytes) }

// kindOf groups jobs with similar commands.
func kindOf(j *job.Job) string { return predict.Normalise(commandOf(j)) }

// past is what an ended job tells about others. A job that failed or was stopped
// says neither how long such jobs run nor how much they use.
func past(j *job.Job) (predict.Past, bool) {
	if j.Outcome != job.OK || j.TextGone || j.Spec.Adopt != nil || j.StartedAt.IsZero() || j.EndedAt.Before(j.StartedAt) {
		return predict.Past{}, false
	}
	_, peak := highest(j.PeakMiB)
	return predict.Past{
		User: j.User, Command: commandOf(j), GPUs: j.Spec.GPUs,
		Ran: j.Worked(j.EndedAt), PeakMiB: peak, OK: true,
	}, true
}

// maxPast bounds the ended jobs an engine learns from when it starts. Older jobs
// count less and less, and the start should be quick.
const maxPast = 4096

// recall learns from the newest ended jobs, oldest first.
func (l *line) recall(newest func(most int) ([]*job.Job, error)) {
	over, err := newest(maxPast)
	if err != nil {
		l.log.Warn("cannot read earlier jobs; estimates are worse without them", "err", err)
	}
	for _, j := range over {
		if p, ok := past(j); ok {
			l.expect.bookOf(p.GPUs).Add(p)
			l.vouch(j, kindOf(j), p.Ran)
		}
	}
}

// ask describes a job for an estimate.
func (l *line) ask(j *job.Job) predict.Ask {
	return predict.Ask{
		User: j.User, Command: commandOf(j), Key: l.inLine[j.ID].kind, GPUs: j.Spec.GPUs,
		Limit: LongestRun(&j.Spec), Grace: l.cfg.bounded(j.Spec.Grace),
	}
}

// LongestRun is how long a job can run at most; 0: as long as it likes. One that is
// parked at its time limit goes on later.
func LongestRun(spec *job.Spec) time.Duration {
	if spec.OnTimeout == job.TimeoutPark {
		return 0
	}
	return spec.TimeLimit
}

// span is a job's estimated duration. For a job without a card only runs of the
// same command count: the others of its user may do anything.
func (l *line) span(j *job.Job) sched.Estimate {
	g := l.expect.bookOf(j.Spec.GPUs).Duration(l.ask(j))
	if j.Spec.GPUs == 0 && g.Source != predict.FromCommand {
		return sched.Estimate{}
	}
	return sched.Estimate{Low: g.Low, Mid: g.Mid, High: g.High, Guess: g.Guess()}
}

// resolveAuto sets the declaration of a vram=auto job from what the same command
// used before, or from commands that differ only in numbers and paths. Without
// an estimate it stays undeclared, so that its first attempt has a card to
// itself and can be measured. A job that has run keeps its declaration: it may
// have been raised.
func (l *line) resolveAuto(now time.Time, j *job.Job, kind string) {
	if !j.Spec.VRAMAuto || j.VRAMMiB > 0 && j.Attempt.Number > 0 {
		return
	}
	memory := l.memory(j)
	if memory.Source != predict.FromCommand {
		l.expect.autos[kind] = with(l.expect.autos[kind], j.ID)
	}
	l.declare(now, j, memory.HighMiB)
}

// declare changes what a vram=auto job declares, to what its peak suggests.
func (l *line) declare(now time.Time, j *job.Job, peakMiB int64) {
	if mib := l.autoMiB(now, j, peakMiB); mib != j.VRAMMiB {
		j.VRAMMiB = mib
		l.changes.fact(j)
	}
}

// memory is the estimated memory of a job: what the same command with the same
// arguments used, as far back as the store knows, else what the program used
// with other arguments.
func (l *line) memory(j *job.Job) predict.Memory {
	memory, _ := l.expect.book.VRAM(l.ask(j))
	peak, runs, err := l.changes.store.PeakFor(j.User, commandOf(j))
	switch {
	case err != nil:
		l.log.Warn("look up earlier peaks", "job", j.ID, "err", err)
	case runs == 0:
	case memory.Source == predict.FromCommand:
		memory.HighMiB, memory.Samples = max(memory.HighMiB, peak), max(memory.Samples, runs)
	default:
		return predict.Memory{LowMiB: peak, MidMiB: peak, HighMiB: peak, Source: predict.FromCommand, Samples: runs}
	}
	return memory
}

// autoMiB is what a vram=auto job declares after its command was measured: a
// little more, but at most what its cards can hold. A job that ran once is not
// refused because of the margin. Without a measurement it declares nothing.
func (l *line) autoMiB(now time.Time, j *job.Job, peakMiB int64) int64 {
	if peakMiB <= 0 {
		return 0
	}
	declared := sched.Budget(0, peakMiB, l.rules.SpikeBuffer)
	if j.Spec.To == job.ToSlurm {
		return declared // its cards are not those of this machine
	}
	if most := l.capMiB(now, sched.NewRequest(j.Spec, declared, l.rules)); most > 0 {
		return min(declared, most)
	}
	return declared
}

// learn records how a job ended. It returns the kind of similar jobs; empty: it
// says nothing about others.
func (l *line) learn(now time.Time, ended *job.Job) (kind string) {
	p, ok := past(ended)
	if !ok {
		return ""
	}
	p.Key = predict.Normalise(p.Command)
	l.expect.bookOf(p.GPUs).Add(p)
	l.vouch(ended, p.Key, p.Ran)
	l.learnPeak(now, p)
	l.learnSpan(p.Key)
	return p.Key
}

// learnPeak sets the declaration of vram=auto jobs whose own command was measured
// for the first time, and of those that had no estimate at all.
func (l *line) learnPeak(now time.Time, p predict.Past) {
	if p.PeakMiB == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.expect.autos[p.Key])) {
		j := l.jobs[id]
		same := j.User == p.User && commandOf(j) == p.Command
		if !same && j.VRAMMiB > 0 {
			continue
		}
		peak := p.PeakMiB // the store learns of it later in this round
		if !same {
			memory, _ := l.expect.book.VRAM(l.ask(j))
			peak = memory.HighMiB
		}
		if peak > 0 {
			l.declare(now, j, peak)
			l.queue.Add(l.pending(j))
			l.moved = true
		}
		if same {
			without(l.expect.autos, p.Key, id)
		}
	}
}

// learnSpan schedules new estimates for similar jobs. There may be many, and
// each further end says less, so that happens after the first, second, fourth
// end and so on.
func (l *line) learnSpan(kind string) {
	x := l.expect
	if len(x.alike[kind]) == 0 {
		return
	}
	x.learnt[kind]++
	if n := x.learnt[kind]; n&(n-1) == 0 {
		l.reviewKind(kind)
	}
}

// reviewKind schedules new estimates for the queued jobs of a kind, unless more
// than all jobs are scheduled already.
func (l *line) reviewKind(kind string) {
	x := l.expect
	if len(x.review) > len(l.inLine) {
		return
	}
	x.review = slices.AppendSeq(x.review, maps.Keys(x.alike[kind]))
	l.reviewSome()
}

// reviewAtOnce bounds the estimates of one round, so that requests get a turn.
const reviewAtOnce = 1000

// reviewSome continues with the jobs that learnSpan found.
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
