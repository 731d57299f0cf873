package engine

import (
	"log/slog"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
)

// line is the unfinished jobs, and for the queued ones what they wait for: a
// gate, or room. It knows no card and no supervisor.
type line struct {
	roster
	cfg     *Config
	rules   sched.Rules // those that the queue was last ordered by
	changes *changes
	log     *slog.Logger
	// capMiB is the most memory that a request may declare and still be placed;
	// 0: not known.
	capMiB func(now time.Time, r sched.Request) int64
	// parking is what it costs to park a job that uses this much memory.
	parking func(mib int64) sched.Preempt

	queue    *sched.Queue     // those that wait only for room
	inLine   map[string]place // more about these
	adopted  map[string]bool  // those that represent a process, which start where it is
	gates    gates            // those that may not start yet
	away     *away            // those that a cluster runs
	groups   map[sched.GroupName]setting
	outcomes map[string]verdict
	expect   *expectations
	usage    usage
	vouched  vouched

	moved bool // something changed since the last decision that could change it
}

// place is what the line remembers about a job in the queue.
type place struct {
	since time.Time // since when it waits for room
	kind  string    // groups jobs with similar commands
}

func newLine(cfg *Config, c *changes) *line {
	l := &line{
		roster: newRoster(), cfg: cfg, rules: cfg.Rules, changes: c, log: cfg.Log,
		queue: sched.NewQueue(), inLine: map[string]place{}, adopted: map[string]bool{},
		gates: newGates(), away: newAway(), groups: map[sched.GroupName]setting{}, outcomes: map[string]verdict{}, expect: newExpectations(), vouched: vouched{},
	}
	l.queue.SetRules(l.rules)
	return l
}

// setRules applies new rules to every request.
func (l *line) setRules(now time.Time, rules sched.Rules) {
	again := l.rules != rules
	l.rules, l.moved = rules, true
	l.queue.SetRules(rules)
	if again {
		l.estimateAgain(now)
	}
}

// estimateAgain makes every request anew.
func (l *line) estimateAgain(now time.Time) {
	for id, j := range l.jobs {
		if _, queued := l.queue.Get(id); queued {
			l.enterAgain(now, j)
		}
	}
}

// enqueue puts a queued job behind a gate or into the queue. broken says which
// dependency failed, so that it can never start.
func (l *line) enqueue(now time.Time, j *job.Job) (broken string) {
	l.unqueue(j.ID)
	if j.HandedOver() {
		l.away.enter(j)
		return ""
	}
	if j.Held {
		l.gates.held[j.ID] = true
		return ""
	}
	if j.NotBefore.After(now) {
		l.gates.until.set(j.ID, j.NotBefore)
		return ""
	}
	pending, at, broken, err := l.weigh(now, j, j.Spec.After, nil, nil)
	switch {
	case err != nil:
		// A temporary read error fails no dependency.
		l.log.Warn("cannot look up the dependencies of a job", "job", j.ID, "err", err)
		l.gates.until.set(j.ID, now.Add(notNowDelay))
	case broken != "":
	case len(pending) > 0:
		l.gates.wait(j.ID, pending)
		l.gates.again(j.ID, at)
	default:
		l.enter(now, j, at)
	}
	return broken
}

// unqueue removes a job from the queue or from behind its gate.
func (l *line) unqueue(id string) {
	l.gates.remove(id)
	l.queue.Remove(id)
	if p, in := l.inLine[id]; in {
		delete(l.inLine, id)
		l.expect.leave(id, p.kind)
	}
	delete(l.adopted, id)
	l.away.leave(id)
}

// enter queues a job that waits only for room; the last of its dependencies
// ended at freed.
func (l *line) enter(now time.Time, j *job.Job, freed time.Time) {
	l.unqueue(j.ID)
	if j.Spec.Adopt != nil {
		l.adopted[j.ID] = true
		return
	}
	if j.Spec.To == job.ToSlurm {
		if j.Spec.VRAMAuto && (j.VRAMMiB == 0 || j.Attempt.Number == 0) {
			l.declare(now, j, l.memory(j).HighMiB)
		}
		l.away.enter(j)
		return
	}
	p := place{since: waitsSince(now, j, freed), kind: kindOf(j)}
	l.inLine[j.ID] = p
	l.expect.enter(j.ID, p.kind)
	if j.State == job.Queued {
		l.resolveAuto(now, j, p.kind)
	}
	l.moved = true
	l.queue.Add(l.pending(j))
}

// enterAgain is enter for a job that is queued already.
func (l *line) enterAgain(now time.Time, j *job.Job) { l.enter(now, j, l.inLine[j.ID].since) }

// pending is a queued job as the scheduler sees it.
func (l *line) pending(j *job.Job) sched.Pending {
	p := sched.Pending{
		Job: j.ID, User: j.User, Priority: j.Spec.Priority, Rank: j.Rank, Seq: j.Seq,
		Pool: j.Array(), PoolLimit: j.Spec.ArrayLimit, Group: j.Spec.Group,
		Request:   sched.NewRequest(j.Spec, j.VRAMMiB, l.rules),
		Submitted: j.SubmittedAt, Since: l.inLine[j.ID].since, Run: l.span(j), Limit: l.cfg.left(j),
		Served: j.Parking.Served,
	}
	if l.cfg.parks(&j.Spec) {
		p.Preempt = l.parking(max(j.VRAMMiB, j.Parking.HostMiB()))
	}
	if j.State == job.Parked {
		p.Request, p.Parked = parkedRequest(j, l.rules), true
		return p
	}
	p.Unproven = l.unproven(j, l.inLine[j.ID].kind, p.Request.Share)
	return p
}

// waitsSince is since when a job waits only for room. It is derived from what is
// on disk, so that a restart sends no job to the end.
func waitsSince(now time.Time, j *job.Job, freed time.Time) time.Time {
	since := laterOf(laterOf(j.SubmittedAt, j.NotBefore), laterOf(j.WaitsSince, freed))
	if since.After(now) { // the clock was set back
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

// why says what keeps a queued job from starting however much room there is;
// empty: nothing does.
func (l *line) why(now time.Time, id string) string {
	if text := l.away.why(l.jobs[id]); text != "" {
		return text
	}
	return l.gates.why(id, l.jobs, now)
}
