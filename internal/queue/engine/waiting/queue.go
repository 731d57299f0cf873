package waiting

import (
	"cmp"
	"reflect"
	"strconv"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/judge"
	"berth/internal/queue/engine/settings"
)

func (q *Queue) Tell(kind job.EventKind, j *job.Job, text string) {
	q.Changes.Tell(q.Changes.Now, kind, j, text)
}

// Queue is the requests about unfinished jobs, and what becomes of them.
type Queue struct {
	Line    *Line
	Changes *journal.Journal
	Cfg     *settings.Settings
	NextSeq int64
}

// Number assigns ids to new jobs, so that they can refer to one another before
// they are submitted; one that has a number keeps it. Where jobs arrive one by one,
// it gives them their places too.
func (q *Queue) Number(jobs []*job.Job) {
	for _, j := range jobs {
		if q.Cfg.Submissions {
			j.Rank = q.TakeRank()
		}
		if j.Seq == 0 {
			j.Seq = q.NextSeq
			q.NextSeq++
		}
		j.ID = strconv.FormatInt(j.Seq, 10)
	}
}

// TakeRank gives out a place behind every other. It is the next number, unless
// jobs that were sent to the end of the queue have that already.
func (q *Queue) TakeRank() int64 {
	q.Line.Roster.Last = max(q.NextSeq, q.Line.Roster.Last+1)
	return q.Line.Roster.Last
}

// Submit queues numbered jobs. The caller sets Spec, Key, User and, for the lines
// of a jobs file, Rank. They are on disk, and published, after the next round.
func (q *Queue) Submit(jobs []*job.Job) {
	for _, j := range jobs {
		j.Submitted(q.Changes.Now)
		j.User = cmp.Or(j.User, q.Cfg.User)
		j.VRAMMiB = j.Spec.VRAMMiB
		q.Changes.Fact(j)
		if q.Cfg.TellQueued {
			q.Changes.Arrive(q.Changes.Now, j)
		}
	}
	q.EnqueueAll(jobs)
}

// Never says why a job that has ended could not start again: what it depends on
// did not end as it needs. Empty: it may start, or it is not known.
func (q *Queue) Never(j *job.Job) string {
	_, _, broken, err := q.Line.Conditions.weigh(q.Changes.Now, j, j.Spec.After, nil, nil)
	if err != nil {
		return "" // Enqueue looks again later
	}
	return broken
}

// Again requeues ended jobs for a user.
func (q *Queue) Again(jobs []*job.Job) {
	for _, j := range jobs {
		j.MustTo(job.Queued)
		j.Attempt, j.Handover, j.Checkpoints = j.Attempt.None(), job.Handover{}, job.Checkpoints{}
		j.Outcome, j.Detail, j.PreemptedFor = "", "", ""
		j.NotBefore, j.WaitsSince = time.Time{}, q.Changes.Now
		j.RetriesUsed, j.Requeues, j.Preemptions = 0, 0, 0
		q.Changes.Fact(j)
		q.Tell(job.EventRequeued, j, "requeued by its user")
	}
	q.EnqueueAll(jobs)
}

// EnqueueAll queues jobs that may depend on one another: all are known before
// any is queued.
func (q *Queue) EnqueueAll(jobs []*job.Job) {
	for _, j := range jobs {
		q.Line.Roster.Know(j)
	}
	for _, j := range jobs {
		q.Enqueue(j)
	}
}

// Enqueue queues a job, or ends one that can never start.
func (q *Queue) Enqueue(j *job.Job) {
	if broken := q.Line.Enqueue(q.Changes.Now, j); broken != "" {
		q.Finish(j, job.Depends, broken)
	}
}

// Queued is a queued job, or nil.
func (q *Queue) Queued(id string) *job.Job {
	if j := q.Line.Roster.Get(id); j != nil && j.State == job.Queued {
		return j
	}
	return nil
}

// Edit changes the spec or the place of a queued job.
func (q *Queue) Edit(id string, spec job.Spec, rank int64) {
	j := q.Queued(id)
	if j == nil {
		return
	}
	if j.Requeues > 0 && !q.Cfg.Submissions {
		// A job that was sent to the end of the queue stays behind the lines
		// that were there before it.
		rank += requeueOffset * int64(j.Requeues)
	}
	changed := !SameSpec(j.Spec, spec)
	if !changed && j.Rank == rank {
		return
	}
	if changed {
		if spec.VRAMMiB != j.Spec.VRAMMiB || spec.VRAMAuto != j.Spec.VRAMAuto {
			j.VRAMMiB = spec.VRAMMiB
		}
		j.Spec = spec
		q.Line.Roster.texts.weigh(j)
	}
	if j.Rank = rank; changed || q.Cfg.Submissions { // a jobs file of its own says the order again
		q.Changes.Fact(j)
	}
	if j.HandedOver() {
		if changed { // a run that begins meanwhile is stopped, and starts again as changed
			q.Line.Cluster.Stop(j, job.StopRequeue, "changed")
		}
		return
	}
	q.Enqueue(j)
}

// Capture gives a queued job the environment and the file mask of a newer request.
// What a cluster has stays as it is.
func (q *Queue) Capture(j *job.Job, environ string, data []byte, umask int) {
	if j.HandedOver() || j.Environ == environ && j.Umask == umask {
		return
	}
	q.Line.Roster.texts.remove(j)
	j.Environ, j.Umask = environ, umask
	q.Line.Roster.texts.add(j)
	q.Changes.Blob(environ, data)
	q.Changes.Fact(j)
}

