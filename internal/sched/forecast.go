package sched

import (
	"slices"
	"time"

	"berth/internal/job/reason"
)

// frontBound is how many jobs in front are looked at. It bounds the cost of an
// answer, which is vague that far ahead anyway.
const frontBound = 16_384

// Preview is a copy of what says when waiting jobs start: the first jobs of a queue
// and all that is in front of the jobs asked for. It shares nothing with the State
// that changes, so that a forecast holds up no decision.
type Preview struct {
	state   State     // without its queue
	first   []Pending // the first of the queue, in order
	oldest  map[string]oldest
	front   []ahead // the queue in order, up to the last job asked for
	asked   []asked
	scale   Scale
	typical time.Duration // assumed for a job without an estimate; 0: no job has one
	basis   reason.Basis  // of the running jobs
}

// ahead is a waiting job as those behind it see it.
type ahead struct {
	entry     entry
	class     *class // only what never changes
	run, left Estimate
	ranBefore time.Duration
	overdue   bool
	asked     bool // its start is asked for
}

// asked is a job whose start is asked for.
type asked struct {
	job      string
	why      reason.Reason
	story    reason.Story
	self     ahead
	position int  // 0: it is not queued
	closed   bool // it does not fit, whatever ends
	borrows  bool // it would be beyond its user's share
	kept     *Reservation
}

// preview copies what is needed to say when these jobs start, or all if there are
// none.
func preview(s State, jobs []string) *Preview {
	v := &Preview{state: s.copied(), oldest: map[string]oldest{}, scale: s.Host.Scale(len(s.Cards)), asked: make([]asked, len(jobs))}
	if s.Queue == nil {
		return v
	}
	var wanted map[string]*asked
	if jobs != nil {
		wanted = make(map[string]*asked, len(jobs))
	}
	for i, job := range jobs {
		if v.asked[i].job = job; s.Queue.Has(job) {
			wanted[job] = &v.asked[i]
		}
	}
	v.collect(&s, wanted)
	for i := range s.Allocations {
		h := &s.Allocations[i]
		v.basis.Running++
		countRun(&v.basis, h.Run, h.Limit, h.left(s.Now))
	}
	v.typical = v.usual()
	return v
}

// collect goes through the queue in order until it has seen every job wanted.
func (v *Preview) collect(s *State, wanted map[string]*asked) {
	position, missing := 0, len(wanted)
	v.front = make([]ahead, 0, min(s.Queue.Len(), maxStepped))
	overdue := map[string]bool{}
	for _, late := range s.Queue.overdue(s) {
		overdue[late.entry.job] = true
	}
	inTurn(s, func(h *head) bool {
		if wanted != nil && missing == 0 && position >= maxStepped {
			return false
		}
		m := s.Queue.jobs[h.job]
		if len(v.first) < maxStepped {
			v.first = append(v.first, m.pending())
		}
		a := wanted[h.job]
		own := ahead{
			entry: m.entry, class: m.class, run: m.run, left: knownLeft(m.run, m.class.term.limit, m.served),
			ranBefore: m.served, overdue: overdue[h.job], asked: wanted == nil || a != nil,
		}
		if position++; len(v.front) < frontBound {
			if len(v.front) == cap(v.front) { // append would copy a long queue a dozen times
				v.front = slices.Grow(v.front, min(s.Queue.Len(), frontBound)-len(v.front))
			}
			v.front = append(v.front, own)
		}
		if a != nil {
			a.position, a.self = position, own
			missing--
		}
		return true
	})
	if wanted != nil {
		v.trim()
	}
	for _, p := range v.first {
		if l := s.Queue.byUser[p.User]; l.first != "" {
			v.oldest[p.User] = oldest{Job: l.first, Since: l.since}
		}
	}
}

