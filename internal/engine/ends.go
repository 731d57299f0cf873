package engine

import (
	"syscall"
	"time"

	"berth/internal/engine/judge"
	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/run"
	"berth/internal/sched"
)

func (t *Turn) ended(a *attempt, ev run.Event) {
	j := a.job
	if ev.Record.Scarce && j.Spec.Adopt == nil {
		t.neverRan(a, ev.Record.Launch, t.Now.Add(notNowDelay))
		return
	}
	if t.halted(j, ev.Record) {
		ev.Record.Stop = string(job.StopInterrupt)
	}
	t.attempts.uses.measured(a)
	r := judge.Attempt(j, judge.End{
		Record: ev.Record, OOM: ev.OOM, Peaks: j.PeakMiB, Now: t.Now,
		CapMiB: t.capMiB(sched.NewRequest(j.Spec, j.VRAMMiB, t.cfg.Rules)),
	})
	j.ExitCode, j.Signal, j.LogDropped = nil, "", ev.Record.LogDropped
	switch {
	case j.Spec.Adopt != nil: // the record is that of its watcher
	case ev.Record.Signal != 0:
		j.Signal = keep.SignalName(ev.Record.Signal)
	case ev.Record.Launch == "":
		code := ev.Record.ExitCode
		j.ExitCode = &code
	}
	if r.Outcome != "" && r.Outcome.State() == job.Failed || r.Again == job.EventRetry {
		r.Detail = a.blame(r.Detail)
	}
	at := endOf(j, ev.Record, t.Now)
	t.releaseAt(a, at)
	if r.Outcome != "" {
		t.queue.finishAt(j, r.Outcome, r.Detail, at)
		return
	}
	t.queue.back(j, r)
}

// halted reports whether a job that ended without berth's doing was stopped
// together with berth.
func (t *Turn) halted(j *job.Job, r keep.Record) bool {
	if t.cfg.Halted == nil || r.Stop != "" || r.Launch != "" || r.SetupFailed || j.Spec.Adopt != nil {
		return false
	}
	at := endOf(j, r, t.Now)
	if at.Before(t.cfg.LostBefore) {
		return j.Spec.Requeue && (r.Signal == int(syscall.SIGKILL) || r.Signal == int(syscall.SIGTERM))
	}
	return t.cfg.Halted(at, r.Signal == 0 && r.ExitCode == 0)
}

// endOf is when an attempt ended, by the supervisor's monotonic clock, even if
// berth learns of it much later.
func endOf(j *job.Job, r keep.Record, now time.Time) time.Time {
	if r.Elapsed <= 0 || j.StartedAt.IsZero() {
		return now
	}
	return j.StartedAt.Add(r.Elapsed)
}

// notBefore is at, or the earliest it can have been: the clock may have been set
// back in between.
func notBefore(at, earliest time.Time) time.Time {
	if at.Before(earliest) {
		return earliest
	}
	return at
}

// finish ends a job that is not running.
func (q *Queue) finish(j *job.Job, outcome job.Outcome, detail string) {
	q.finishAt(j, outcome, detail, q.changes.now)
}

// finishAt ends a job, and those whose dependency on it failed. A long chain is
// worked off in a loop.
func (q *Queue) finishAt(j *job.Job, outcome job.Outcome, detail string, at time.Time) {
	over := []*job.Job{q.over(j, outcome, detail, at)}
	for ; len(over) > 0; over = over[1:] {
		for _, b := range q.line.settle(q.changes.now, over[0]) {
			over = append(over, q.over(b.job, job.Depends, b.why, q.changes.now))
		}
	}
}

// over records how a job ended.
func (q *Queue) over(j *job.Job, outcome job.Outcome, detail string, at time.Time) *job.Job {
	q.line.unqueue(j.ID)
	if j.State == job.Queued && q.cfg.TellQueued {
		// Its arrival may not be published yet, and must be as it was then.
		j = j.Clone()
	}
	j.MustTo(outcome.State())
	j.Outcome, j.Detail = outcome, detail
	j.EndedAt = notBefore(at, j.StartedAt)
	q.line.roster.forget(j)
	q.changes.fact(j)
	q.tell(job.EventEnded, j, detail)
	q.line.learn(q.changes.now, j)
	return j
}

