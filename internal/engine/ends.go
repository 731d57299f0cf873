package engine

import (
	"syscall"
	"time"

	"berth/internal/engine/judge"
	"berth/internal/engine/running"
	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/reason"
	"berth/internal/run"
	"berth/internal/sched"
)

func (t *Turn) ended(a *running.Attempt, ev run.Event) {
	j := a.Job
	if ev.Record.Scarce && j.Spec.Adopt == nil {
		t.neverRan(a, ev.Record.Launch, t.Now.Add(notNowDelay))
		return
	}
	if t.halted(j, ev.Record) {
		ev.Record.Stop = string(job.StopInterrupt)
	}
	t.attempts.Uses.Measured(a)
	r := judge.Attempt(j, judge.End{
		Record: ev.Record, OOM: ev.OOM, Peaks: j.PeakMiB, Now: t.Now,
		CapMiB: t.line.Room.CapMiB(t.Now, sched.NewRequest(j.Spec, j.VRAMMiB, t.cfg.Rules)),
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
		r.Detail = a.Blame(r.Detail)
	}
	at := endOf(j, ev.Record, t.Now)
	t.releaseAt(a, at)
	if r.Outcome != "" {
		t.queue.FinishAt(j, r.Outcome, r.Detail, at)
		return
	}
	t.queue.Back(j, r)
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

// neverRan undoes a placement: the attempt does not count.
func (t *Turn) neverRan(a *running.Attempt, why string, notBefore time.Time) {
	j := a.Job
	stopped := j.Stop
	t.release(a)
	if stopped == job.StopCancel {
		t.queue.Finish(j, job.WasCancelled, judge.Said(j, "cancelled before it started"))
		return
	}
	j.Attempt.Number--
	j.Log = ""
	t.queue.Back(j, judge.Ruling{Again: job.EventRequeued, Detail: why, NotBefore: notBefore, NeverRan: true})
}

// stillborn undoes a placement whose supervisor died before the job started. If
// one after the other dies, perhaps because their program is only half written,
// trying again at once would wear out the disk.
func (t *Turn) stillborn(a *running.Attempt) {
	var notBefore time.Time
	if t.Now.Sub(t.attempts.DiedAt) < diedDelay {
		notBefore = t.Now.Add(diedDelay)
	}
	t.attempts.DiedAt = t.Now
	t.neverRan(a, "its supervisor died before the job started", notBefore)
}

// lost ends a job whose supervisor died. The runner reports that only when none
// of its processes is left.
func (t *Turn) lost(a *running.Attempt, r keep.Record) {
	j := a.Job
	t.attempts.Uses.Measured(a)
	t.release(a)
	unanswered := ""
	if a.Hindrance.Silent != "" {
		unanswered = "; its supervisor did not answer and was killed, so its exit status is not known"
	}
	rebooted := r.BootID != "" && r.BootID != keep.BootID()
	switch {
	case j.Stop == job.StopCancel:
		t.queue.Finish(j, job.WasCancelled, judge.Said(j, "cancelled while running")+unanswered)
	case wasTold(t.Now, j):
		t.queue.Back(j, judge.Preempted(j))
	case j.Stop == job.StopRequeue:
		t.queue.Back(j, judge.Ruling{Again: job.EventRequeued, Detail: judge.Said(j, "requeued")})
	case j.Stop == job.StopOveruse:
		t.queue.Finish(j, job.Overuse, j.Detail+unanswered)
	case j.Stop == job.StopTimeout:
		t.rule(j, judge.Timeout(j), unanswered)
	case j.Stop == job.StopInterrupt && a.Hindrance.Silent != "":
		t.rule(j, judge.Interrupted, "")
	case rebooted && j.Spec.Requeue:
		t.queue.Back(j, judge.Ruling{Again: job.EventRequeued, Detail: "the machine went down while it ran"})
	case j.Spec.Requeue && j.StartedAt.Before(t.cfg.LostBefore):
		t.queue.Back(j, judge.Ruling{Again: job.EventRequeued, Detail: "it was killed with the allocation that it ran in"})
	case rebooted:
		t.queue.Finish(j, job.Lost, "the machine went down while it ran")
	case j.Spec.Adopt != nil:
		t.queue.Finish(j, job.Lost, "adopted: its supervisor died; "+judge.GoesOn(j))
	default:
		t.queue.Finish(j, job.Lost, a.Blame("its supervisor died, so its exit status is not known"))
	}
}

// rule does what was decided about the end of an attempt.
func (t *Turn) rule(j *job.Job, r judge.Ruling, more string) {
	if r.Detail += more; r.Outcome != "" {
		t.queue.Finish(j, r.Outcome, r.Detail)
		return
	}
	t.queue.Back(j, r)
}

func (t *Turn) release(a *running.Attempt) { t.releaseAt(a, t.Now) }

// releaseAt frees the cards: the last process of the attempt was gone at that
// time.
func (t *Turn) releaseAt(a *running.Attempt, at time.Time) {
	if t.cfg.Rules.Fair {
		t.line.Usage.Charge(t.Now, a.Job, at, t.scale(), t.cfg.HalfLife)
	}
	t.attempts.Release(t.Now, a)
}

// wasTold reports whether a victim had, or may have had, its TERM: a berth that
// was killed cannot say whether it sent it.
func wasTold(now time.Time, j *job.Job) bool {
	return j.Stop == job.StopPreempt && !j.PreemptAt.After(now)
}

// afterPreemption puts the preemption before the reason of a job that waits
// again.
func afterPreemption(j *job.Job, why string) string {
	if j == nil || j.State != job.Queued {
		return why
	}
	return reason.AfterPreemption(j.PreemptedFor, why)
}
