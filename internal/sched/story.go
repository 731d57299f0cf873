package sched

import (
	"slices"
	"strings"
	"time"
)

// Story is all there is to say of why a queued job waits, and for how long.
type Story struct {
	Job      string    `json:"job"`
	User     string    `json:"user,omitempty"`
	Priority int       `json:"priority,omitempty"`
	Request  Request   `json:"request"`
	Since    time.Time `json:"since,omitzero"` // since when it waits; zero: not known
	Position int       `json:"position"`       // in the order in which jobs are considered, from 1
	Queued   int       `json:"queued"`

	Why    Reason       `json:"why"`
	Cards  []CardStory  `json:"cards,omitempty"`  // every card of the machine, as it stands now
	Behind *Behind      `json:"behind,omitempty"` // the job that has to go first; nil: none
	Kept   *Reservation `json:"kept,omitempty"`   // the cards that are kept for it

	// MaxBypass is how long the oldest waiting job of a user is passed at most; 0:
	// there is no bound. Oldest is since when it has been its user's; zero: it is
	// not.
	MaxBypass time.Duration `json:"max_bypass_ns,omitempty"`
	Oldest    time.Time     `json:"oldest,omitzero"`
	Aside     []string      `json:"aside,omitempty"` // the running jobs that give way to it
	Forecast  Forecast      `json:"forecast"`
}

// CardStory is what stands between the job and one card.
type CardStory struct {
	CardFact
	Excluded     bool     `json:"excluded,omitempty"`      // its type, its ids or its list leave this card out
	MissingMiB   int64    `json:"missing_mib,omitempty"`   // what would have to be free besides
	MissingShare float64  `json:"missing_share,omitempty"` // the same, of a share
	Runs         []Holder `json:"runs,omitempty"`
	KeptFor      string   `json:"kept_for,omitempty"` // the waiting job that the card is kept for; empty: none
}

// Holder is a run on a card.
type Holder struct {
	Job       string    `json:"job"`
	User      string    `json:"user,omitempty"`
	Other     bool      `json:"other,omitempty"` // another berth's
	Since     time.Time `json:"since,omitzero"`
	BudgetMiB int64     `json:"budget_mib,omitempty"` // 0: it has the card alone, or a share
	Share     float64   `json:"share,omitempty"`
	Alone     bool      `json:"alone,omitempty"`
	LeavesFor string    `json:"leaves_for,omitempty"` // it is being set aside, for this job

	// When it is expected to end: at the earliest, as a rule, at the latest. Mid
	// and High are zero where nothing says.
	Low  time.Time `json:"low"`
	Mid  time.Time `json:"mid,omitzero"`
	High time.Time `json:"high,omitzero"`
	By   Source    `json:"by"`
}

// Source is what the expected end of a run rests on.
type Source string

// The sources.
const (
	ByLimit   Source = "limit"
	ByHistory Source = "history"
	ByNothing Source = "none"
)

// Behind is the job that has to go first.
type Behind struct {
	Job      string `json:"job"`
	User     string `json:"user,omitempty"`
	Priority int    `json:"priority,omitempty"`
	First    First  `json:"first"`          // why it goes first
	Kept     bool   `json:"kept,omitempty"` // cards are kept for it that would do
	// HadSeconds is what its user had lately, and OwnSeconds the job's own user,
	// where that decides.
	HadSeconds float64 `json:"had_s,omitempty"`
	OwnSeconds float64 `json:"own_s,omitempty"`
}

// First is why one job goes before another.
type First string

// Why.
const (
	FirstPassed   First = "passed"   // it was passed for as long as a job may be
	FirstWaited   First = "waited"   // it was set aside, and has waited for long
	FirstPriority First = "priority" // its priority is higher
	FirstService  First = "service"  // it had less of the cards so far
	FirstUser     First = "user"     // its user had less of the cards lately
	FirstShorter  First = "shorter"  // it is expected to need the cards less
	FirstEarlier  First = "earlier"  // it was submitted earlier
)

// Tell tells the story of a queued job; false where it is not queued.
func Tell(s State, job string) (Story, bool) {
	stories := Stories(s, []string{job})
	return stories[0], stories[0].Job != ""
}

