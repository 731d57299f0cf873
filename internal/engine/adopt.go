package engine

import (
	"fmt"
	"maps"
	"slices"

	"berth/internal/engine/journal"
	"berth/internal/engine/judge"
	"berth/internal/engine/waiting"
	"berth/internal/job"
	"berth/internal/run"
	"berth/internal/sched"
)

// A job can represent a process that berth did not start. The process is where
// it is, so the job does not queue: it starts on those cards whether it fits or
// not, and its supervisor only watches.

// Adopt accepts such a job, numbered and with the process in its spec. Like any
// other it exists once it is on disk, which done reports.
func (t *Turn) Adopt(j *job.Job, grant job.Grant, done func(error)) {
	if j.Spec.Adopt == nil {
		panic("bug: job " + j.ID + " is adopted and names no process")
	}
	t.Accept(journal.Batch{Jobs: []*job.Job{j}, Done: done})
	j.Grant = grant
}

// Adopted is the job that represents this process, if there is one.
func (t *Turn) Adopted(p job.Process) (id string, found bool) {
	for id, j := range t.line.Roster.Jobs {
		if j.Spec.Adopt != nil && *j.Spec.Adopt == p {
			return id, true
		}
	}
	t.changes.EachStaged(func(j *job.Job) {
		if j.Spec.Adopt != nil && *j.Spec.Adopt == p {
			id, found = j.ID, true
		}
	})
	return id, found
}

// OverLimit says why a limit keeps the user from holding one more job on this
// many cards; empty: none does. Adopted jobs that have not started yet count
// too, because they are not in the queue.
func (t *Turn) OverLimit(user string, cards int) string {
	limit, own := t.cfg.Limits.Users[user]
	if !own {
		limit = t.cfg.Limits.Default
	}
	var use sched.Use
	count := func(j *job.Job) {
		if j.User == user {
			use.Add(waiting.Holding(j))
		}
	}
	for _, a := range t.attempts.Active {
		count(t.attempts.Charged(a))
	}
	for id := range t.line.Adopted {
		count(t.line.Roster.Jobs[id])
	}
	t.changes.EachStaged(func(j *job.Job) {
		if j.Spec.Adopt != nil {
			count(j)
		}
	})
	switch {
	case limit.Jobs > 0 && use.Jobs >= limit.Jobs:
		return fmt.Sprintf("%s already runs %d jobs, which is the limit", user, use.Jobs)
	case limit.GPUs > 0 && use.GPUs+float64(cards) > limit.GPUs:
		return fmt.Sprintf("%s holds %g GPUs and this job needs %d more; the limit is %g", user, use.GPUs, cards, limit.GPUs)
	}
	return ""
}

// watchAdopted starts watching adopted processes. It runs after the decision,
// because their memory is in use already.
func (t *Turn) watchAdopted(decided []*job.Job) []*job.Job {
	if t.stopping || len(t.line.Adopted) == 0 {
		return decided
	}
	var planned []sched.Start
	for _, id := range slices.Sorted(maps.Keys(t.line.Adopted)) {
		j := t.line.Roster.Jobs[id]
		if !t.alive(*j.Spec.Adopt) {
			t.queue.Finish(j, job.Lost, judge.AdoptedEnded(j))
			continue
		}
		planned = append(planned, sched.Start{Job: id, Grant: j.Grant})
	}
	starts := t.lease(planned)
	if len(starts) == 0 {
		return decided
	}
	starts = append(decided, starts...)
	t.cards.Publish(t.Now, t.attempts.Holdings.Bookings(starts))
	return starts
}

func (t *Turn) alive(p job.Process) bool {
	if t.cfg.Alive != nil {
		return t.cfg.Alive(p)
	}
	return run.Alive(p)
}

// startText is the text of a job's start event.
func startText(j *job.Job) string {
	if j.Spec.Adopt == nil {
		return ""
	}
	return fmt.Sprintf("berth accounts for process %d from now on", j.Spec.Adopt.PID)
}
