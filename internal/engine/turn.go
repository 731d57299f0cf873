package engine

import (
	"strconv"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/run"
	"berth/internal/sched"
)

// Turn is the engine at a moment, held by the only function that may touch it: a
// request, or a step of the loop. It ends when that function returns.
type Turn struct {
	Now time.Time
	*core
}

func (e *Engine) at(now time.Time) *Turn { return &Turn{now, e.core} }

func (t *Turn) tell(kind job.EventKind, j *job.Job, text string) {
	t.changes.tell(t.Now, kind, j, text)
}

// Number assigns ids to new jobs, so that they can refer to one another before
// they are submitted. Where jobs arrive one by one, it gives them their places
// too.
func (t *Turn) Number(jobs []*job.Job) {
	for _, j := range jobs {
		j.Seq = t.nextSeq
		if t.cfg.Submissions {
			j.Rank = t.TakeRank()
		}
		t.nextSeq++
		j.ID = strconv.FormatInt(j.Seq, 10)
	}
}

// TakeRank gives out a place behind every other. It is the next number, unless
// jobs that were sent to the end of the queue have that already.
func (t *Turn) TakeRank() int64 {
	t.line.last = max(t.nextSeq, t.line.last+1)
	return t.line.last
}

// Submit queues numbered jobs. The caller sets Spec, Key, User and, for the lines
// of a jobs file, Rank. They are on disk, and published, after the next round.
func (t *Turn) Submit(jobs []*job.Job) {
	for _, j := range jobs {
		j.Submitted(t.Now)
		if j.User == "" {
			j.User = t.cfg.User
		}
		j.VRAMMiB = j.Spec.VRAMMiB
		t.changes.fact(j)
		if t.cfg.TellQueued {
			t.changes.arrive(t.Now, j)
		}
	}
	t.enqueueAll(jobs)
}

// Accept takes jobs of a request that waits for the answer. They exist only once
// they are on disk: a failed commit refuses them, and they are not tried again.
func (t *Turn) Accept(b Batch) {
	if err := t.Present(); err != nil {
		b.Done(err)
		return
	}
	for _, j := range b.Jobs {
		j.Submitted(t.Now)
		j.VRAMMiB = j.Spec.VRAMMiB
	}
	t.changes.stage(b)
}

// admit queues the staged jobs, which are on disk now.
func (t *Turn) admit(batches []Batch) {
	for _, b := range batches {
		for _, j := range b.Jobs {
			if t.cfg.TellQueued && j.State == job.Queued {
				t.changes.arrive(t.Now, j.Clone())
			}
		}
		t.enqueueAll(b.Jobs)
		t.admitted = true
		b.Done(nil)
	}
}

// Again requeues ended jobs for a user.
func (t *Turn) Again(jobs []*job.Job) {
	for _, j := range jobs {
		j.MustTo(job.Queued)
		j.Attempt, j.Handover = j.Attempt.None(), job.Handover{}
		j.Outcome, j.Detail, j.PreemptedFor = "", "", ""
		j.NotBefore, j.WaitsSince = time.Time{}, t.Now
		j.RetriesUsed, j.Requeues, j.Preemptions = 0, 0, 0
		t.changes.fact(j)
		t.tell(job.EventRequeued, j, "requeued by its user")
	}
	t.enqueueAll(jobs)
}

// enqueueAll queues jobs that may depend on one another: all are known before
// any is queued. The job of an adopted stray is running already.
func (t *Turn) enqueueAll(jobs []*job.Job) {
	for _, j := range jobs {
		t.line.know(j)
	}
	for _, j := range jobs {
		if j.State == job.Running {
			t.rejoin(j)
			continue
		}
		t.enqueue(j)
	}
}

// enqueue queues a job, or ends one that can never start.
func (t *Turn) enqueue(j *job.Job) {
	if broken := t.line.enqueue(t.Now, j); broken != "" {
		t.finish(j, job.Depends, broken)
	}
}

// queued is a queued job, or nil.
func (t *Turn) queued(id string) *job.Job {
	if j := t.line.jobs[id]; j != nil && j.State == job.Queued {
		return j
	}
	return nil
}