// trim leaves as many jobs to step as may overtake the last of those asked for; none
// where all of these are beyond the bound.
func (v *Preview) trim() {
	last := 0
	for i := range v.asked {
		if at := v.asked[i].position; at <= maxStepped {
			last = max(last, at)
		}
	}
	if last == 0 {
		v.first = nil
	} else {
		v.first = v.first[:min(len(v.first), overtakers*last+overtakersLeast)]
	}
}

// queue is the first jobs of the queue.
func (v *Preview) queue() *Queue {
	q := NewQueue()
	q.SetRules(v.state.Rules)
	for _, p := range v.first {
		q.Add(p)
	}
	q.restoreOldest(v.oldest)
	q.Tick(v.state.Now)
	return q
}

// usual is the median duration of the jobs that are known.
func (v *Preview) usual() time.Duration {
	known := make([]time.Duration, 0, len(v.state.Allocations)+len(v.front))
	for i := range v.state.Allocations {
		h := &v.state.Allocations[i]
		if left := v.left(h); left.Mid > 0 {
			known = append(known, h.ran(v.state.Now)+left.Mid)
		}
	}
	for i := range v.front {
		if left := v.front[i].left; left.Mid > 0 {
			known = append(known, left.Mid)
		}
	}
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	return known[len(known)/2]
}

// left is how much longer a running job is expected to run; Mid is 0 if not even its
// start is known.
func (v *Preview) left(h *Allocation) Estimate {
	left := h.left(v.state.Now)
	if h.Started.IsZero() && left.High <= 0 {
		left.Mid = 0
	}
	return left
}

// length is how long a job with this estimate lasts.
func (v *Preview) length(left Estimate, b bound) time.Duration {
	d := left.Mid
	switch b {
	case shortest:
		return max(0, left.Low)
	case expected:
		if d <= 0 {
			d = v.typical
		}
	case longest:
		d = left.High
	}
	if d <= 0 {
		return forEver
	}
	return d
}

// forecasts says when each of the jobs asked for is expected to start. Decide is
// stepped forward with the usual, the shortest and the longest durations.
func (v *Preview) forecasts() []reason.Forecast {
	forecasts := make([]reason.Forecast, len(v.asked))
	var open []*asked
	for i := range v.asked {
		a, f := &v.asked[i], &forecasts[i]
		f.Now, f.None = v.state.Now, a.none()
		switch {
		case f.None != "":
		case a.why.Kind == reason.StartsNow || a.why.Kind == reason.WaitsForTurn:
			f.Low, f.Mid, f.High = f.Now, f.Now, f.Now
		default:
			open = append(open, a)
		}
	}
	if len(open) == 0 {
		return forecasts
	}
	mid, vague := v.foresee(expected, open)
	low, high := mid, mid
	if vague {
		low, _ = v.foresee(shortest, open)
		high, _ = v.foresee(longest, open)
	}
	for i := range v.asked {
		if a := &v.asked[i]; slices.Contains(open, a) {
			v.fill(&forecasts[i], a, low[a.job], mid[a.job], high[a.job])
		}
	}
	return forecasts
}

// fill fills in a forecast from the starts with the three durations. Shorter
// durations may by chance give a later start.
func (v *Preview) fill(f *reason.Forecast, a *asked, low, mid, high start) {
	f.Basis, f.Behind, f.Beyond = v.basisOf(a), mid.after, a.position > len(v.front)+1
	for _, at := range []time.Time{low.at, mid.at, high.at} {
		if !at.IsZero() && (f.Low.IsZero() || at.Before(f.Low)) {
			f.Low = at
		}
	}
	if f.Low.IsZero() {
		f.Low = f.Now
	}
	if f.Beyond {
		return
	}
	if f.Mid = mid.at; !mid.at.IsZero() && !high.at.IsZero() {
		f.High = latest(mid.at, high.at)
	}
	if !f.High.IsZero() && !f.High.After(f.Now) {
		f.Mid, f.High = time.Time{}, time.Time{} // the obstacle, such as a card's load, has no known end
	}
	if a.kept != nil && (f.Mid.IsZero() || a.kept.At.Before(f.Mid)) && f.High.IsZero() {
		f.Mid = latest(a.kept.At, f.Low)
	}
}

