package sched

import (
	"slices"
	"time"

	"berth/internal/job/reason"
)

// Tell gives the story of a waiting job; false if it is not queued.
func Tell(s State, job string) (reason.Story, bool) {
	stories := Stories(s, []string{job})
	return stories[0], stories[0].ID != ""
}

// Stories is Tell for several jobs at once; a job that is not queued has an empty
// one.
func Stories(s State, jobs []string) []reason.Story {
	stories := make([]reason.Story, len(jobs))
	var plan *Plan
	for i, job := range jobs {
		if _, queued := s.Queue.member(job); !queued {
			continue
		}
		if plan == nil {
			decided := Decide(s)
			plan = &decided
		}
		stories[i] = tellOne(&s, plan, job)
	}
	return stories
}

func tellOne(s *State, plan *Plan, job string) reason.Story {
	m := s.Queue.jobs[job]
	why := Explain(*s, job)
	front, position := inFront(s, job)
	f := expect(s, job, why, plan, front, position)
	t := reason.Story{
		ID: job, Position: position, Queued: s.Queue.Len(),
		User: m.class.user, Priority: m.entry.priority, Since: m.since,
		Cards: cardStories(s, &m.class.request, why), Victims: givesWay(s, plan, job), MaxBypassS: s.Rules.MaxBypass.Seconds(),
	}
	if kept := plan.keeps(job); kept != nil {
		t.Kept = &reason.Reservation{Cards: kept.Cards, At: kept.At, Hard: kept.ByLimit}
	}
	if m.class.userQueue.first == job {
		t.OldestSince = m.class.userQueue.since
	}
	if why.Kind == reason.WaitsForGPUs {
		t.NotParked, t.Leaves = notParked(s, &m), firstPreemptible(s, &m)
	}
	t.Behind = behind(s, &t, why, f)
	t.Expect(f)
	t.Say(why, m.class.request.asked())
	return t
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
func notParked(s *State, m *member) (jobs []string) {
	if s.ParkMiB == 0 {
		return nil
	}
	d, h := newDecision(s), m.class.head(m.entry)
	for _, held := range d.running {
		if d.wouldOutrank(&h, held, ordinary) && !d.parkingFits(held) {
			jobs = append(jobs, held.Job)
		}
	}
	slices.SortFunc(jobs, compareNames)
	return jobs
}

// firstToLeave is the running job that can be preempted for a waiting one first, once
// it has run for long enough.
func firstPreemptible(s *State, m *member) (first *reason.Leave) {
	h := m.class.head(m.entry)
	for i := range s.Allocations {
		held := &s.Allocations[i]
		at, some := s.preemptibleAt(&h, held)
		if some && at.After(s.Now) && (first == nil || at.Before(first.At) || at.Equal(first.At) && compareNames(held.Job, first.ID) < 0) {
			first = &reason.Leave{ID: held.Job, At: at, AfterS: at.Sub(held.Started).Seconds(), Requeue: !held.parks()}
		}
	}
	return first
}

// behind is the job that has to go first, if there is one: under FIFO the one that
// no job may overtake; a job whose reservation covers enough GPUs; else the job in
// front whose end this one waits for.
func behind(s *State, t *reason.Story, why reason.Reason, f reason.Forecast) *reason.Behind {
	id := f.Behind
	kept := keptFor(t.Cards)
	if kept != "" {
		id = kept
	}
	if why.Kind == reason.WaitsBehind {
		id = why.Job
	}
	first, queued := s.Queue.member(id)
	if !queued || t.Position <= 1 || id == t.ID {
		return nil
	}
	self := s.Queue.jobs[t.ID]
	b := &reason.Behind{
		ID: id, User: first.class.user, Priority: first.entry.priority,
		First: goesFirst(s, &first, &self), Kept: id == kept,
	}
	if b.First == reason.FirstUser {
		b.HadS, b.OwnS = s.Usage[b.User], s.Usage[t.User]
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
func goesFirst(s *State, first, then *member) reason.First {
	a, b := &first.entry, &then.entry
	line := first.class.userQueue
	bound := s.Rules.MaxBypass
	switch {
	case bound > 0 && line.first == a.job && s.Now.Sub(line.since) >= bound:
		return reason.FirstOvertaken
	case a.priority != b.priority:
		return reason.FirstPriority
	case a.service == classBoosted && a.service != b.service && s.Rules.slices():
		return reason.FirstWaited
	case a.service != b.service:
		return reason.FirstService
	case s.Rules.Fair && s.Rules.inTurn(a.service) && line != then.class.userQueue:
		return reason.FirstUser
	case a.policyKey < b.policyKey && s.Rules.Policy == Shortest:
		return reason.FirstShorter
	case a.policyKey < b.policyKey && first.early() && !then.early():
		return reason.FirstService
	case a.policyKey < b.policyKey:
		return reason.FirstWaited
	}
	return reason.FirstEarlier
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
