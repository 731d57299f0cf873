package sched

import (
	"slices"
	"time"

	"berth/internal/job/reason"
)

// Tell gives the story of a waiting job; false if it is not queued.
func Tell(s State, job string) (reason.Story, bool) {
	story := NewPreview(s, []string{job}).Stories()[0]
	return story, story.ID != ""
}

// NewPreview copies what is needed to tell the stories of these jobs.
func NewPreview(s State, jobs []string) *Preview {
	v := preview(s, jobs)
	var plan *Plan
	for i := range v.asked {
		if v.asked[i].position == 0 {
			continue
		}
		if plan == nil {
			decided := Decide(s)
			plan = &decided
		}
		v.asked[i].explain(&s, plan)
	}
	return v
}

// Stories gives the stories of the jobs that the preview was made for; a job that
// is not queued has an empty one.
func (v *Preview) Stories() []reason.Story {
	stories := make([]reason.Story, len(v.asked))
	forecasts := v.forecasts()
	for i := range v.asked {
		a := &v.asked[i]
		if a.position == 0 {
			continue
		}
		t := a.story
		t.Behind = v.behind(a, forecasts[i].Behind)
		t.Expect(forecasts[i])
		t.Say(a.why, a.self.class.request.asked())
		stories[i] = t
	}
	return stories
}

// Gain is how much earlier the only job asked for would start if it could make room for
// others this way. 0: it takes turns already, that would not help, or it is not known.
// A job with one GPU keeps the rank of a fresh one, so it gains nothing.
func (v *Preview) Gain(p Preempt) time.Duration {
	a := &v.asked[0]
	if a.position == 0 || a.position > len(v.first) || !v.state.Rules.TakesTurns() {
		return 0
	}
	own := a.position - 1
	if !v.first[own].holdsFast() || a.none() != "" {
		return 0
	}
	other := *v
	other.first = slices.Clone(v.first)
	other.first[own].Preempt = p
	starts, _ := v.foresee(expected, []*asked{a})
	sooner, _ := other.foresee(expected, []*asked{a})
	at, then := starts[a.job].at, sooner[a.job].at
	if at.IsZero() || then.IsZero() {
		return 0
	}
	return max(0, at.Sub(then))
}

// explain fills in what is said about a job beside its start.
func (a *asked) explain(s *State, plan *Plan) {
	m := s.Queue.jobs[a.job]
	d := upTo(s, &m)
	a.why, a.borrows = d.explain(&m), d.borrows(&m)
	d = newDecision(s)
	first := &m
	if a.why.Kind == reason.WaitsBehind {
		blocker, _ := s.Queue.member(a.why.Job)
		first = &blocker
	}
	h := first.class.head(first.entry)
	a.closed = !d.fitsOn(d.withoutJobs(), &h, reservedNone)
	t := &a.story
	*t = reason.Story{
		ID: a.job, Position: a.position, Queued: s.Queue.Len(),
		User: m.class.user, Priority: m.entry.priority, Since: m.since,
		Cards: cardStories(s, &m.class.request, a.why), Victims: givesWay(s, plan, a.job), MaxBypassS: s.Rules.MaxBypass.Seconds(),
	}
	if a.kept = plan.keeps(a.job); a.kept != nil {
		t.Kept = &reason.Reservation{Cards: a.kept.Cards, At: a.kept.At, Hard: a.kept.ByLimit}
	}
	if m.class.userQueue.first == a.job {
		t.OldestSince = m.class.userQueue.since
	}
	if a.why.Kind == reason.WaitsForGPUs {
		d.running.lending = a.borrows
		t.NotParked, t.Leaves = notParked(d, &m), firstPreemptible(d, &m)
	}
}

// keeps is the job's reservation, or nil.
func (p *Plan) keeps(job string) *Reservation {
	for i := range p.Reservations {
		if p.Reservations[i].Job == job {
			return &p.Reservations[i]
		}
	}
	return nil
}

// givesWay are the running jobs that are preempted for one, by this plan or
// earlier.
func givesWay(s *State, plan *Plan, job string) []string {
	var jobs []string
	for i := range s.Allocations {
		if h := &s.Allocations[i]; h.BeingPreempted && h.PreemptedFor == job {
			jobs = append(jobs, h.Job)
		}
	}
	for _, a := range plan.Victims {
		if a.For == job {
			jobs = append(jobs, a.Job)
		}
	}
	slices.SortFunc(jobs, compareNames)
	return slices.Compact(jobs)
}

// notParked are the running jobs that would be parked for one if the host had memory
// for them.
func notParked(d *decision, m *member) (jobs []string) {
	if d.state.ParkMiB == 0 {
		return nil
	}
	h := m.class.head(m.entry)
	for _, held := range d.running.list {
		if d.running.wouldOutrank(&h, held, ordinary) && !d.running.parkingFits(held) {
			jobs = append(jobs, held.Job)
		}
	}
	slices.SortFunc(jobs, compareNames)
	return jobs
}

// firstPreemptible is the running job that can be preempted for a waiting one first, once
// it has run for long enough.
func firstPreemptible(d *decision, m *member) (first *reason.Leave) {
	h := m.class.head(m.entry)
	for _, held := range d.running.list {
		at, some := d.running.preemptibleAt(&h, held)
		if some && at.After(d.state.Now) && (first == nil || at.Before(first.At) || at.Equal(first.At) && compareNames(held.Job, first.ID) < 0) {
			first = &reason.Leave{ID: held.Job, At: at, AfterS: at.Sub(held.Started).Seconds(), Requeue: !held.parks(), Saves: held.Preempt.Saves}
		}
	}
	return first
}