// basisOf counts the running jobs and those in front by what is known of them.
func (v *Preview) basisOf(a *asked) reason.Basis {
	b := v.basis
	for i := range v.front[:min(a.position-1, len(v.front))] {
		w := &v.front[i]
		b.InFront++
		countRun(&b, w.run, w.class.term.limit, w.left)
	}
	return b
}

// foresee is when these jobs start if all jobs last as long as the bound says, and
// whether another bound may say something else.
func (v *Preview) foresee(b bound, open []*asked) (starts map[string]start, vague bool) {
	var near []string
	last := 0
	for _, a := range open {
		if last = max(last, a.position); a.position <= len(v.first) {
			near = append(near, a.job)
		}
	}
	p := v.steps(b)
	if len(near) > 0 {
		p.run(near)
	}
	if last > len(v.first) || !p.done {
		front := v.front[:min(last, len(v.front))]
		for _, a := range open {
			if a.position > len(v.front) {
				front = append(slices.Clip(front), a.self)
			}
		}
		v.placeRest(p, front)
	}
	return p.starts, p.vague
}

// placeRest estimates when the jobs start that have not started by then: they are
// placed in order on a number of GPUs, in gaps too. Only the starts that are asked
// for are kept.
func (v *Preview) placeRest(p *steps, front []ahead) {
	s := &p.state
	var largest int64
	all := 0.0
	for i := range s.Cards {
		if c := (slot{Card: &s.Cards[i]}); c.shut() == "" {
			all++
			largest = max(largest, c.TotalMiB)
		}
	}
	passed := s.Now.Sub(v.state.Now)
	p.vague = true
	line := timeline{{at: passed, free: all}}
	for i := range s.Allocations {
		h, until := &s.Allocations[i], forEver
		if at := p.runs[i].end; !at.IsZero() {
			until = at.Sub(v.state.Now)
		}
		line.use(passed, until, h.parts(largest), h.Job)
	}
	for i := range front {
		w := &front[i]
		if _, started := p.starts[w.entry.job]; started || s.Groups[w.class.groupName()].PausedBy != "" {
			continue
		}
		at, after, ok := line.take(w.class.request.parts(largest, s.Rules.MarginMiB), passed, v.length(w.left, p.bound), w.entry.job)
		if ok && w.asked {
			p.starts[w.entry.job] = start{v.state.Now.Add(at), after}
		}
		if ok && s.Rules.Policy == FIFO {
			passed = at
		}
	}
}

// parts is how many GPUs the request takes, fractions included.
func (r *Request) parts(cardMiB, marginMiB int64) float64 {
	part := 1.0
	if !r.undeclared() && !r.Exclusive {
		part = min(1, max(r.Share, float64(r.VRAMMiB+marginMiB)/float64(max(1, cardMiB))))
	}
	return part * float64(r.GPUs)
}

// parts is how many GPUs the job has, fractions included.
func (h *Allocation) parts(cardMiB int64) (parts float64) {
	for i := range h.Cards {
		part := max(h.share(), float64(h.budget(i))/float64(max(1, cardMiB)))
		if h.Alone || h.Exclusive {
			part = 1
		}
		parts += min(1, part)
	}
	return parts
}

