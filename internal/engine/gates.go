package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
)

// gates holds queued jobs that may not start yet however much room there is:
// not before a time, or not before other jobs have ended.
type gates struct {
	held       map[string]bool // until someone releases them
	until      map[string]time.Time
	waiting    map[string][]job.Dependency
	dependents map[string]map[string]bool // job to those that wait for it
}

func newGates() gates {
	return gates{
		held:       map[string]bool{},
		until:      map[string]time.Time{},
		waiting:    map[string][]job.Dependency{},
		dependents: map[string]map[string]bool{},
	}
}

func (g *gates) remove(id string) {
	delete(g.held, id)
	delete(g.until, id)
	delete(g.waiting, id)
	// dependents keeps stale names; they are checked when they are used.
}

// next is the earliest time at which a gate opens by itself.
func (g *gates) next() time.Time {
	var first time.Time
	for _, t := range g.until {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	return first
}

// first lists n jobs behind a gate, oldest first.
func (g *gates) first(n int, jobs map[string]*job.Job) []string {
	if n <= 0 {
		return nil
	}
	ids := slices.AppendSeq(slices.Collect(maps.Keys(g.until)), maps.Keys(g.waiting))
	ids = slices.AppendSeq(ids, maps.Keys(g.held))
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(jobs[a].Seq, jobs[b].Seq) })
	return ids[:min(n, len(ids))]
}

func (g *gates) why(id string, jobs map[string]*job.Job, now time.Time) string {
	if g.held[id] {
		return "held until someone releases it"
	}
	if t, ok := g.until[id]; ok {
		if t.Sub(now) > 12*time.Hour {
			return "not before " + t.Local().Format("2006-01-02 15:04:05")
		}
		return "not before " + t.Local().Format("15:04:05")
	}
	for _, d := range g.waiting[id] {
		if dep, live := jobs[d.Job]; live {
			return fmt.Sprintf("waits for job %s (%s) to end (%s)", d.Job, dep.State, d.On)
		}
	}
	return ""
}

// enqueue puts a queued job where it belongs: behind a gate, or in line.
func (e *Engine) enqueue(j *job.Job) {
	e.unqueue(j.ID)
	if j.Held {
		e.gates.held[j.ID] = true
		return
	}
	if j.NotBefore.After(e.now) {
		e.gates.until[j.ID] = j.NotBefore
		return
	}
	pending, broken := e.dependencies(j)
	if broken != "" {
		e.finish(j, job.Depends, broken)
		return
	}
	if len(pending) > 0 {
		e.gates.waiting[j.ID] = pending
		for _, d := range pending {
			e.gates.dependents[d.Job] = with(e.gates.dependents[d.Job], j.ID)
		}
		return
	}
	e.resolveAuto(j)
	e.moved = true
	e.queue.Add(sched.Pending{
		Job: j.ID, User: j.User, Priority: j.Spec.Priority, Rank: j.Rank, Seq: j.Seq,
		Pool: j.Array(), PoolLimit: j.Spec.ArrayLimit,
		Request: sched.NewRequest(j.Spec, j.VRAMMiB, e.cfg.Rules),
	})
}

func (e *Engine) unqueue(id string) {
	e.gates.remove(id)
	e.queue.Remove(id)
}

func with(set map[string]bool, id string) map[string]bool {
	if set == nil {
		set = map[string]bool{}
	}
	set[id] = true
	return set
}

// dependencies splits what a job waits for into what is still open and the
// first condition that can hold no more.
func (e *Engine) dependencies(j *job.Job) (open []job.Dependency, broken string) {
	for _, d := range j.Spec.After {
		if _, live := e.jobs[d.Job]; live {
			open = append(open, d)
			continue
		}
		outcome, err := e.outcomeOf(d.Job)
		if err != nil {
			return nil, fmt.Sprintf("job %s, which it waits for, is not known: %v", d.Job, err)
		}
		if !holds(d.On, outcome) {
			return nil, fmt.Sprintf("waits for job %s to end %s; it ended %s", d.Job, d.On, outcome)
		}
	}
	return open, ""
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

func (e *Engine) outcomeOf(id string) (job.Outcome, error) {
	if j, ok := e.dirty[id]; ok && j.State.Terminal() {
		return j.Outcome, nil
	}
	j, err := e.store.Job(id)
	if err != nil {
		return "", err
	}
	return j.Outcome, nil
}

// settleDependents lets go, or cancels, the jobs that waited for this one.
func (e *Engine) settleDependents(ended *job.Job) {
	ids := slices.Sorted(maps.Keys(e.gates.dependents[ended.ID]))
	delete(e.gates.dependents, ended.ID)
	for _, id := range ids {
		if _, waits := e.gates.waiting[id]; waits {
			e.enqueue(e.jobs[id])
		}
	}
}

// openGates queues the jobs whose time has come.
func (e *Engine) openGates() {
	for id, t := range e.gates.until {
		if !t.After(e.now) {
			e.enqueue(e.jobs[id])
		}
	}
}

// resolveAuto takes the declaration of a vram=auto job from what the same
// command used before. With nothing known it stays undeclared, so that its
// first run has a card to itself and can be measured.
func (e *Engine) resolveAuto(j *job.Job) {
	if !j.Spec.VRAMAuto || j.VRAMMiB > 0 {
		return
	}
	command := j.Spec.Command()
	peak, ok, err := e.store.PeakFor(command)
	if err != nil {
		e.cfg.Log.Warn("look up earlier peaks", "job", j.ID, "err", err)
	}
	if !ok {
		e.autos[command] = with(e.autos[command], j.ID)
		return
	}
	j.VRAMMiB = sched.Budget(0, peak, e.cfg.Rules.SpikeBuffer)
	e.fact(j)
}

// learn gives the vram=auto jobs that waited for a first measurement of their
// command what it was measured at.
func (e *Engine) learn(ended *job.Job) {
	_, peak := highest(ended.PeakMiB)
	if peak == 0 || (ended.Outcome != job.OK && ended.Outcome != job.OOM) {
		return
	}
	command := ended.Spec.Command()
	ids := slices.Sorted(maps.Keys(e.autos[command]))
	delete(e.autos, command)
	for _, id := range ids {
		// One that has meanwhile failed for want of memory knows better.
		if _, queued := e.queue.Get(id); queued && e.jobs[id].VRAMMiB == 0 {
			j := e.jobs[id]
			j.VRAMMiB = sched.Budget(0, peak, e.cfg.Rules.SpikeBuffer)
			e.fact(j)
			e.enqueue(j)
		}
	}
}
