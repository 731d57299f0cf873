package waiting

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/store"
)

// gates holds queued jobs that may not start yet however much room there is:
// held ones, those that begin later, and those that wait for other jobs.
type gates struct {
	Held       map[string]bool // until released
	Until      alarms
	Waiting    map[string][]job.Dependency // dependencies that do not hold yet
	Dependents map[string]map[string]bool  // from a job to those that wait for it
	toStart    map[string]map[string]bool  // those of them that wait for its start
}

func newGates() gates {
	return gates{
		Held:       map[string]bool{},
		Until:      NewAlarms(),
		Waiting:    map[string][]job.Dependency{},
		Dependents: map[string]map[string]bool{},
		toStart:    map[string]map[string]bool{},
	}
}

func (g *gates) remove(id string) {
	delete(g.Held, id)
	g.Until.Remove(id)
	for _, d := range g.Waiting[id] {
		g.unlink(d.Job, id)
	}
	delete(g.Waiting, id)
}

// wait adds dependencies.
func (g *gates) wait(id string, pending []job.Dependency) {
	g.Waiting[id] = pending
	for _, d := range pending {
		g.Dependents[d.Job] = with(g.Dependents[d.Job], id)
		if d.On == job.AfterStart {
			g.toStart[d.Job] = with(g.toStart[d.Job], id)
		}
	}
}

// again looks at the dependencies of a job once more at a time, unless it is zero.
func (g *gates) again(id string, at time.Time) {
	if at = earliest(at, g.Until.At[id]); !at.IsZero() {
		g.Until.Set(id, at)
	}
}

// unlink removes a dependency.
func (g *gates) unlink(awaited, id string) {
	for _, waiting := range []map[string]map[string]bool{g.Dependents, g.toStart} {
		delete(waiting[awaited], id)
		if len(waiting[awaited]) == 0 {
			delete(waiting, awaited)
		}
	}
}

// Next is when the next gate opens by itself.
func (g *gates) Next() time.Time {
	first, _ := g.Until.First()
	return first.At
}

func (g *gates) why(id string, j *job.Job, look func(id string) *job.Job, now time.Time) string {
	if g.Held[id] {
		switch {
		case j == nil || j.State != job.Parked:
		case j.Parking.By == job.ParkedByIdling:
			return "parked because it left its GPUs unused, until somebody unparks it or attaches to it"
		default:
			return "parked by " + j.Parking.By + " until unparked"
		}
		return "held until released"
	}
	pending := g.Waiting[id]
	if t, ok := g.Until.At[id]; ok && len(pending) == 0 {
		format := "15:04:05"
		if t.Sub(now) > 12*time.Hour {
			format = "2006-01-02 15:04:05"
		}
		at := t.Local().Format(format)
		switch {
		case j != nil && j.Detail != "":
			return "not before " + at + ": " + j.Detail // why it was requeued
		case j != nil && j.State == job.Parked && j.Parking.By != "":
			return "parked by " + j.Parking.By + " until " + at
		}
		return "not before " + at
	}
	if len(pending) == 0 {
		return ""
	}
	state := "ended"
	if dep := look(pending[0].Job); dep != nil {
		state = string(dep.State)
	}
	text, and := fmt.Sprintf("waits for job %s (%s) to %s", pending[0].Job, state, pending[0].Words()), 0
	for alternative := range job.Alternatives(pending) {
		and = len(alternative)
		break
	}
	if and > 1 {
		text += fmt.Sprintf(", and %d more", and-1)
	}
	if or := len(pending) - and; or > 0 {
		text += fmt.Sprintf(", or %d more", or)
	}
	return text
}

// conditions says which dependencies of queued jobs hold.
type conditions struct {
	roster   *Roster
	changes  *journal.Journal
	Outcomes map[string]verdict // of ended jobs that were looked up in this round
}

// weigh returns what is left of a job's dependencies, appended to open: nothing if
// an alternative holds. at is since when it does, or when time alone may change
// that. broken says why none can hold any more. With news, only what concerns that
// job is looked at.
func (c *conditions) weigh(now time.Time, j *job.Job, list, open []job.Dependency, news *job.Job) (left []job.Dependency, at time.Time, broken string, err error) {
	for alternative := range job.Alternatives(list) {
		before, freed, why := len(open), time.Time{}, ""
		for _, d := range alternative {
			if news != nil && d.Job != news.ID {
				open = append(open, d)
				continue
			}
			since, held, never, err := c.met(j, d, news)
			if err != nil {
				return nil, at, "", err
			}
			if why = never; why != "" {
				break
			}
			if !held || d.DelayS > 0 && since.After(now) {
				open, at = append(open, d), earliest(at, since)
				continue
			}
			freed = job.Later(freed, since)
		}
		switch {
		case why != "":
			open, broken = open[:before], cmp.Or(broken, why)
		case len(open) == before:
			return nil, freed, "", nil
		}
	}
	if len(open) > 0 {
		broken = ""
	}
	return open, at, broken, nil
}

