package waiting

import (
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
	"berth/internal/sched/predict"
)

// expectations is what earlier jobs tell about queued ones, and which queued
// jobs to estimate again when more is known.
type expectations struct {
	book   *predict.Book
	hosts  *predict.Book              // of jobs without a card, which say nothing about others
	Alike  map[string]map[string]bool // queued jobs by kind
	Learnt map[string]int             // how many of a kind have ended since one was queued
	Autos  map[string]map[string]bool // queued jobs with vram=auto whose own command was not measured, by kind
	Review []string                   // queued jobs to estimate again
	fresh  map[string]bool            // kinds about which more is known than when running jobs were estimated
}

func newExpectations() *expectations {
	return &expectations{
		book: predict.NewBook(), hosts: predict.NewBook(), Alike: map[string]map[string]bool{}, Learnt: map[string]int{}, Autos: map[string]map[string]bool{}, fresh: map[string]bool{},
	}
}

// BookOf has the runs that tell about a job with this many cards.
func (x *expectations) BookOf(cards int) *predict.Book {
	if cards == 0 {
		return x.hosts
	}
	return x.book
}

func (x *expectations) enter(id, kind string) {
	if kind != "" {
		x.Alike[kind] = with(x.Alike[kind], id)
	}
}

func (x *expectations) leave(id, kind string) {
	without(x.Autos, kind, id)
	if without(x.Alike, kind, id) {
		delete(x.Learnt, kind)
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
func without[K comparable](sets map[K]map[string]bool, name K, id string) (last bool) {
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

// KindOf groups jobs with similar commands.
func KindOf(j *job.Job) string { return predict.Normalise(commandOf(j)) }

// past is what an ended job tells about others. A job that failed or was stopped
// says neither how long such jobs run nor how much they use.
func past(j *job.Job) (predict.Past, bool) {
	if j.Outcome != job.OK || j.TextGone || j.Spec.Adopt != nil || j.StartedAt.IsZero() || j.EndedAt.Before(j.StartedAt) {
		return predict.Past{}, false
	}
	_, peak := job.Highest(j.PeakMiB)
	return predict.Past{
		User: j.User, Command: commandOf(j), GPUs: j.Spec.GPUs,
		Ran: j.Worked(j.EndedAt) + j.Checkpoints.Ran - j.Checkpoints.Lost, PeakMiB: peak, OK: true,
	}, true
}

// MaxPast bounds the ended jobs an engine learns from when it starts. Older jobs
// count less and less, and the start should be quick.
const MaxPast = 4096

// Recall learns from the newest ended jobs, oldest first.
func (l *Line) Recall(newest func(most int) ([]*job.Job, error)) {
	over, err := newest(MaxPast)
	if err != nil {
		l.log.Warn("cannot read earlier jobs; estimates are worse without them", "err", err)
	}
	for _, j := range over {
		if p, ok := past(j); ok {
			l.Expect.BookOf(p.GPUs).Add(p)
			l.Vouch(j, KindOf(j), p.Ran)
		}
	}
}

// Ask describes a job for an estimate.
func (l *Line) Ask(j *job.Job) predict.Ask {
	return predict.Ask{
		User: j.User, Command: commandOf(j), Key: l.InLine[j.ID].kind, GPUs: j.Spec.GPUs,
		Limit: LongestRun(&j.Spec), Grace: l.cfg.Bounded(j.Spec.Grace),
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

// Span is a job's estimated duration. For a job without a card only runs of the
// same command count: the others of its user may do anything.
func (l *Line) Span(j *job.Job) sched.Estimate {
	g := l.Expect.BookOf(j.Spec.GPUs).Duration(l.Ask(j))
	if j.Spec.GPUs == 0 && g.Source != predict.FromCommand {
		return sched.Estimate{}
	}
	return sched.Estimate{Low: g.Low, Mid: g.Mid, High: g.High, Guess: g.Guess()}.Plus(j.Checkpoints.Lost)
}

// resolveAuto sets the declaration of a vram=auto job from what the same command
// used before, or from commands that differ only in numbers and paths. Without
// an estimate it stays undeclared, so that its first attempt has a card to
// itself and can be measured. A job that has run keeps its declaration: it may
// have been raised.
func (l *Line) resolveAuto(now time.Time, j *job.Job, kind string) {
	if !j.Spec.VRAMAuto || j.VRAMMiB > 0 && j.Attempt.Number > 0 {
		return
	}
	memory := l.Memory(j)
	if memory.Source != predict.FromCommand {
		l.Expect.Autos[kind] = with(l.Expect.Autos[kind], j.ID)
	}
	l.declare(now, j, memory.HighMiB)
}

// declare changes what a vram=auto job declares, to what its peak suggests.
func (l *Line) declare(now time.Time, j *job.Job, peakMiB int64) {
	if mib := l.AutoMiB(now, j, peakMiB); mib != j.VRAMMiB {
		j.VRAMMiB = mib
		l.Changes.Fact(j)
	}
}

// Memory is the estimated memory of a job: what the same command with the same
// arguments used, as far back as the store knows, else what the program used
// with other arguments.
func (l *Line) Memory(j *job.Job) predict.Memory {
	memory, _ := l.Expect.book.VRAM(l.Ask(j))
	peak, runs, err := l.Changes.Store.PeakFor(j.User, commandOf(j))
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

// AutoMiB is what a vram=auto job declares after its command was measured: a
// little more, but at most what its cards can hold. A job that ran once is not
// refused because of the margin. Without a measurement it declares nothing.
func (l *Line) AutoMiB(now time.Time, j *job.Job, peakMiB int64) int64 {
	if peakMiB <= 0 {
		return 0
	}
	declared := sched.Budget(0, peakMiB, l.rules.SpikeBuffer)
	if j.Spec.To == job.ToSlurm {
		return declared // its cards are not those of this machine
	}
	if most := l.Room.CapMiB(now, sched.NewRequest(j.Spec, declared, l.rules)); most > 0 {
		return min(declared, most)
	}
	return declared
}

// learn records how a job ended.
func (l *Line) learn(now time.Time, ended *job.Job) {
	p, ok := past(ended)
	if !ok {
		return
	}
	p.Key = predict.Normalise(p.Command)
	l.Expect.BookOf(p.GPUs).Add(p)
	l.Expect.fresh[p.Key] = true
	l.Vouch(ended, p.Key, p.Ran)
	l.learnPeak(now, p)
	l.learnSpan(p.Key)
}

// Relearn calls f for each kind of job about which more is known since the last
// call, so that running jobs of that kind can be estimated again.
func (x *expectations) Relearn(f func(kind string)) {
	for kind := range x.fresh {
		f(kind)
	}
	clear(x.fresh)
}

// learnPeak sets the declaration of vram=auto jobs whose own command was measured
// for the first time, and of those that had no estimate at all.
func (l *Line) learnPeak(now time.Time, p predict.Past) {
	if p.PeakMiB == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.Expect.Autos[p.Key])) {
		j := l.Roster.Get(id)
		same := j.User == p.User && commandOf(j) == p.Command
		if !same && j.VRAMMiB > 0 {
			continue
		}
		peak := p.PeakMiB // the store learns of it later in this round
		if !same {
			memory, _ := l.Expect.book.VRAM(l.Ask(j))
			peak = memory.HighMiB
		}
		if peak > 0 {
			l.declare(now, j, peak)
			l.Queue.Add(l.pending(j))
			l.Moved = true
		}
		if same {
			without(l.Expect.Autos, p.Key, id)
		}
	}
}

// learnSpan schedules new estimates for similar jobs. There may be many, and
// each further end says less, so that happens after the first, second, fourth
// end and so on.
func (l *Line) learnSpan(kind string) {
	x := l.Expect
	if len(x.Alike[kind]) == 0 {
		return
	}
	x.Learnt[kind]++
	if n := x.Learnt[kind]; n&(n-1) == 0 {
		l.reviewKind(kind)
	}
}

// reviewKind schedules new estimates for the queued jobs of a kind, unless more
// than all jobs are scheduled already.
func (l *Line) reviewKind(kind string) {
	x := l.Expect
	if len(x.Review) > len(l.InLine) {
		return
	}
	x.Review = slices.AppendSeq(x.Review, maps.Keys(x.Alike[kind]))
	l.ReviewSome()
}

// ReviewAtOnce bounds the estimates of one round, so that requests get a turn.
const ReviewAtOnce = 1000

// ReviewSome continues with the jobs that learnSpan found.
func (l *Line) ReviewSome() {
	x := l.Expect
	n := min(len(x.Review), ReviewAtOnce)
	if n == 0 {
		return
	}
	look := l.Roster.Looking()
	for _, id := range x.Review[:n] {
		if _, in := l.InLine[id]; in {
			l.Queue.Add(l.pending(look(id)))
		}
	}
	if x.Review = x.Review[n:]; len(x.Review) == 0 {
		x.Review, l.Moved = nil, true
	}
}
