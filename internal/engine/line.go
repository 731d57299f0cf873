package engine

import (
	"log/slog"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
)

// line is the jobs that are not over, and of those that are queued who waits for
// what: a gate, or room. It knows no card and no supervisor.
type line struct {
	roster
	rules   sched.Rules
	changes *changes
	log     *slog.Logger
	// capMiB is the most memory that a request may declare and still be placed;
	// 0: not known.
	capMiB func(now time.Time, r sched.Request) int64

	queue     *sched.Queue     // those that could start now if there were room
	inLine    map[string]place // what of these is not in it
	strangers map[string]bool  // those that stand for a process: they start where it is
	gates     gates            // those that may not start yet
	outcomes  map[string]verdict
	expect    *expectations
	usage     usage

	moved bool // something changed since the last decision that could change it
}

// place is what the line remembers of a job in the queue.
type place struct {
	since time.Time // it waits for room
	kind  string    // what its command has in common with others
}

func newLine(rules sched.Rules, c *changes, log *slog.Logger) *line {
	l := &line{
		roster: newRoster(), rules: rules, changes: c, log: log,
		queue: sched.NewQueue(), inLine: map[string]place{}, strangers: map[string]bool{},
		gates: newGates(), outcomes: map[string]verdict{}, expect: newExpectations(),
	}
	l.queue.SetRules(rules)
	return l
}

// setRules has everything asked for anew: a request carries what the rules made
// of it.
func (l *line) setRules(now time.Time, rules sched.Rules) {
	again := l.rules != rules
	l.rules, l.moved = rules, true
	l.queue.SetRules(rules)
	if !again {
		return
	}
	for id, j := range l.jobs {
		if _, queued := l.queue.Get(id); queued {
			l.enterAgain(now, j)
		}
	}
}

// enqueue puts a queued job where it belongs: behind a gate, or in the queue.
// broken says why it can never start: a condition of its does not hold.
func (l *line) enqueue(now time.Time, j *job.Job) (broken string) {
	l.unqueue(j.ID)
	if j.Held {
		l.gates.held[j.ID] = true
		return ""
	}
	if j.NotBefore.After(now) {
		l.gates.until.set(j.ID, j.NotBefore)
		return ""
	}
	pending, freed, broken, err := l.dependencies(j)
	switch {
	case err != nil:
		// A store that cannot be read for a moment breaks no condition.
		l.log.Warn("look up what a job waits for", "job", j.ID, "err", err)
		l.gates.until.set(j.ID, now.Add(notNowDelay))
	case broken != "":
	case len(pending) > 0:
		l.gates.wait(j.ID, pending)
	default:
		l.enter(now, j, freed)
	}
	return broken
}

// unqueue takes a job out of the queue, or from behind its gate.
func (l *line) unqueue(id string) {
	l.gates.remove(id)
	l.queue.Remove(id)
	if p, in := l.inLine[id]; in {
		delete(l.inLine, id)
		l.expect.leave(id, p.kind)
	}
	delete(l.strangers, id)
}

// enter queues a job that nothing but room keeps from starting, the last of
// those that it waited for having ended at freed.
func (l *line) enter(now time.Time, j *job.Job, freed time.Time) {
	l.unqueue(j.ID)
	if j.Spec.Adopt != nil {
		l.strangers[j.ID] = true
		return
	}
	p := place{since: waitsSince(now, j, freed), kind: kindOf(j)}
	l.inLine[j.ID] = p
	l.expect.enter(j.ID, p.kind)
	l.resolveAuto(now, j, p.kind)
	l.moved = true
	l.queue.Add(l.pending(j))
}

// enterAgain is enter for a job that is there already.
func (l *line) enterAgain(now time.Time, j *job.Job) { l.enter(now, j, l.inLine[j.ID].since) }

// pending is a queued job as the plan sees it.
func (l *line) pending(j *job.Job) sched.Pending {
	return sched.Pending{
		Job: j.ID, User: j.User, Priority: j.Spec.Priority, Rank: j.Rank, Seq: j.Seq,
		Pool: j.Array(), PoolLimit: j.Spec.ArrayLimit,
		Request:   sched.NewRequest(j.Spec, j.VRAMMiB, l.rules),
		Submitted: j.SubmittedAt, Since: l.inLine[j.ID].since, Run: l.span(j), Limit: j.Spec.TimeLimit,
	}
}

// waitsSince is since when nothing but room keeps a job from starting, the last
// of those that it waited for having ended at freed. It is made of what is on
// disk, so that a restart does not send anybody to the end.
func waitsSince(now time.Time, j *job.Job, freed time.Time) time.Time {
	since := laterOf(laterOf(j.SubmittedAt, j.NotBefore), laterOf(j.WaitsSince, freed))
	if since.After(now) { // a clock was set back
		return now
	}
	return since
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// why says what keeps a queued job out of the queue however much room there is;
// empty: nothing does.
func (l *line) why(now time.Time, id string) string { return l.gates.why(id, l.jobs, now) }
