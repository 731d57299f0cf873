package waiting

import (
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
	Held       map[string]bool // until released
	Until      alarms
	Waiting    map[string][]job.Dependency // dependencies that have not ended
	Dependents map[string]map[string]bool  // from a job to those that wait for it
}

func newGates() gates {
	return gates{
		Held:       map[string]bool{},
		Until:      NewAlarms(),
		Waiting:    map[string][]job.Dependency{},
		Dependents: map[string]map[string]bool{},
	}
}

func (g *gates) remove(id string) {
	delete(g.Held, id)
	g.Until.Remove(id)
	for _, d := range g.Waiting[id] {
		g.leave(d.Job, id)
	}
	delete(g.Waiting, id)
}

// wait adds dependencies.
func (g *gates) wait(id string, pending []job.Dependency) {
	g.Waiting[id] = pending
	for _, d := range pending {
		g.Dependents[d.Job] = with(g.Dependents[d.Job], id)
	}
}

// leave removes a dependency.
func (g *gates) leave(awaited, id string) {
	delete(g.Dependents[awaited], id)
	if len(g.Dependents[awaited]) == 0 {
		delete(g.Dependents, awaited)
	}
}

// Next is when the next gate opens by itself.
func (g *gates) Next() time.Time {
	first, _ := g.Until.First()
	return first.At
}

func (g *gates) why(id string, jobs map[string]*job.Job, now time.Time) string {
	if g.Held[id] {
		switch j := jobs[id]; {
		case j == nil || j.State != job.Parked:
		case j.Parking.By == job.ParkedByIdling:
			return "parked because it left its GPUs unused, until somebody unparks it or attaches to it"
		default:
			return "parked by " + j.Parking.By + " until unparked"
		}
		return "held until released"
	}
	if t, ok := g.Until.At[id]; ok {
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
	pending := g.Waiting[id]
	if len(pending) == 0 {
		return ""
	}
	state := "ended"
	if dep, live := jobs[pending[0].Job]; live {
		state = string(dep.State)
	}
	text := fmt.Sprintf("waits for job %s (%s) to %s", pending[0].Job, state, pending[0].On.Words())
	if more := len(pending) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// dependencies returns what a job still waits for, the first condition that can
// no longer hold, and when the last of the others ended.
func (l *Line) dependencies(j *job.Job) (open []job.Dependency, freed time.Time, broken string, err error) {
	for _, d := range j.Spec.After {
		if _, live := l.Roster.Jobs[d.Job]; live {
			open = append(open, d)
			continue
		}
		over, err := l.verdictOn(d.Job)
		switch {
		case errors.Is(err, store.ErrNotFound) && j.Attempt.Number > 0:
			// The condition held when the job first ran; the other job has been
			// forgotten since.
		case errors.Is(err, store.ErrNotFound):
			return nil, freed, fmt.Sprintf("it needed job %s, which is unknown", d.Job), nil
		case err != nil:
			return nil, freed, "", err
		case !holds(d.On, over.outcome):
			return nil, freed, unfulfilled(d, over.outcome), nil
		}
		freed = job.Later(freed, over.at)
	}
	return open, freed, "", nil
}

func unfulfilled(d job.Dependency, outcome job.Outcome) string {
	return fmt.Sprintf("it needed job %s to %s, but that job %s", d.Job, d.On.Words(), outcome.Words())
}

func holds(on job.Condition, outcome job.Outcome) bool {
	switch on {
	case job.AfterAny:
		return true
	case job.AfterFail:
		return outcome != job.OK
	}
	return outcome == job.OK
}

// verdict is how a job ended, and when.
type verdict struct {
	outcome job.Outcome
	at      time.Time
}

// verdictOn is how a job ended. Many jobs may wait for the same one, so the
// answer is cached for the round.
func (l *Line) verdictOn(id string) (verdict, error) {
	if j, ok := l.Changes.Rows[id]; ok && j.State.Terminal() {
		return verdict{j.Outcome, j.EndedAt}, nil
	}
	if over, ok := l.Outcomes[id]; ok {
		return over, nil
	}
	j, err := l.Changes.Store.Job(id)
	if err != nil {
		return verdict{}, err
	}
	l.Outcomes[id] = verdict{j.Outcome, j.EndedAt}
	return l.Outcomes[id], nil
}

// broken is a queued job whose dependency failed.
type broken struct {
	Job *job.Job
	why string
}

// Settle removes an ended job from the dependencies of others. Those that ended
// earlier are not looked up again: a job may wait for a whole array.
func (l *Line) Settle(now time.Time, over *job.Job) (never []broken) {
	delete(l.Outcomes, over.ID)
	ids := slices.Sorted(maps.Keys(l.Gates.Dependents[over.ID]))
	delete(l.Gates.Dependents, over.ID)
	for _, id := range ids {
		pending, why := l.Gates.Waiting[id], ""
		for _, d := range pending {
			if d.Job == over.ID && !holds(d.On, over.Outcome) {
				why = unfulfilled(d, over.Outcome)
				break
			}
		}
		if why != "" {
			never = append(never, broken{l.Roster.Jobs[id], why})
			continue
		}
		pending = slices.DeleteFunc(pending, func(d job.Dependency) bool { return d.Job == over.ID })
		if l.Gates.Waiting[id] = pending; len(pending) == 0 {
			l.enter(now, l.Roster.Jobs[id], over.EndedAt)
		}
	}
	return never
}