// Ends visits the jobs that are expected to end, running ones and waiting ones, as
// far as their duration is known from earlier runs, at the cost of one story.
func Ends(s State, visit func(job string, at time.Time)) {
	learnt := func(run Estimate, limit time.Duration, left Estimate) bool {
		var b reason.Basis
		return countRun(&b, run, limit, left) && b.Limit == 0
	}
	for i := range s.Allocations {
		h := &s.Allocations[i]
		if left := h.left(s.Now); !h.Other && !h.BeingPreempted && learnt(h.Run, h.Limit, left) {
			visit(h.Job, s.Now.Add(left.Mid))
		}
	}
	if s.Queue == nil || s.Queue.Len() == 0 {
		return
	}
	v := preview(s, nil)
	starts := v.foreseeAll()
	for i := range v.front {
		a := &v.front[i]
		start, some := starts[a.entry.job]
		// One that could start now, and does not, waits for something without a known end.
		if some && start.at.After(s.Now) && learnt(a.run, a.class.term.limit, a.left) {
			visit(a.entry.job, start.at.Add(v.length(a.left, expected)))
		}
	}
}

// foreseeAll is when the jobs in front start, with the usual durations. Fewer of
// them are stepped, because it is asked for again and again.
func (v *Preview) foreseeAll() map[string]start {
	v.first = v.first[:min(len(v.first), maxStepped/4)]
	p := v.steps(expected)
	p.starts = make(map[string]start, len(v.front))
	jobs := make([]string, len(v.first))
	for i := range v.first {
		jobs[i] = v.first[i].Job
	}
	if p.run(jobs); !p.done || len(v.front) > len(v.first) {
		v.placeRest(p, v.front)
	}
	return p.starts
}

// noneOf is why a job with this reason has no expected start.
func noneOf(why reason.Reason) reason.NoForecast {
	switch {
	case why.Kind.Infeasible():
		return reason.NoneInfeasible
	case why.Kind == reason.WaitsForLimit:
		return reason.NoneLimit
	case why.Kind == reason.WaitsForArray:
		return reason.NoneArray
	case why.Kind == reason.WaitsForGroup:
		return reason.NoneGroup
	case why.Kind == reason.WaitsForResume:
		return reason.NonePaused
	case why.Kind == reason.WaitsForReadings:
		return reason.NoneUnreadable
	case why.Kind == reason.NotQueued:
		return reason.NoneNotQueued
	case why.Kind == reason.WaitsBehind: // no job overtakes that one, whenever it starts
		return noneOf(*why.Because)
	}
	return ""
}

// none is why the job has no expected start.
func (a *asked) none() reason.NoForecast {
	switch none := noneOf(a.why); {
	case a.position == 0:
		return reason.NoneNotQueued
	case none == "" && a.closed:
		return reason.NoneClosed
	default:
		return none
	}
}

// countRun counts a job by what is known about its duration, and reports whether
// anything is.
func countRun(b *reason.Basis, run Estimate, limit time.Duration, left Estimate) bool {
	switch {
	case left.High <= 0 && limit <= 0:
		b.Unknown++
		return false
	case limit > 0 && (run == Estimate{} || run.Low == 0 && run.High >= limit):
		b.Limit++
	case run.Guess:
		b.Guessed++
	default:
		b.History++
	}
	return true
}

// ran is how long the job has run, earlier service included.
func (h *Allocation) ran(now time.Time) time.Duration {
	if h.Started.IsZero() {
		return h.RanBefore
	}
	return h.service(now)
}

// left is how much longer the job is expected to run. A job that is being preempted
// is gone when it said it would be.
func (h *Allocation) left(now time.Time) Estimate {
	if h.BeingPreempted && !h.FreeBy.IsZero() {
		rest := max(0, h.FreeBy.Sub(now))
		return Estimate{Low: rest, Mid: rest, High: max(rest, time.Second)}
	}
	limit := h.Limit
	if limit > 0 {
		limit += h.RanBefore // the limit is for this attempt only
	}
	return h.Run.Left(h.ran(now), limit)
}

// knownLeft is how long a waiting job runs once it starts; Mid is 0 if nothing is
// known of it.
func knownLeft(run Estimate, limit, ranBefore time.Duration) Estimate {
	all := limit
	if limit > 0 {
		all += ranBefore
	}
	left := run.Left(ranBefore, all)
	if left.High <= 0 && limit <= 0 {
		left.Mid = 0
	}
	return left
}