// Edit changes the spec or the place of a queued job.
func (t *Turn) Edit(id string, spec job.Spec, rank int64) {
	j := t.queued(id)
	if j == nil {
		return
	}
	if j.Requeues > 0 && !t.cfg.Submissions {
		// A job that was sent to the end of the queue stays behind the lines
		// that were there before it.
		rank += requeueOffset * int64(j.Requeues)
	}
	changed := !sameSpec(j.Spec, spec)
	if !changed && j.Rank == rank {
		return
	}
	if changed {
		if spec.VRAMMiB != j.Spec.VRAMMiB || spec.VRAMAuto != j.Spec.VRAMAuto {
			j.VRAMMiB = spec.VRAMMiB
		}
		j.Spec = spec
		t.line.texts.weigh(j)
		t.changes.fact(j)
	}
	j.Rank = rank
	if j.HandedOver() {
		if changed { // a run that begins meanwhile is stopped, and starts again as changed
			t.stopAway(j, job.StopRequeue, "changed")
		}
		return
	}
	t.enqueue(j)
}

// Begin changes the time before which a queued job may not start.
func (t *Turn) Begin(id string, notBefore time.Time) {
	if j := t.queued(id); j != nil {
		j.NotBefore = notBefore
		t.changes.fact(j)
		if j.HandedOver() {
			t.stopAway(j, job.StopRequeue, "changed")
			return
		}
		t.enqueue(j)
	}
}

// requeueOffset is more than the lines of a jobs file.
const requeueOffset = int64(1) << 32

// toTheEnd moves a job behind everything that is queued now with its priority,
// or behind everything.
func (t *Turn) toTheEnd(j *job.Job) {
	if t.cfg.LimitedLast {
		for _, other := range t.jobs {
			if other.State == job.Queued {
				j.Spec.Priority = min(j.Spec.Priority, other.Spec.Priority)
			}
		}
	}
	if t.cfg.Submissions {
		j.Rank = t.TakeRank()
		return
	}
	j.Rank += requeueOffset
}

// Withdraw forgets a queued job as if it had never been submitted.
func (t *Turn) Withdraw(id string) bool {
	j := t.queued(id)
	if j == nil {
		return false
	}
	if j.HandedOver() {
		t.stopAway(j, job.StopCancel, "cancelled before it started")
		return true
	}
	t.line.unqueue(id)
	t.line.forget(j)
	t.changes.forget(id)
	t.tell(job.EventDequeued, j, "")
	return true
}

// Cancel ends a queued job at once, and a running one through its supervisor
// after that is on disk.
func (t *Turn) Cancel(id, detail string) bool {
	j := t.line.jobs[id]
	if j == nil {
		return false
	}
	if j.HandedOver() {
		t.stopAway(j, job.StopCancel, detail)
		return true
	}
	if j.State == job.Queued {
		t.finish(j, job.WasCancelled, detail)
		return true
	}
	t.stop(j, job.StopCancel, j.Spec.Grace, "")
	return true
}

// stop stops a job that its supervisor holds; a parked one does not come back.
func (t *Turn) stop(j *job.Job, why job.Stop, grace time.Duration, detail string) {
	if j.HandedOver() {
		t.stopAway(j, why, detail)
		return
	}
	if j.State == job.Parked {
		t.line.unqueue(j.ID)
	}
	t.attempts.stop(t.Now, j, why, grace, detail)
}

// CancelBy is Cancel for a user, whose name the job will carry, with this much
// time between TERM and KILL.
func (t *Turn) CancelBy(id, by string, grace time.Duration) bool {
	j := t.line.jobs[id]
	if j == nil || j.State == job.Queued {
		return t.Cancel(id, "cancelled by "+by)
	}
	detail := "cancelled by " + by + " while " + string(j.State)
	if j.Spec.Adopt != nil {
		detail = "cancelled by " + by + ": " + GoesOn(j)
	}
	t.stop(j, job.StopCancel, grace, detail)
	return true
}

// Requeue stops a running job and runs it again from the beginning. A cancelled
// one does not come back.
func (t *Turn) Requeue(id, by string, grace time.Duration) bool {
	j := t.line.jobs[id]
	if j == nil || j.State != job.Running && j.State != job.Parked || j.Stop == job.StopCancel {
		return false
	}
	t.stop(j, job.StopRequeue, grace, "requeued by "+by)
	return true
}

