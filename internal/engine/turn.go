package engine

import (
	"strconv"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/run"
	"berth/internal/sched"
)

// Turn is the engine at a moment, in the hands of the only function that may
// touch it: a request, or a step of the loop. It ends when that returns.
type Turn struct {
	Now time.Time
	*core
}

func (e *Engine) at(now time.Time) *Turn { return &Turn{now, e.core} }

func (t *Turn) tell(kind job.EventKind, j *job.Job, text string) {
	t.changes.tell(t.Now, kind, j, text)
}

// Number gives new jobs their ids, so that they can name one another before
// they are submitted.
func (t *Turn) Number(jobs []*job.Job) {
	for _, j := range jobs {
		j.Seq = t.nextSeq
		t.nextSeq++
		j.ID = strconv.FormatInt(j.Seq, 10)
	}
}

// NextRank is a place behind everything that is queued now.
func (t *Turn) NextRank() int64 { return t.nextSeq }

// Submit takes numbered jobs. Spec, Key, Rank and User are the caller's; the
// rest is filled in. They are on disk, and announced, after the next round.
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

// Accept takes jobs from someone who waits for the answer. They exist once
// they are on disk, and not a moment sooner: a commit that fails refuses them,
// and what was never acknowledged is not tried again.
func (t *Turn) Accept(b Batch) {
	for _, j := range b.Jobs {
		j.Submitted(t.Now)
		j.VRAMMiB = j.Spec.VRAMMiB
	}
	t.changes.stage(b)
}

// admit makes the staged jobs the queue's: they are on disk now.
func (t *Turn) admit(batches []Batch) {
	for _, b := range batches {
		for _, j := range b.Jobs {
			if t.cfg.TellQueued {
				t.changes.arrive(t.Now, j.Clone())
			}
		}
		t.enqueueAll(b.Jobs)
		t.admitted = true
		b.Done(nil)
	}
}

// Again puts jobs that are over back into the queue, because a person asked.
func (t *Turn) Again(jobs []*job.Job) {
	for _, j := range jobs {
		j.MustTo(job.Queued)
		j.Attempt = j.Attempt.None()
		j.Outcome, j.Detail, j.PreemptedFor = "", "", ""
		j.NotBefore, j.WaitsSince = time.Time{}, t.Now
		j.RetriesUsed, j.Requeues, j.Preemptions = 0, 0, 0
		t.changes.fact(j)
		t.tell(job.EventRequeued, j, "run again as asked")
	}
	t.enqueueAll(jobs)
}

// enqueueAll queues jobs that may wait for one another: all are known before any
// is queued.
func (t *Turn) enqueueAll(jobs []*job.Job) {
	for _, j := range jobs {
		t.line.know(j)
	}
	for _, j := range jobs {
		t.enqueue(j)
	}
}

// enqueue puts a queued job where it belongs, or ends one that can never start.
func (t *Turn) enqueue(j *job.Job) {
	if broken := t.line.enqueue(t.Now, j); broken != "" {
		t.finish(j, job.Depends, broken)
	}
}

// queued is a job that waits, or nil.
func (t *Turn) queued(id string) *job.Job {
	if j := t.line.jobs[id]; j != nil && j.State == job.Queued {
		return j
	}
	return nil
}

// Edit applies a changed spec or place in line to a queued job.
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
		t.changes.fact(j)
	}
	j.Rank = rank
	t.enqueue(j)
}

// Begin changes before when a queued job may not start.
func (t *Turn) Begin(id string, notBefore time.Time) {
	if j := t.queued(id); j != nil {
		j.NotBefore = notBefore
		t.changes.fact(j)
		t.enqueue(j)
	}
}

// requeueOffset is more than the lines a jobs file may have.
const requeueOffset = int64(1) << 32

// toTheEnd moves a job behind everything that is queued now.
func (t *Turn) toTheEnd(j *job.Job) {
	if t.cfg.Submissions {
		j.Rank = t.nextSeq
		return
	}
	j.Rank += requeueOffset
}

