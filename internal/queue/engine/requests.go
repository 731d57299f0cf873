package engine

import (
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/judge"
	"berth/internal/queue/engine/running"
)

// Requests is what users ask of jobs, wherever these are.
type Requests struct{ *parts }

// Health is what users say about cards.
type Health struct{ *parts }

// Accept takes jobs of a request that waits for the answer. They exist only once
// they are on disk: a failed commit refuses them, and they are not tried again.
func (r *Requests) Accept(b journal.Batch) {
	if err := present(r.parts); err != nil {
		b.Done(err)
		return
	}
	for _, j := range b.Jobs {
		j.Submitted(r.changes.Now)
		j.VRAMMiB = j.Spec.VRAMMiB
	}
	r.changes.Stage(b)
}

// Cancel ends a queued job at once, and a running one through its supervisor
// after that is on disk.
func (r *Requests) Cancel(id, detail string) bool {
	j := r.line.Roster.Get(id)
	if j == nil {
		return false
	}
	if j.HandedOver() {
		r.remote.Stop(j, job.StopCancel, detail)
		return true
	}
	if j.State == job.Queued {
		r.queue.Finish(j, job.WasCancelled, detail)
		return true
	}
	r.stop(j, job.StopCancel, j.Spec.Grace, "")
	return true
}

// stop stops a job that its supervisor holds; a parked one does not come back.
func (r *Requests) stop(j *job.Job, why job.Stop, grace time.Duration, detail string) {
	if j.HandedOver() {
		r.remote.Stop(j, why, detail)
		return
	}
	if j.State == job.Parked {
		r.line.Unqueue(j.ID)
	}
	r.attempts.Stop(r.changes.Now, j, why, grace, detail)
}

// CancelBy is Cancel for a user, whose name the job will carry, with this much
// time between TERM and KILL.
func (r *Requests) CancelBy(id, by string, grace time.Duration) bool {
	j := r.line.Roster.Get(id)
	if j == nil || j.State == job.Queued {
		return r.Cancel(id, "cancelled by "+by)
	}
	detail := "cancelled by " + by + " while " + string(j.State)
	if j.Spec.Adopt != nil {
		detail = "cancelled by " + by + ": " + judge.GoesOn(j)
	}
	r.stop(j, job.StopCancel, grace, detail)
	return true
}

// Requeue stops a running job and runs it again from the beginning. A cancelled
// one does not come back.
func (r *Requests) Requeue(id, by string, grace time.Duration) bool {
	j := r.line.Roster.Get(id)
	if j == nil || j.State != job.Running && j.State != job.Parked || j.Stop == job.StopCancel {
		return false
	}
	r.stop(j, job.StopRequeue, grace, "requeued by "+by)
	return true
}

// Saved records that a running job saved its work. It returns why that means nothing.
func (r *Requests) Saved(id string) (why string) {
	a := r.attempts.Active[id]
	switch {
	case a == nil:
		return "it is not running"
	case !a.Job.Saves():
		return "it was not submitted with --checkpoint"
	}
	a.Job.Checkpoints.Saved = r.changes.Now
	r.changes.Fact(a.Job)
	return ""
}

// Interrupt stops all running jobs, which go back to the queue, and starts
// nothing more. immediately skips the grace period.
func (r *Requests) Interrupt(immediately bool) {
	r.stopping, r.closed = true, false
	for _, held := range []map[string]*running.Attempt{r.attempts.Active, r.attempts.Parked} {
		for _, a := range held {
			grace := a.Job.Spec.Grace
			if immediately {
				grace = 0
			}
			r.stop(a.Job, job.StopInterrupt, grace, "")
		}
	}
}

// Pause stops jobs from starting on a card, or lets them start again; running
// jobs are not touched. It returns false if there is no such card.
func (h *Health) Pause(index int, paused bool, by string) bool {
	return h.cards.Pause(h.changes.Now, index, paused, by)
}

// Set sets a card's health for a user. It returns false if there is no
// such card.
func (h *Health) Set(index int, state gpu.HealthState, by, reason string) bool {
	return h.cards.SetHealth(h.changes.Now, index, state, by, reason)
}

// Tell records what a user did to one card or all.
func (h *Health) Tell(card job.CardChange, text string) {
	h.changes.TellCard(h.changes.Now, card, nil, text)
}

// Adopt accepts such a job, numbered and with the process in its spec. Like any
// other it exists once it is on disk, which done reports.
func (r *Requests) Adopt(j *job.Job, grant job.Grant, done func(error)) {
	if j.Spec.Adopt == nil {
		panic("bug: job " + j.ID + " is adopted and names no process")
	}
	r.Accept(journal.Batch{Jobs: []*job.Job{j}, Done: done})
	j.Grant = grant
}

// Adopted is the job that represents this process, if there is one.
func (r *Requests) Adopted(p job.Process) (id string, found bool) {
	look := func(j *job.Job) {
		if j.Spec.Adopt != nil && *j.Spec.Adopt == p {
			id, found = j.ID, true
		}
	}
	r.line.Roster.Each(0, func(j *job.Job) bool { look(j); return !found })
	r.changes.EachStaged(look)
	return id, found
}