func SameSpec(a, b job.Spec) bool {
	a.CancelMarked, b.CancelMarked = false, false
	return reflect.DeepEqual(a, b)
}

// Begin changes the time before which a queued job may not start.
func (q *Queue) Begin(id string, notBefore time.Time) {
	if j := q.Queued(id); j != nil {
		j.NotBefore = notBefore
		q.Changes.Fact(j)
		if j.HandedOver() {
			q.Line.Cluster.Stop(j, job.StopRequeue, "changed")
			return
		}
		q.Enqueue(j)
	}
}

// requeueOffset is more than the lines of a jobs file.
const requeueOffset = int64(1) << 32

// ToTheEnd moves a job behind everything that is queued now with its priority,
// or behind everything.
func (q *Queue) ToTheEnd(j *job.Job) {
	if q.Cfg.LimitedLast {
		q.Line.Roster.Each(0, func(other *job.Job) bool {
			if other.State == job.Queued {
				j.Spec.Priority = min(j.Spec.Priority, other.Spec.Priority)
			}
			return true
		})
	}
	if q.Cfg.Submissions {
		j.Rank = q.TakeRank()
		return
	}
	j.Rank += requeueOffset
}

// Withdraw forgets a queued job as if it had never been submitted.
func (q *Queue) Withdraw(id string) bool {
	j := q.Queued(id)
	if j == nil {
		return false
	}
	if j.HandedOver() {
		q.Line.Cluster.Stop(j, job.StopCancel, "cancelled before it started")
		return true
	}
	q.Line.Unqueue(id)
	q.Line.Roster.Forget(j)
	q.Changes.Forget(id)
	q.Tell(job.EventDequeued, j, "")
	return true
}

// Hold keeps a queued job, or one that is being preempted, from starting until
// it is released.
func (q *Queue) Hold(id, by string) bool { return q.SetHeld(id, true, job.EventHeld, "held by "+by) }

// Unhold lifts a hold.
func (q *Queue) Unhold(id, by string) bool {
	return q.SetHeld(id, false, job.EventReleased, "released by "+by)
}

func (q *Queue) SetHeld(id string, held bool, kind job.EventKind, text string) bool {
	j := q.Line.Roster.Get(id)
	if j == nil || j.State != job.Queued && !j.Leaving() || j.Held == held {
		return false
	}
	if j.Held = held; !held {
		j.WaitsSince = q.Changes.Now
	}
	j.Handover.Held = j.Handover.Held || held && j.HandedOver()
	q.Changes.Fact(j)
	q.Tell(kind, j, text)
	if j.State == job.Queued {
		q.Enqueue(j) // one that a cluster has is held there
	}
	return true
}

// Finish ends a job that is not running.
func (q *Queue) Finish(j *job.Job, outcome job.Outcome, detail string) {
	q.FinishAt(j, outcome, detail, q.Changes.Now)
}

// FinishAt ends a job, and those whose dependency on it failed. A long chain is
// worked off in a loop.
func (q *Queue) FinishAt(j *job.Job, outcome job.Outcome, detail string, at time.Time) {
	over := []*job.Job{q.over(j, outcome, detail, at)}
	for ; len(over) > 0; over = over[1:] {
		for _, b := range q.Line.Settle(q.Changes.Now, over[0]) {
			over = append(over, q.over(b.Job, job.Depends, b.why, q.Changes.Now))
		}
	}
}

// over records how a job ended.
func (q *Queue) over(j *job.Job, outcome job.Outcome, detail string, at time.Time) *job.Job {
	q.Line.Unqueue(j.ID)
	if j.State == job.Queued && q.Cfg.TellQueued {
		// Its arrival may not be published yet, and must be as it was then.
		j = j.Clone()
	}
	j.MustTo(outcome.State())
	j.Outcome, j.Detail = outcome, detail
	j.EndedAt = job.Later(at, j.StartedAt)
	q.Line.Roster.Forget(j)
	q.Changes.Fact(j)
	q.Tell(job.EventEnded, j, detail)
	q.Line.learn(q.Changes.Now, j)
	return j
}

// Back returns a job to the queue for another attempt.
func (q *Queue) Back(j *job.Job, r judge.Ruling) {
	j.MustTo(job.Queued)
	ended := j.Attempt
	j.Attempt = ended.Past()
	j.Detail, j.NotBefore = r.Detail, r.NotBefore
	if !r.Preempted {
		j.PreemptedFor = ""
	}
	if !r.NeverRan {
		j.WaitsSince = q.Changes.Now
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
		q.ToTheEnd(j)
	}
	q.Changes.Fact(j)
	// The event has the attempt; the job itself has none now.
	j.Grant, j.OverGPUs, j.StartedAt = ended.Grant, ended.OverGPUs, ended.StartedAt
	q.Tell(r.Again, j, r.Detail)
	if j.OverGPUs, j.StartedAt = 0, (time.Time{}); j.Spec.Adopt == nil {
		j.Grant = job.Grant{} // an adopted process stays where it is
	}
	if q.Cfg.Wanted != nil && !q.Cfg.Wanted(j.ID) {
		q.Withdraw(j.ID)
		return
	}
	q.Enqueue(j)
}