// Hold keeps a queued job, or one that is being preempted, from starting until
// it is released.
func (t *Turn) Hold(id, by string) bool { return t.setHeld(id, true, job.EventHeld, "held by "+by) }

// Release lifts a hold.
func (t *Turn) Release(id, by string) bool {
	return t.setHeld(id, false, job.EventReleased, "released by "+by)
}

func (t *Turn) setHeld(id string, held bool, kind job.EventKind, text string) bool {
	j := t.line.jobs[id]
	if j == nil || j.State != job.Queued && !j.Leaving() || j.Held == held {
		return false
	}
	if j.Held = held; !held {
		j.WaitsSince = t.Now
	}
	j.Handover.Held = j.Handover.Held || held && j.HandedOver()
	t.changes.fact(j)
	t.tell(kind, j, text)
	if j.State == job.Queued {
		t.enqueue(j) // one that a cluster has is held there
	}
	return true
}

// Interrupt stops all running jobs, which go back to the queue, and starts
// nothing more. immediately skips the grace period.
func (t *Turn) Interrupt(immediately bool) {
	t.stopping = true
	for _, held := range []map[string]*attempt{t.attempts.active, t.attempts.parked} {
		for _, a := range held {
			grace := a.job.Spec.Grace
			if immediately {
				grace = 0
			}
			t.stop(a.job, job.StopInterrupt, grace, "")
		}
	}
}

// Present looks whether the store is still where another berth would look for it.
// If not, nothing starts: another berth may have begun there anew. Running jobs
// are seen to their end, because nobody else can find them.
func (t *Turn) Present() error {
	was := t.removed
	t.removed = t.changes.store.Present()
	switch {
	case t.removed != nil && was == nil:
		t.changes.show(t.Now, job.EventWarning, nil, t.removed.Error()+"; no job starts any more, and running jobs are seen to their end")
		t.cfg.Log.Error("the store is gone", "err", t.removed)
	case t.removed == nil && was != nil:
		t.moved = true
		t.changes.show(t.Now, job.EventNotice, nil, "the store is back; jobs start again")
	}
	return t.removed
}

// Lost is what Present last said.
func (t *Turn) Lost() error { return t.removed }

// Retire makes an idle engine accept no more jobs. It returns false, and changes
// nothing, if it is not idle.
func (t *Turn) Retire() bool {
	if t.Size() > 0 || !t.Written() {
		return false
	}
	t.stopping = true
	return true
}

// Then calls f once everything requested so far is on disk, or could not be
// written.
func (t *Turn) Then(f func(error)) { t.changes.thens = append(t.changes.thens, f) }

// Pause stops jobs from starting on a card, or lets them start again; running
// jobs are not touched. It returns false if there is no such card.
func (t *Turn) Pause(index int, paused bool, by string) bool {
	return t.cards.pause(t.Now, index, paused, by)
}

// SetHealth sets a card's health for a user. It returns false if there is no
// such card.
func (t *Turn) SetHealth(index int, state gpu.HealthState, by, reason string) bool {
	return t.cards.setHealth(t.Now, index, state, by, reason)
}

// Warn records a warning about a job, or about berth itself.
func (t *Turn) Warn(j *job.Job, text string) { t.tell(job.EventWarning, j, text) }

// TellCard records what a user did to one card or all.
func (t *Turn) TellCard(card job.CardChange, text string) { t.changes.tellCard(t.Now, card, nil, text) }

// SetRules changes how jobs are placed from now on. Running jobs are not
// touched.
func (t *Turn) SetRules(rules sched.Rules, limits Limits) {
	t.cfg.Rules, t.cfg.Limits = rules, limits
	t.cards.meter.SetSpikeBuffer(rules.SpikeBuffer)
	t.line.setRules(t.Now, rules)
}

// SetKeepAll switches preemption off or on. A victim that was told to stop still
// stops.
func (t *Turn) SetKeepAll(keep bool) {
	t.moved = t.moved || t.cfg.KeepAll != keep
	t.cfg.KeepAll = keep
}

