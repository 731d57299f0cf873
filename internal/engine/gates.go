package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/store"
)

// gates holds queued jobs that may not start yet however much room there is:
// held ones, those that begin later, and those that wait for other jobs.
type gates struct {
	held       map[string]bool // until released
	until      alarms
	waiting    map[string][]job.Dependency // dependencies that do not hold yet
	dependents map[string]map[string]bool  // from a job to those that wait for it
	toStart    map[string]map[string]bool  // those of them that wait for its start
}

func newGates() gates {
	return gates{
		held:       map[string]bool{},
		until:      newAlarms(),
		waiting:    map[string][]job.Dependency{},
		dependents: map[string]map[string]bool{},
		toStart:    map[string]map[string]bool{},
	}
}

func (g *gates) remove(id string) {
	delete(g.held, id)
	g.until.remove(id)
	for _, d := range g.waiting[id] {
		g.leave(d.Job, id)
	}
	delete(g.waiting, id)
}

// wait adds dependencies.
func (g *gates) wait(id string, pending []job.Dependency) {
	g.waiting[id] = pending
	for _, d := range pending {
		g.dependents[d.Job] = with(g.dependents[d.Job], id)
		if d.On == job.AfterStart {
			g.toStart[d.Job] = with(g.toStart[d.Job], id)
		}
	}
}

// again looks at the dependencies of a job once more at a time, unless it is zero.
func (g *gates) again(id string, at time.Time) {
	if at = earliest(at, g.until.at[id]); !at.IsZero() {
		g.until.set(id, at)
	}
}

// leave removes a dependency.
func (g *gates) leave(awaited, id string) {
	for _, waiting := range []map[string]map[string]bool{g.dependents, g.toStart} {
		delete(waiting[awaited], id)
		if len(waiting[awaited]) == 0 {
			delete(waiting, awaited)
		}
	}
}

// next is when the next gate opens by itself.
func (g *gates) next() time.Time {
	first, _ := g.until.first()
	return first.at
}

func (g *gates) why(id string, jobs map[string]*job.Job, now time.Time) string {
	if g.held[id] {
		switch j := jobs[id]; {
		case j == nil || j.State != job.Parked:
		case j.Parking.By == job.ParkedByIdling:
			return "parked because it left its GPUs unused, until somebody unparks it or attaches to it"
		default:
			return "parked by " + j.Parking.By + " until unparked"
		}
		return "held until released"
	}
	pending := g.waiting[id]
	if t, ok := g.until.at[id]; ok && len(pending) == 0 {
		format := "15:04:05"
		if t.Sub(now) > 12*time.Hour {
			format = "2006-01-02 15:04:05"
		}
		at, j := t.Local().Format(format), jobs[id]
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
	if dep, live := jobs[pending[0].Job]; live {
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

// weigh returns what is left of a job's dependencies, appended to open: nothing if
// an alternative holds. at is since when it does, or when time alone may change
// that. broken says why none can hold any more. With news, only what concerns that
// job is looked at.
func (l *line) weigh(now time.Time, j *job.Job, list, open []job.Dependency, news *job.Job) (left []job.Dependency, at time.Time, broken string, err error) {
	for alternative := range job.Alternatives(list) {
		before, freed, why := len(open), time.Time{}, ""
		for _, d := range alternative {
			if news != nil && d.Job != news.ID {
				open = append(open, d)
				continue
			}
			since, held, never, err := l.met(j, d, news)
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
			freed = laterOf(freed, since)
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
func (l *line) met(j *job.Job, d job.Dependency, news *job.Job) (since time.Time, held bool, never string, err error) {
	other := news
	if other == nil {
		other = l.jobs[d.Job]
	}
	over := verdict{}
	if other != nil {
		over = verdictOf(other)
	} else {
		over, err = l.verdictOn(d.Job)
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
func (l *line) verdictOn(id string) (verdict, error) {
	if j, ok := l.changes.rows[id]; ok && j.State.Terminal() {
		return verdictOf(j), nil
	}
	if over, ok := l.outcomes[id]; ok {
		return over, nil
	}
	j, err := l.changes.store.Job(id)
	if err != nil {
		return verdict{}, err
	}
	l.outcomes[id] = verdictOf(j)
	return l.outcomes[id], nil
}

// broken is a queued job whose dependency failed.
type broken struct {
	job *job.Job
	why string
}

// settle removes an ended job from the dependencies of others.
func (l *line) settle(now time.Time, over *job.Job) (never []broken) {
	delete(l.outcomes, over.ID)
	ids := slices.Sorted(maps.Keys(l.gates.dependents[over.ID]))
	delete(l.gates.dependents, over.ID)
	delete(l.gates.toStart, over.ID)
	return l.report(now, over, ids)
}

// begun does the same for those that wait for a job to start.
func (l *line) begun(now time.Time, j *job.Job) {
	if ids := slices.Sorted(maps.Keys(l.gates.toStart[j.ID])); len(ids) > 0 {
		delete(l.gates.toStart, j.ID)
		l.report(now, j, ids)
	}
}

// report tells jobs news of one that they wait for. Their other dependencies are
// not looked up again: a job may wait for a whole array.
func (l *line) report(now time.Time, news *job.Job, ids []string) (never []broken) {
	for _, id := range ids {
		pending := l.gates.waiting[id]
		if len(pending) == 0 {
			continue // an alternative was dropped, and another one held
		}
		left, at, why, err := l.weigh(now, l.jobs[id], pending, pending[:0], news)
		switch {
		case err != nil:
			panic("bug: " + err.Error()) // nothing was looked up
		case why != "":
			never = append(never, broken{l.jobs[id], why})
		case len(left) == 0:
			l.enter(now, l.jobs[id], at)
		default:
			l.gates.waiting[id] = left
			l.gates.again(id, at)
		}
	}
	return never
}

// Namesakes are the unfinished jobs of a user with a name, in order of submission,
// also those that are not on disk yet.
func (t *Turn) Namesakes(user, name string) (ids []string) {
	take := func(j *job.Job) {
		if j != nil && j.User == user && j.Spec.Name == name {
			ids = append(ids, j.ID)
		}
	}
	for _, id := range t.line.ids {
		take(t.line.jobs[id])
	}
	for _, b := range t.changes.staged {
		for _, j := range b.Jobs {
			take(j)
		}
	}
	return ids
}
