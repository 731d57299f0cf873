package waiting

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/settings"
	"berth/internal/sched"
)

// Line is the unfinished jobs, and for the queued ones what they wait for: a
// gate, or room. It knows no card and no supervisor.
type Line struct {
	Roster  Roster
	cfg     *settings.Settings
	rules   sched.Rules // those that the queue was last ordered by
	Changes *journal.Journal
	log     *slog.Logger
	Room    Room

	Queue      *sched.Queue     // those that wait only for room
	InLine     map[string]place // more about these
	Adopted    map[string]bool  // those that represent a process, which start where it is
	Gates      gates            // those that may not start yet
	Cluster    Cluster          // runs the others
	Conditions conditions
	Expect     *expectations
	Usage      usage
	vouched    Vouched

	Moved bool // something changed since the last decision that could change it
}

// Room says what a job could have here.
type Room interface {
	// CapMiB is the most memory that a request may declare and still be placed; 0:
	// not known.
	CapMiB(now time.Time, r sched.Request) int64
	settings.ParkHistory
}

// Cluster runs the jobs that are not for this machine.
type Cluster interface {
	Enter(j *job.Job)      // it may be handed over, or was
	Leave(id string)       // it has ended, or may not be handed over any more
	Why(j *job.Job) string // what it waits for; empty: it is not one of these jobs
	Stop(j *job.Job, why job.Stop, detail string)
}

// place is what the line remembers about a job in the queue.
type place struct {
	Since time.Time // since when it waits for room
	kind  string    // groups jobs with similar commands
}

func New(cfg *settings.Settings, c *journal.Journal) *Line {
	l := &Line{
		Roster: newRoster(c), cfg: cfg, rules: cfg.Rules, Changes: c, log: cfg.Log,
		Queue: sched.NewQueue(), InLine: map[string]place{}, Adopted: map[string]bool{},
		Gates: newGates(), Expect: newExpectations(), vouched: Vouched{},
	}
	l.Conditions = conditions{&l.Roster, c, map[string]verdict{}}
	l.Queue.SetRules(l.rules)
	return l
}

// SetRules applies new rules to every request.
func (l *Line) SetRules(now time.Time, rules sched.Rules) {
	again := l.rules != rules
	l.rules, l.Moved = rules, true
	l.Queue.SetRules(rules)
	if again {
		l.EstimateAgain(now)
	}
}

// EstimateAgain makes every request anew.
func (l *Line) EstimateAgain(now time.Time) {
	for _, id := range slices.Collect(maps.Keys(l.InLine)) {
		if l.Queue.Has(id) {
			l.enter(now, l.Roster.Get(id), l.InLine[id].Since)
		}
	}
}

// Enqueue puts a queued job behind a gate or into the queue. broken says which
// dependency failed, so that it can never start.
func (l *Line) Enqueue(now time.Time, j *job.Job) (broken string) {
	l.Unqueue(j.ID)
	if j.HandedOver() {
		l.Cluster.Enter(j)
		return ""
	}
	if j.Held {
		l.Gates.Held[j.ID] = true
		return ""
	}
	if j.NotBefore.After(now) {
		l.Gates.Until.Set(j.ID, j.NotBefore)
		return ""
	}
	pending, at, broken, err := l.Conditions.weigh(now, j, j.Spec.After, nil, nil)
	switch {
	case err != nil:
		// A temporary read error fails no dependency.
		l.log.Warn("cannot look up the dependencies of a job", "job", j.ID, "err", err)
		l.Gates.Until.Set(j.ID, now.Add(readAgain))
	case broken != "":
	case len(pending) > 0:
		l.Gates.wait(j.ID, pending)
		l.Gates.again(j.ID, at)
	default:
		l.enter(now, j, at)
	}
	return broken
}

// Unqueue removes a job from the queue or from behind its gate.
func (l *Line) Unqueue(id string) {
	l.Gates.remove(id)
	l.Queue.Remove(id)
	if p, in := l.InLine[id]; in {
		delete(l.InLine, id)
		l.Expect.leave(id, p.kind)
	}
	delete(l.Adopted, id)
	l.Cluster.Leave(id)
}

// enter queues a job that waits only for room; the last of its dependencies
// ended at freed.
func (l *Line) enter(now time.Time, j *job.Job, freed time.Time) {
	l.Unqueue(j.ID)
	if j.Spec.Adopt != nil {
		l.Adopted[j.ID] = true
		return
	}
	if j.Spec.To == job.ToSlurm {
		if j.Spec.VRAMAuto && (j.VRAMMiB == 0 || j.Attempt.Number == 0) {
			l.declare(now, j, l.Memory(j).HighMiB)
		}
		l.Cluster.Enter(j)
		return
	}
	p := place{Since: waitsSince(now, j, freed), kind: KindOf(j)}
	l.InLine[j.ID] = p
	l.Expect.enter(j.ID, p.kind)
	if j.State == job.Queued {
		l.resolveAuto(now, j, p.kind)
	}
	l.Moved = true
	l.Queue.Add(l.pending(j))
}

// pending is a queued job as the scheduler sees it.
func (l *Line) pending(j *job.Job) sched.Pending {
	p := sched.Pending{
		Job: j.ID, User: j.User, Priority: j.Spec.Priority, Rank: j.Rank, Seq: j.Seq,
		Array: j.Array(), ArrayLimit: j.Spec.ArrayLimit, Group: j.Spec.Group,
		Request:   sched.NewRequest(j.Spec, j.VRAMMiB, l.rules),
		Submitted: j.SubmittedAt, Since: l.InLine[j.ID].Since, Run: l.Span(j), Limit: l.cfg.Left(j),
		RanBefore: j.RanBefore(), Preempt: l.cfg.GivesWay(j, l.InLine[j.ID].kind, l.Room),
	}
	if j.State == job.Parked {
		p.Request, p.Parked = parkedRequest(j, l.rules), true
		return p
	}
	p.Unproven = l.Unproven(j, l.InLine[j.ID].kind, p.Request.Share)
	return p
}

// waitsSince is since when a job waits only for room. It is derived from what is
// on disk, so that a restart sends no job to the end.
func waitsSince(now time.Time, j *job.Job, freed time.Time) time.Time {
	since := job.Later(job.Later(j.SubmittedAt, j.NotBefore), job.Later(j.WaitsSince, freed))
	if since.After(now) { // the clock was set back
		return now
	}
	return since
}

// Why says what keeps a queued job from starting however much room there is;
// empty: nothing does.
func (l *Line) Why(now time.Time, id string, j *job.Job) string {
	if text := l.Cluster.Why(j); text != "" {
		return text
	}
	return l.Gates.why(id, j, l.Roster.Look, now)
}

// readAgain is when a job is looked at again whose dependencies could not be read.
const readAgain = 10 * time.Second

// parkedRequest is what a parked job needs to come back: the cards that it left,
// as it had them, with at least as much memory as it used there.
func parkedRequest(j *job.Job, rules sched.Rules) sched.Request {
	spec := j.Spec
	spec.IDs, spec.Share, spec.Exclusive = j.Grant.GPUs, j.Grant.Share, j.Grant.Exclusive
	var vramMiB int64
	if !j.Grant.Alone && j.Grant.Share == 0 {
		_, most := job.Highest(j.Parking.CardMiB)
		vramMiB = max(j.Grant.BudgetMiB, most)
	}
	return sched.NewRequest(spec, vramMiB, rules)
}