// Withdraw forgets a queued job as if it had never been asked for.
func (t *Turn) Withdraw(id string) bool {
	j := t.queued(id)
	if j == nil {
		return false
	}
	t.line.unqueue(id)
	t.line.forget(j)
	t.changes.forget(id)
	t.tell(job.EventDequeued, j, "")
	return true
}

// Cancel ends a job: a queued one at once, a running one through its
// supervisor after the intent is on disk.
func (t *Turn) Cancel(id, detail string) bool {
	j := t.line.jobs[id]
	if j == nil {
		return false
	}
	if j.State == job.Queued {
		t.finish(j, job.WasCancelled, detail)
		return true
	}
	t.attempts.stop(t.Now, j, job.StopCancel, j.Spec.Grace)
	return true
}

// CancelBy is Cancel for a person, whose name the job will carry, with that
// much time between TERM and KILL.
func (t *Turn) CancelBy(id, by string, grace time.Duration) bool {
	j := t.line.jobs[id]
	if j == nil || j.State == job.Queued {
		return t.Cancel(id, "cancelled by "+by)
	}
	if j.Stop != job.StopCancel {
		j.Detail = "cancelled by " + by + " while it ran"
		if j.Spec.Adopt != nil {
			j.Detail = "cancelled by " + by + ": " + GoesOn(j)
		}
	}
	t.attempts.stop(t.Now, j, job.StopCancel, grace)
	return true
}

// Requeue ends a running job and runs it again from its beginning. One that is
// given up already does not come back.
func (t *Turn) Requeue(id, by string, grace time.Duration) bool {
	j := t.line.jobs[id]
	if j == nil || j.State != job.Running || j.Stop == job.StopCancel {
		return false
	}
	if j.Stop == job.NoStop || j.Stop == job.StopPreempt {
		j.Detail = "requeued by " + by
	}
	t.attempts.stop(t.Now, j, job.StopRequeue, grace)
	return true
}

// Hold keeps a queued job, or one that is being set aside, from starting until
// it is released.
func (t *Turn) Hold(id, by string) bool { return t.setHeld(id, true, job.EventHeld, "held by "+by) }

// Release lets a held job go.
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
	t.changes.fact(j)
	t.tell(kind, j, text)
	if j.State == job.Queued {
		t.enqueue(j)
	}
	return true
}

// Interrupt stops everything that runs and starts nothing more; the jobs go
// back to the queue. Who asks again, immediately, does not wait.
func (t *Turn) Interrupt(immediately bool) {
	t.stopping = true
	for _, a := range t.attempts.active {
		grace := a.job.Spec.Grace
		if immediately {
			grace = 0
		}
		t.attempts.stop(t.Now, a.job, job.StopInterrupt, grace)
	}
}

// Retire makes a berth that has nothing to do take no more jobs. It reports
// false, and changes nothing, where there is something to do.
func (t *Turn) Retire() bool {
	if t.Size() > 0 || !t.Written() {
		return false
	}
	t.stopping = true
	return true
}

// Then calls f once what was asked for so far is on disk, or could not be
// written.
func (t *Turn) Then(f func(error)) { t.changes.thens = append(t.changes.thens, f) }

// Pause keeps new jobs off a card, or lets them on again; what runs there is
// not touched. It reports false for a card that does not exist.
func (t *Turn) Pause(index int, paused bool, by string) bool {
	return t.cards.pause(t.Now, index, paused, by)
}

// SetHealth is a person's word about a card. It reports false for a card that
// does not exist.
func (t *Turn) SetHealth(index int, state gpu.HealthState, by, reason string) bool {
	return t.cards.setHealth(t.Now, index, state, by, reason)
}

// TellCard writes down what a person did to a card or to all.
func (t *Turn) TellCard(card job.CardChange, text string) { t.changes.tellCard(t.Now, card, nil, text) }