// behind is the job that has to go first, if there is one: under FIFO the one that
// no job may overtake; a job whose reservation covers enough GPUs; else the job in
// front whose end this one waits for.
func (v *Preview) behind(a *asked, after string) *reason.Behind {
	id := after
	kept := keptFor(a.story.Cards)
	if kept != "" {
		id = kept
	}
	byShare := a.why.Kind == reason.WaitsForShare
	if a.why.Kind == reason.WaitsBehind || byShare {
		id = a.why.Job
	}
	at := slices.IndexFunc(v.front, func(w ahead) bool { return w.entry.job == id })
	if at < 0 || !byShare && (a.position <= 1 || id == a.job || after == id && at >= a.position-1) {
		return nil
	}
	first := &v.front[at]
	b := &reason.Behind{
		ID: id, User: first.class.user, Priority: first.entry.priority,
		First: v.goesFirst(first, &a.self), Kept: id == kept,
	}
	if a.borrows && !v.borrows(first) && b.First != reason.FirstOvertaken {
		b.First = reason.FirstShare
	}
	if b.First == reason.FirstUser {
		b.HadS, b.OwnS = v.state.Usage[b.User], v.state.Usage[a.story.User]
	}
	return b
}

// keptFor is the first job that has a reservation on one of the cards.
func keptFor(cards []reason.CardStory) string {
	for _, c := range cards {
		if c.KeptFor != "" {
			return c.KeptFor
		}
	}
	return ""
}

// goesFirst says why a job goes before another, given that it does.
func (v *Preview) goesFirst(first, then *ahead) reason.First {
	a, b, rules := &first.entry, &then.entry, &v.state.Rules
	switch {
	case first.overdue:
		return reason.FirstOvertaken
	case a.priority != b.priority:
		return reason.FirstPriority
	case a.service == classBoosted && a.service != b.service && rules.TakesTurns():
		return reason.FirstWaited
	case a.service != b.service:
		return reason.FirstService
	case rules.Fair && rules.inTurn(a.service) && first.class.user != then.class.user:
		return reason.FirstUser
	case a.policyKey < b.policyKey && rules.Policy == Shortest:
		return reason.FirstShorter
	case a.policyKey < b.policyKey && first.ranBefore < boostFirst && then.ranBefore >= boostFirst:
		return reason.FirstService
	case a.policyKey < b.policyKey:
		return reason.FirstWaited
	}
	return reason.FirstEarlier
}

// borrows reports that the job would be beyond its user's share.
func (v *Preview) borrows(w *ahead) bool {
	a, asked := newAccount(&v.state, w.class.user), w.class.request.amounts()
	return a.beyondShare(w.class, &asked)
}

// cardStories says for each card what keeps the request off it now.
func cardStories(s *State, r *Request, why reason.Reason) []reason.CardStory {
	if r.GPUs == 0 {
		return nil
	}
	m := s.machine()
	ids := splitIDs(r.IDs)
	stories := make([]reason.CardStory, 0, len(m.slots))
	byCard := map[int]int{}
	for i := range m.slots {
		c := &m.slots[i]
		story := reason.CardStory{Card: m.fact(c, r), KeptFor: keptBy(why, c.Index)}
		story.Name, story.Holders = c.Name, nil // Runs has the details
		switch story.Obstacle {
		case reason.ObstacleFree:
			story.MissingMiB = max(0, r.budgetOn(c.TotalMiB)-m.freeFor(c, r))
		case reason.ObstacleShares:
			story.MissingShare = max(0, c.shares+r.Share-1)
		}
		switch {
		case !r.allows(c.Card) || ids != nil && !slices.Contains(ids, c.Index):
			story.Obstacle = reason.ObstacleExcluded
		case story.Obstacle == "" && story.KeptFor != "":
			story.Obstacle = reason.ObstacleReserved
		}
		byCard[c.Index] = len(stories)
		stories = append(stories, story)
	}
	for i := range s.Allocations {
		h := &s.Allocations[i]
		for j, index := range h.Cards {
			if k, there := byCard[index]; there {
				stories[k].Runs = append(stories[k].Runs, h.onCard(s.Now, j))
			}
		}
	}
	for i := range stories {
		slices.SortFunc(stories[i].Runs, compareRuns)
	}
	return stories
}

// keptBy is the job that the reason says a card is reserved for.
func keptBy(why reason.Reason, index int) string {
	for _, c := range why.Cards {
		if c.GPU == index && c.Obstacle == reason.ObstacleReserved && len(c.Holders) > 0 {
			return c.Holders[0].ID
		}
	}
	return ""
}

// compareRuns orders running jobs by their start, whatever the snapshot's order.
func compareRuns(a, b reason.Run) int {
	if c := a.Since.Compare(b.Since); c != 0 {
		return c
	}
	return compareNames(a.ID, b.ID)
}

// onCard is the job on its i-th card, and its expected end.
func (h *Allocation) onCard(now time.Time, i int) reason.Run {
	left := h.left(now)
	o := reason.Run{
		Holder: reason.Holder{ID: h.Job, Other: h.Other}, User: h.User, Since: h.Started,
		BudgetMiB: h.budget(i), Share: h.share(), Alone: h.Alone, By: reason.ByNothing,
		Low: now.Add(left.Low),
	}
	if h.BeingPreempted {
		o.LeavesFor = h.PreemptedFor
	}
	var b reason.Basis
	if countRun(&b, h.Run, h.Limit, left) {
		o.High = now.Add(left.High)
		switch o.By = reason.ByHistory; {
		case b.Limit > 0:
			o.By = reason.ByLimit
		case b.Guessed > 0:
			o.By = reason.ByGuess
		}
	}
	if o.By != reason.ByNothing || h.ran(now) > 0 {
		o.Mid = now.Add(left.Mid)
	}
	return o
}
