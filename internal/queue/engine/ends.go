package engine

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/judge"
	"berth/internal/queue/engine/running"
	"berth/internal/sched"
)

// ends takes in how attempts ended.
type ends struct {
	*parts
	explain *Explain
}

func (e *ends) ended(a *running.Attempt, ev run.Event) {
	j := a.Job
	if ev.Record.Scarce && j.Spec.Adopt == nil {
		e.neverRan(a, ev.Record.Launch, e.changes.Now.Add(notNowDelay))
		return
	}
	if e.halted(j, ev.Record) {
		ev.Record.Stop = string(job.StopInterrupt)
	}
	e.attempts.Uses.Measured(a)
	r := judge.Attempt(j, judge.End{
		Record: ev.Record, OOM: ev.OOM, Peaks: j.PeakMiB, Now: e.changes.Now,
		CapMiB: e.line.Room.CapMiB(e.changes.Now, sched.NewRequest(j.Spec, j.VRAMMiB, e.cfg.Rules)),
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
	at := endOf(j, ev.Record, e.changes.Now)
	if saved := lastSave(j, ev.Record, at); saved.After(j.Checkpoints.Saved) {
		j.Checkpoints.Saved = saved
	}
	e.freeGPUsAt(a, at)
	if r.Outcome != "" {
		e.queue.FinishAt(j, r.Outcome, r.Detail, at)
		return
	}
	e.again(j, r, at)
}

// lastSave is when an attempt that ended at that time last saved, as far as its end
// tells: its file is newer than its start, or it did what it promised. It was told to
// stop, and ended within its grace period as programs do that have saved.
func lastSave(j *job.Job, r keep.Record, at time.Time) (saved time.Time) {
	const byTERM = 128 + int(syscall.SIGTERM)
	switch {
	case j.Spec.SavesTo != "":
		if r.Saved.After(at) {
			return at // the clock of a file server is ahead
		}
		if r.Saved.After(j.StartedAt) {
			return r.Saved
		}
	case j.Spec.Checkpoint == job.CheckpointTold && r.Stop != "" && r.Signal == 0 && (r.ExitCode == 0 || r.ExitCode == byTERM):
		return at
	}
	return time.Time{}
}

// again runs a job again whose attempt ended at that time.
func (e *ends) again(j *job.Job, r judge.Ruling, at time.Time) {
	j.GoesOn(at, e.cfg.Rules.Restart())
	e.queue.Back(j, r)
}

// halted reports whether a job that ended without berth's doing was stopped
// together with berth.
func (e *ends) halted(j *job.Job, r keep.Record) bool {
	if e.cfg.Halted == nil || r.Stop != "" || r.Launch != "" || r.SetupFailed || j.Spec.Adopt != nil {
		return false
	}
	at := endOf(j, r, e.changes.Now)
	if at.Before(e.cfg.LostBefore) {
		return j.Spec.Requeue && (r.Signal == int(syscall.SIGKILL) || r.Signal == int(syscall.SIGTERM))
	}
	return e.cfg.Halted(at, r.Elapsed, r.Signal == 0 && r.ExitCode == 0)
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
func (e *ends) neverRan(a *running.Attempt, why string, notBefore time.Time) {
	j := a.Job
	stopped := j.Stop
	e.freeGPUs(a)
	if stopped == job.StopCancel {
		e.queue.Finish(j, job.WasCancelled, judge.Said(j, "cancelled before it started"))
		return
	}
	j.Attempt.Number--
	j.Log = ""
	e.queue.Back(j, judge.Ruling{Again: job.EventRequeued, Detail: why, NotBefore: notBefore, NeverRan: true})
}

// stillborn undoes a placement whose supervisor died before the job started. If
// one after the other dies, perhaps because their program is only half written,
// trying again at once would wear out the disk.
func (e *ends) stillborn(a *running.Attempt) {
	var notBefore time.Time
	if e.changes.Now.Sub(e.attempts.DiedAt) < diedDelay {
		notBefore = e.changes.Now.Add(diedDelay)
	}
	e.attempts.DiedAt = e.changes.Now
	e.neverRan(a, "its supervisor died before the job started", notBefore)
}

// lost ends a job whose supervisor died. The runner reports that only when none
// of its processes is left.
func (e *ends) lost(a *running.Attempt, r keep.Record) {
	j := a.Job
	e.attempts.Uses.Measured(a)
	e.freeGPUs(a)
	unanswered := ""
	if a.Hindrance.Silent != "" {
		unanswered = "; its supervisor did not answer and was killed, so its exit status is not known"
	}
	rebooted := r.BootID != "" && r.BootID != keep.BootID()
	switch {
	case j.Stop == job.StopCancel:
		e.queue.Finish(j, job.WasCancelled, judge.Said(j, "cancelled while running")+unanswered)
	case wasTold(e.changes.Now, j):
		e.again(j, judge.Preempted(j), e.changes.Now)
	case j.Stop == job.StopRequeue:
		e.again(j, judge.Ruling{Again: job.EventRequeued, Detail: judge.Said(j, "requeued")}, e.changes.Now)
	case j.Stop == job.StopOveruse:
		e.queue.Finish(j, job.Overuse, j.Detail+unanswered)
	case j.Stop == job.StopTimeout:
		e.rule(j, judge.Timeout(j), unanswered)
	case j.Stop == job.StopInterrupt && a.Hindrance.Silent != "":
		e.rule(j, judge.Interrupted, "")
	case rebooted && j.Spec.Requeue:
		e.again(j, judge.Ruling{Again: job.EventRequeued, Detail: "the machine went down while it ran"}, e.changes.Now)
	case j.Spec.Requeue && j.StartedAt.Before(e.cfg.LostBefore):
		e.again(j, judge.Ruling{Again: job.EventRequeued, Detail: "it was killed with the allocation that it ran in"}, e.changes.Now)
	case rebooted:
		e.queue.Finish(j, job.Lost, "the machine went down while it ran")
	case j.Spec.Adopt != nil:
		e.queue.Finish(j, job.Lost, "adopted: its supervisor died; "+judge.GoesOn(j))
	default:
		e.queue.Finish(j, job.Lost, a.Blame("its supervisor died, so its exit status is not known"))
	}
}

// rule does what was decided about the end of an attempt.
func (e *ends) rule(j *job.Job, r judge.Ruling, more string) {
	if r.Detail += more; r.Outcome != "" {
		e.queue.Finish(j, r.Outcome, r.Detail)
		return
	}
	e.again(j, r, e.changes.Now)
}

func (e *ends) freeGPUs(a *running.Attempt) { e.freeGPUsAt(a, e.changes.Now) }

// freeGPUsAt frees the cards: the last process of the attempt was gone at that
// time.
func (e *ends) freeGPUsAt(a *running.Attempt, at time.Time) {
	if e.cfg.Rules.Fair {
		e.line.Usage.Charge(e.changes.Now, a.Job, at, e.explain.scale(), e.cfg.HalfLife)
	}
	e.attempts.Release(e.changes.Now, a)
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

// refused ends a job whose order the runner rejected: nothing ran, and no event
// will follow.
func (e *ends) refused(j *job.Job, err error) {
	a, token := e.attempts.Active[j.ID], j.Keep
	e.cfg.Log.Error("cannot start a job", "job", j.ID, "token", token, "err", err)
	// There is nothing to acknowledge, and the supervisor may have another job
	// by then.
	defer func() {
		e.attempts.Acks = slices.DeleteFunc(e.attempts.Acks, func(other string) bool { return other == token })
	}()
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if (full || diskFails(err) || errors.Is(err, ErrNotNow)) && j.Stop != job.StopCancel {
		e.neverRan(a, err.Error(), e.changes.Now.Add(notNowDelay))
		e.attempts.Runner.Release(token)
		return
	}
	e.freeGPUs(a)
	e.attempts.Runner.Release(token)
	e.queue.Finish(j, job.Launch, err.Error())
}