// Stories is Tell for several jobs at once; that of a job that is not queued is
// empty.
func Stories(s State, jobs []string) []Story {
	stories := make([]Story, len(jobs))
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

func tellOne(s *State, plan *Plan, job string) Story {
	m := s.Queue.jobs[job]
	why := Explain(*s, job)
	t := Story{
		Job: job, User: m.group.user, Priority: m.entry.priority, Request: m.group.request, Since: m.since,
		Queued: s.Queue.Len(), Why: why, MaxBypass: s.Rules.MaxBypass,
		Kept: plan.keeps(job), Aside: givesWay(s, plan, job),
	}
	var front []*ahead
	front, t.Position = inFront(s, job)
	t.Forecast = expect(s, job, why, plan, front, t.Position)
	if m.group.line.first == job {
		t.Oldest = m.group.line.since
	}
	t.Cards = cardStories(s, &t.Request, why)
	t.Behind = behind(s, &t)
	return t
}

// givesWay are the running jobs that are set aside for one, now or already.
func givesWay(s *State, plan *Plan, job string) []string {
	var jobs []string
	for i := range s.Held {
		if h := &s.Held[i]; h.Leaving && h.LeavesFor == job {
			jobs = append(jobs, h.Job)
		}
	}
	for _, a := range plan.SetAside {
		if a.For == job {
			jobs = append(jobs, a.Job)
		}
	}
	slices.SortFunc(jobs, compareNames)
	return slices.Compact(jobs)
}

// behind is the job that has to go first, if there is one: under FIFO the one
// that nothing may pass; one for whom cards are kept that would do; else the one
// in front whose run this one waits for.
func behind(s *State, t *Story) *Behind {
	id := t.Forecast.behind
	kept := keptFor(t.Cards)
	if kept != "" {
		id = kept
	}
	if t.Why.Kind == WaitsBehind {
		id = t.Why.Job
	}
	first, queued := s.Queue.member(id)
	if !queued || t.Position <= 1 || id == t.Job {
		return nil
	}
	self := s.Queue.jobs[t.Job]
	b := &Behind{
		Job: id, User: first.group.user, Priority: first.entry.priority,
		First: goesFirst(s, &first, &self), Kept: id == kept,
	}
	if b.First == FirstUser {
		b.HadSeconds, b.OwnSeconds = s.Usage[b.User], s.Usage[t.User]
	}
	return b
}

// keptFor is the first job for whom a card is kept.
func keptFor(cards []CardStory) string {
	for _, c := range cards {
		if c.KeptFor != "" {
			return c.KeptFor
		}
	}
	return ""
}

// goesFirst says why a job goes before another that it is known to go before.
func goesFirst(s *State, first, then *member) First {
	a, b := &first.entry, &then.entry
	line := first.group.line
	bound := s.Rules.MaxBypass
	switch {
	case bound > 0 && line.first == a.job && s.Now.Sub(line.since) >= bound:
		return FirstPassed
	case a.priority != b.priority:
		return FirstPriority
	case a.class == classBoosted && a.class != b.class && s.Rules.slices():
		return FirstWaited
	case a.class != b.class:
		return FirstService
	case s.Rules.Fair && s.Rules.inTurn(a.class) && line != then.group.line:
		return FirstUser
	case a.size < b.size && s.Rules.Policy == Shortest:
		return FirstShorter
	case a.size < b.size && first.early() && !then.early():
		return FirstService
	case a.size < b.size:
		return FirstWaited
	}
	return FirstEarlier
}

// cardStories says of each card what keeps the request off it now.
func cardStories(s *State, r *Request, why Reason) []CardStory {
	if r.GPUs == 0 {
		return nil
	}
	b := newBoard(s)
	ids := splitIDs(r.IDs)
	stories := make([]CardStory, 0, len(b.slots))
	byCard := map[int]int{}
	for _, c := range b.slots {
		story := CardStory{CardFact: b.fact(c, r)}
		story.Name = c.Name
		story.Excluded = !r.allows(c.Card) || ids != nil && !slices.Contains(ids, c.Index)
		switch story.Obstacle {
		case ObstacleFree:
			story.MissingMiB = max(0, r.budgetOn(c.TotalMiB)-b.freeFor(c, r))
		case ObstacleShares:
			story.MissingShare = max(0, c.shares+r.Share-1)
		}
		story.KeptFor = keptBy(why, c.Index)
		byCard[c.Index] = len(stories)
		stories = append(stories, story)
	}
	for i := range s.Held {
		h := &s.Held[i]
		for j, index := range h.Cards {
			if k, there := byCard[index]; there {
				stories[k].Runs = append(stories[k].Runs, h.holder(s.Now, j))
			}
		}
	}
	for i := range stories {
		slices.SortFunc(stories[i].Runs, compareHolders)
	}
	return stories
}

// keptBy is for whom the reason says that a card is kept.
func keptBy(why Reason, index int) string {
	for _, c := range why.Cards {
		if c.GPU == index && c.Obstacle == ObstacleKept && len(c.Holders) > 0 {
			return strings.TrimPrefix(c.Holders[0], "job ")
		}
	}
	return ""
}

// compareHolders orders runs by their beginning, whatever the snapshot's order.
func compareHolders(a, b Holder) int {
	if c := a.Since.Compare(b.Since); c != 0 {
		return c
	}
	return compareNames(a.Job, b.Job)
}

func compareNames(a, b string) int {
	switch {
	case len(a) != len(b):
		return len(a) - len(b) // job 9 before job 10
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// holder is the run on its i-th card, and when it is expected to end.
func (h *Held) holder(now time.Time, i int) Holder {
	left := h.left(now)
	o := Holder{
		Job: h.Job, User: h.User, Other: h.Other, Since: h.Started,
		BudgetMiB: h.budget(i), Share: h.share(), Alone: h.Alone, By: ByNothing,
		Low: now.Add(left.Low),
	}
	if h.Leaving {
		o.LeavesFor = h.LeavesFor
	}
	var b Basis
	if b.count(h.Run, h.Limit, left) {
		o.High = now.Add(left.High)
		o.By = ByHistory
		if b.Limit > 0 {
			o.By = ByLimit
		}
	}
	if o.By != ByNothing || h.ran(now) > 0 {
		o.Mid = now.Add(left.Mid)
	}
	return o
}