// back returns a job to the queue for another attempt.
func (q *Queue) back(j *job.Job, r judge.Ruling) {
	j.MustTo(job.Queued)
	ended := j.Attempt
	j.Attempt = ended.Past()
	j.Detail, j.NotBefore = r.Detail, r.NotBefore
	if !r.Preempted {
		j.PreemptedFor = ""
	}
	if !r.NeverRan {
		j.WaitsSince = q.changes.now
	}
	if r.Preempted {
		j.Preemptions++
	}
	if r.Retried {
		j.RetriesUsed++
	}
	if r.VramMiB > 0 {
		j.VRAMMiB = r.VramMiB
	}
	if r.ToTheEnd {
		j.Requeues++
		q.toTheEnd(j)
	}
	q.changes.fact(j)
	// The event has the attempt; the job itself has none now.
	j.Grant, j.OverGPUs, j.StartedAt = ended.Grant, ended.OverGPUs, ended.StartedAt
	q.tell(r.Again, j, r.Detail)
	if j.OverGPUs, j.StartedAt = 0, (time.Time{}); j.Spec.Adopt == nil {
		j.Grant = job.Grant{} // an adopted process stays where it is
	}
	if q.cfg.Wanted != nil && !q.cfg.Wanted(j.ID) {
		q.Withdraw(j.ID)
		return
	}
	q.enqueue(j)
}

// neverRan undoes a placement: the attempt does not count.
func (t *Turn) neverRan(a *attempt, why string, notBefore time.Time) {
	j := a.job
	stopped := j.Stop
	t.release(a)
	if stopped == job.StopCancel {
		t.queue.finish(j, job.WasCancelled, judge.Said(j, "cancelled before it started"))
		return
	}
	j.Attempt.Number--
	j.Log = ""
	t.queue.back(j, judge.Ruling{Again: job.EventRequeued, Detail: why, NotBefore: notBefore, NeverRan: true})
}

// stillborn undoes a placement whose supervisor died before the job started. If
// one after the other dies, perhaps because their program is only half written,
// trying again at once would wear out the disk.
func (t *Turn) stillborn(a *attempt) {
	var notBefore time.Time
	if t.Now.Sub(t.attempts.diedAt) < diedDelay {
		notBefore = t.Now.Add(diedDelay)
	}
	t.attempts.diedAt = t.Now
	t.neverRan(a, "its supervisor died before the job started", notBefore)
}

// lost ends a job whose supervisor died. The runner reports that only when none
// of its processes is left.
func (t *Turn) lost(a *attempt, r keep.Record) {
	j := a.job
	t.attempts.uses.measured(a)
	t.release(a)
	unanswered := ""
	if a.hindrance.silent != "" {
		unanswered = "; its supervisor did not answer and was killed, so its exit status is not known"
	}
	rebooted := r.BootID != "" && r.BootID != keep.BootID()
	switch {
	case j.Stop == job.StopCancel:
		t.queue.finish(j, job.WasCancelled, judge.Said(j, "cancelled while running")+unanswered)
	case wasTold(t.Now, j):
		t.queue.back(j, judge.Preempted(j))
	case j.Stop == job.StopRequeue:
		t.queue.back(j, judge.Ruling{Again: job.EventRequeued, Detail: judge.Said(j, "requeued")})
	case j.Stop == job.StopOveruse:
		t.queue.finish(j, job.Overuse, j.Detail+unanswered)
	case j.Stop == job.StopTimeout:
		t.rule(j, judge.Timeout(j), unanswered)
	case j.Stop == job.StopInterrupt && a.hindrance.silent != "":
		t.rule(j, judge.Interrupted, "")
	case rebooted && j.Spec.Requeue:
		t.queue.back(j, judge.Ruling{Again: job.EventRequeued, Detail: "the machine went down while it ran"})
	case j.Spec.Requeue && j.StartedAt.Before(t.cfg.LostBefore):
		t.queue.back(j, judge.Ruling{Again: job.EventRequeued, Detail: "it was killed with the allocation that it ran in"})
	case rebooted:
		t.queue.finish(j, job.Lost, "the machine went down while it ran")
	case j.Spec.Adopt != nil:
		t.queue.finish(j, job.Lost, "adopted: its supervisor died; "+judge.GoesOn(j))
	default:
		t.queue.finish(j, job.Lost, a.blame("its supervisor died, so its exit status is not known"))
	}
}

// rule does what was decided about the end of an attempt.
func (t *Turn) rule(j *job.Job, r judge.Ruling, more string) {
	if r.Detail += more; r.Outcome != "" {
		t.queue.finish(j, r.Outcome, r.Detail)
		return
	}
	t.queue.back(j, r)
}

func (t *Turn) release(a *attempt) { t.releaseAt(a, t.Now) }

// releaseAt frees the cards: the last process of the attempt was gone at that
// time.
func (t *Turn) releaseAt(a *attempt, at time.Time) {
	if t.cfg.Rules.Fair {
		t.line.usage.charge(t.Now, a.job, at, t.scale(), t.cfg.HalfLife)
	}
	t.attempts.release(t.Now, a)
}
