package engine

import (
	"time"

	"berth/internal/job"
	"berth/internal/predict"
)

// place is what the engine remembers of a job in the queue.
type place struct {
	since time.Time // it waits for room
	kind  string    // what its command has in common with others
}

// line queues a job that nothing but room keeps from starting, the last of
// those that it waited for having ended at freed.
func (e *Engine) line(j *job.Job, freed time.Time) {
	e.unqueue(j.ID)
	if j.Spec.Adopt != nil {
		e.strangers[j.ID] = true
		return
	}
	p := place{since: e.waitsSince(j, freed), kind: kindOf(j)}
	if p.kind != "" {
		e.alike[p.kind] = with(e.alike[p.kind], j.ID)
	}
	e.inLine[j.ID] = p
	e.resolveAuto(j)
	e.moved = true
	e.queue.Add(e.pending(j))
}

// kindOf is what a job's command has in common with others; empty for a job
// without a card, of which nobody expects anything.
func kindOf(j *job.Job) string {
	if j.Spec.GPUs == 0 {
		return ""
	}
	return predict.Normalise(j.Spec.Command())
}

// lineAgain is line for a job that is there already.
func (e *Engine) lineAgain(j *job.Job) { e.line(j, e.inLine[j.ID].since) }

func (e *Engine) leaveLine(id string) {
	p, in := e.inLine[id]
	if !in {
		return
	}
	delete(e.inLine, id)
	without(e.autos, p.kind, id)
	if without(e.alike, p.kind, id) {
		delete(e.learnt, p.kind)
	}
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

// decideAt is when time alone changes what would be decided.
func (e *Engine) decideAt() time.Time {
	if e.stopping || e.queue.Len() == 0 {
		return time.Time{}
	}
	return e.again
}