// SetRules changes how jobs are placed from now on. What runs is not touched.
func (t *Turn) SetRules(rules sched.Rules, limits Limits) {
	t.cfg.Rules, t.cfg.Limits = rules, limits
	t.cards.meter.SetSpikeBuffer(rules.SpikeBuffer)
	t.line.setRules(t.Now, rules)
}

// SetKeepAll says whether every running job stays on its cards, also one that
// may be set aside. One that was told to leave leaves.
func (t *Turn) SetKeepAll(keep bool) {
	t.moved = t.moved || t.cfg.KeepAll != keep
	t.cfg.KeepAll = keep
}

// SetIdle changes after how long a job that holds device memory and does not
// use its cards is told of, and after how long it is cancelled; 0: never.
func (t *Turn) SetIdle(after, cancel time.Duration) {
	t.cfg.IdleAfter, t.cfg.IdleCancel = after, cancel
}

// Recall takes in how the newest jobs ended before this engine was there, the
// oldest of them first. It comes before Restore. Without it berth guesses worse
// and does all else as well.
func (t *Turn) Recall(newest func(most int) ([]*job.Job, error)) { t.line.recall(newest) }

// RestoreUsage takes over what an earlier berth had counted.
func (t *Turn) RestoreUsage(meta func(key string) (string, error)) error {
	return t.line.usage.restore(meta)
}

// RestoreHealth takes over how the cards stood for an earlier berth.
func (t *Turn) RestoreHealth(meta func(key string) (string, error)) error {
	return t.cards.restoreHealth(meta)
}

// ForgetHealth has the store forget how the cards stood for an earlier berth.
func (t *Turn) ForgetHealth() { t.changes.meta[healthKey] = "" }

// RestorePauses takes over which cards an earlier berth had paused.
func (t *Turn) RestorePauses(meta func(key string) (string, error)) error {
	return t.cards.restorePauses(meta)
}

// observe takes in one look at the cards, or the failure to get one. A failed
// look starts nothing and ends nothing.
func (t *Turn) observe(s gpu.Sample, err error) {
	first := t.cards.at.IsZero()
	if !t.cards.look(t.Now, s, err, t.work(), t.attempts.inUse) {
		return
	}
	if (first || t.line.queue.Len() == 0) && t.cards.glanceAtOthers(t.attempts.runs) {
		t.attempts.setOwners()
	}
	t.cards.measure(t.attempts.holdings(t.Now))
	t.attempts.compare(t.Now)
	t.cards.checkLeft(t.Now)
	t.attempts.watchIdle(t.Now)
}

// work is what there is to look at the cards for.
func (t *Turn) work() work {
	return work{queued: t.line.queue.Len() > 0, running: len(t.attempts.active) > 0, closely: t.attempts.closely(t.Now)}
}

// absorb takes in what a supervisor said. The facts are in memory at once and
// on disk after the next round; until then nothing is acknowledged.
func (t *Turn) absorb(ev run.Event) {
	a := t.attempts.heldBy(&ev)
	if a == nil {
		t.cfg.Log.Warn("a supervisor spoke of a job it does not hold", "kind", ev.Kind, "token", ev.Token, "job", ev.Job, "attempt", ev.Attempt)
		if ev.Kind != run.Started {
			t.attempts.acks = append(t.attempts.acks, ev.Token)
		}
		return
	}
	t.attempts.remarked(t.Now, a, ev.Record.Note)
	switch ev.Kind {
	case run.Started:
		t.attempts.setOwners()
		t.attempts.limitMemory(a, ev.Record.Cgroup, t.door)
	case run.Ended:
		t.ended(a, ev)
	case run.NeverRan:
		t.neverRan(a, "its supervisor died before anything ran", time.Time{})
	case run.Lost:
		t.lost(a, ev.Record)
	}
}