// earliest is the earlier time. A zero one does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// met says whether a dependency holds, and since when, perhaps in the future; or
// why it never will.
func (c *conditions) met(j *job.Job, d job.Dependency, news *job.Job) (since time.Time, held bool, never string, err error) {
	other := news
	if other == nil {
		other = c.roster.Look(d.Job)
	}
	over := verdict{}
	if other != nil {
		over = verdictOf(other)
	} else {
		over, err = c.verdictOn(d.Job)
	}
	switch {
	case errors.Is(err, store.ErrNotFound) && j.Attempt.Number > 0:
		// The condition held when the job first ran; the other job has been
		// forgotten since.
		return time.Time{}, true, "", nil
	case errors.Is(err, store.ErrNotFound):
		return since, false, fmt.Sprintf("it needed job %s, which is unknown", d.Job), nil
	case err != nil:
		return since, false, "", err
	case d.On == job.AfterStart && !over.began.IsZero():
		return over.began.Add(time.Duration(d.DelayS) * time.Second), true, "", nil
	case over.outcome == "":
		return since, false, "", nil
	case !d.On.Holds(over.outcome):
		return since, false, fmt.Sprintf("it needed job %s to %s, but that job %s", d.Job, d.On.Words(), over.outcome.Words()), nil
	}
	return over.at, true, "", nil
}

// verdict is how a job ended, and when. outcome is empty if it has not.
type verdict struct {
	outcome   job.Outcome
	at, began time.Time
}

// verdictOf takes the end of a job for its start if it had none, or if it waits for
// its next one.
func verdictOf(j *job.Job) verdict {
	v := verdict{outcome: j.Outcome, at: j.EndedAt, began: j.StartedAt}
	if v.began.IsZero() {
		v.began = j.EndedAt
	}
	if !j.State.Terminal() {
		v.outcome = ""
	}
	return v
}

// verdictOn is how a job ended. Many jobs may wait for the same one, so the
// answer is cached for the round.
func (c *conditions) verdictOn(id string) (verdict, error) {
	if j, ok := c.changes.Rows[id]; ok && j.State.Terminal() {
		return verdictOf(j), nil
	}
	if over, ok := c.Outcomes[id]; ok {
		return over, nil
	}
	j, err := c.changes.Store.Job(id)
	if err != nil {
		return verdict{}, err
	}
	c.Outcomes[id] = verdictOf(j)
	return c.Outcomes[id], nil
}

// broken is a queued job whose dependency failed.
type broken struct {
	Job *job.Job
	why string
}

// Settle removes an ended job from the dependencies of others.
func (l *Line) Settle(now time.Time, over *job.Job) (never []broken) {
	delete(l.Conditions.Outcomes, over.ID)
	ids := slices.Sorted(maps.Keys(l.Gates.Dependents[over.ID]))
	delete(l.Gates.Dependents, over.ID)
	delete(l.Gates.toStart, over.ID)
	return l.report(now, over, ids)
}

// Begun does the same for those that wait for a job to start.
func (l *Line) Begun(now time.Time, j *job.Job) {
	if ids := slices.Sorted(maps.Keys(l.Gates.toStart[j.ID])); len(ids) > 0 {
		delete(l.Gates.toStart, j.ID)
		l.report(now, j, ids)
	}
}

// report tells jobs news of one that they wait for. Their other dependencies are
// not looked up again: a job may wait for a whole array.
func (l *Line) report(now time.Time, news *job.Job, ids []string) (never []broken) {
	for _, id := range ids {
		pending := l.Gates.Waiting[id]
		if len(pending) == 0 {
			continue // an alternative was dropped, and another one held
		}
		left, at, why, err := l.Conditions.weigh(now, l.Roster.Get(id), pending, pending[:0], news)
		switch {
		case err != nil:
			panic("bug: " + err.Error()) // nothing was looked up
		case why != "":
			never = append(never, broken{l.Roster.Get(id), why})
		case len(left) == 0:
			l.enter(now, l.Roster.Get(id), at)
		default:
			l.Gates.Waiting[id] = left
			l.Gates.again(id, at)
		}
	}
	return never
}
