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
func (t *Turn) line(j *job.Job, freed time.Time) {
	t.unqueue(j.ID)
	if j.Spec.Adopt != nil {
		t.strangers[j.ID] = true
		return
	}
	p := place{since: t.waitsSince(j, freed), kind: kindOf(j)}
	if p.kind != "" {
		t.alike[p.kind] = with(t.alike[p.kind], j.ID)
	}
	t.inLine[j.ID] = p
	t.resolveAuto(j)
	t.moved = true
	t.queue.Add(t.pending(j))
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
func (t *Turn) lineAgain(j *job.Job) { t.line(j, t.inLine[j.ID].since) }

func (t *Turn) leaveLine(id string) {
	p, in := t.inLine[id]
	if !in {
		return
	}
	delete(t.inLine, id)
	without(t.autos, p.kind, id)
	if without(t.alike, p.kind, id) {
		delete(t.learnt, p.kind)
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
func (t *Turn) decideAt() time.Time {
	if t.stopping || t.queue.Len() == 0 {
		return time.Time{}
	}
	return t.again
}