// SetParking changes how jobs are parked from now on. What is parked stays so.
func (t *Turn) SetParking(p Parking) {
	t.cfg.Parking, t.moved = p, true
	for _, a := range t.attempts.parked {
		if t.boundParked(a.job) {
			t.enqueue(a.job)
		}
	}
	t.line.estimateAgain(t.Now)
}

// SetIdle changes when a job that leaves its cards, or its CPUs, unused is
// reported and cancelled; 0: never.
func (t *Turn) SetIdle(after, cancel time.Duration) {
	t.cfg.IdleAfter, t.cfg.IdleCancel = after, cancel
}

// SetOveruse changes when a job that uses far more memory than it declared is
// ended.
func (t *Turn) SetOveruse(o Overuse) { t.cfg.Overuse = o }

// Recall learns from the newest ended jobs, oldest first. It comes before
// Restore. Without it only the estimates are worse.
func (t *Turn) Recall(newest func(most int) ([]*job.Job, error)) { t.line.recall(newest) }

// RestoreUsage takes over the usage from an earlier berth.
func (t *Turn) RestoreUsage(meta func(key string) (string, error)) error {
	return t.line.usage.restore(meta)
}

// RestoreHealth takes over the health of the cards from an earlier berth.
func (t *Turn) RestoreHealth(meta func(key string) (string, error)) error {
	return t.cards.restoreHealth(meta)
}

// ForgetHealth deletes the stored health of the cards.
func (t *Turn) ForgetHealth() { t.changes.meta[healthKey] = "" }

// RestorePauses takes over the paused cards from an earlier berth.
func (t *Turn) RestorePauses(meta func(key string) (string, error)) error {
	return t.cards.restorePauses(meta)
}

// observe takes in a reading of the cards, or its failure. A failed reading
// starts nothing and ends nothing.
func (t *Turn) observe(s gpu.Sample, err error) {
	first := t.cards.at.IsZero()
	if !t.cards.look(t.Now, s, err, t.work(), t.attempts.inUse) {
		return
	}
	if (first || t.line.queue.Len() == 0) && t.cards.glanceAtOthers(t.attempts.runs) {
		t.attempts.setOwners()
	}
	if first {
		t.attempts.forgetStuck(t.Now)
	}
	t.cards.measure(t.attempts.holdings())
	t.attempts.compare(t.Now)
	t.vouch(append(t.attempts.settle(t.Now), t.attempts.watchOveruse(t.Now, t.harms())...))
	t.cards.checkLeft(t.Now)
	t.attempts.watchIdle(t.Now)
	t.record()
}

// work is why the cards should be read.
func (t *Turn) work() work {
	return work{queued: t.line.queue.Len() > 0, running: len(t.attempts.active) > 0, closely: t.attempts.closely(t.Now)}
}

// absorb takes in a supervisor's event. It is in memory at once and on disk
// after the next round; until then it is not acknowledged.
func (t *Turn) absorb(ev run.Event) {
	a := t.attempts.heldBy(&ev)
	if s := t.attempts.strays[ev.Token]; a == nil && s != nil {
		if ev.Kind == run.Parking {
			s.park = ev.Park // it counts once the stray is adopted
			return
		}
		t.strayOver(ev)
		return
	}
	if a == nil {
		t.cfg.Log.Warn("a supervisor reported on a job it does not hold", "kind", ev.Kind, "token", ev.Token, "job", ev.Job, "attempt", ev.Attempt)
		if ev.Kind.Final() {
			t.attempts.acks = append(t.attempts.acks, ev.Token)
		}
		return
	}
	t.attempts.remarked(t.Now, a, ev.Record.Note)
	t.attempts.hinders(t.Now, a, ev)
	switch ev.Kind {
	case run.Started:
		t.attempts.setOwners()
		t.attempts.limitMemory(a, ev.Record.Cgroup, t.door)
	case run.Ended:
		t.ended(a, ev)
	case run.Parking:
		t.parking(a, ev.Park)
	case run.NeverRan:
		t.stillborn(a)
	case run.Lost:
		t.lost(a, ev.Record)
	}
}
