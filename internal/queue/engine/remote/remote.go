package remote

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/judge"
	"berth/internal/queue/engine/waiting"
	"berth/internal/sched"
	"berth/internal/slurm/handover"
)

// Jobs is the jobs that a cluster runs: those to hand over, and those it has. It
// keeps what it is told about them; internal/slurm/cluster talks to the cluster.
type Jobs struct {
	ready   map[string]bool     // may be handed over
	running map[string]*job.Job // the cluster has started them
	seen    map[string]string   // what the cluster says about those that wait
	changed map[string]bool     // since they were last taken
	trouble map[int]Trouble     // by user
	queue   *waiting.Queue
	changes *journal.Journal
}

// Trouble is why a user's jobs do not go on; empty: they do.
type Trouble struct {
	Ask    string // why the cluster cannot be asked
	Submit string // why it gets no more jobs
}

func New(q *waiting.Queue, c *journal.Journal) *Jobs {
	return &Jobs{queue: q, changes: c, ready: map[string]bool{}, running: map[string]*job.Job{}, seen: map[string]string{}, changed: map[string]bool{}, trouble: map[int]Trouble{}}
}

// Enter takes in a job that may be handed over, or was.
func (a *Jobs) Enter(j *job.Job) {
	a.changed[j.ID] = true
	switch {
	case j.State == job.Running:
		a.running[j.ID] = j
	case !j.HandedOver():
		a.ready[j.ID] = true
	}
}

// Leave removes a job that has ended, or is not ready any more.
func (a *Jobs) Leave(id string) {
	if a.running[id] != nil || a.ready[id] || a.seen[id] != "" {
		a.changed[id] = true
	}
	delete(a.running, id)
	delete(a.ready, id)
	delete(a.seen, id)
}

// Why says what a queued job of the cluster waits for; empty: it is not one.
func (a *Jobs) Why(j *job.Job) string {
	if j == nil || j.State != job.Queued || !a.ready[j.ID] && !j.HandedOver() {
		return ""
	}
	trouble := a.trouble[j.UID]
	switch {
	case j.Stop == job.StopCancel:
		return "being cancelled; Slurm has not answered yet"
	case trouble != Trouble{} && !j.HandedOver():
		return "to be handed over to Slurm; " + cmp.Or(trouble.Ask, trouble.Submit)
	case !j.HandedOver():
		return "being handed over to Slurm"
	}
	text := a.seen[j.ID]
	switch {
	case text != "":
	case j.Handover.Slurm != "":
		text = "in Slurm's queue as " + j.Handover.Slurm
	default:
		text = "being handed over to Slurm"
	}
	if j.Held {
		text = "held until released; " + text
	}
	if trouble.Ask != "" {
		text += "; " + trouble.Ask
	}
	return text
}

// Running is the jobs that the cluster has started, oldest first.
func (a *Jobs) Running() []*job.Job {
	list := make([]*job.Job, 0, len(a.running))
	for _, j := range a.running {
		list = append(list, j)
	}
	slices.SortFunc(list, job.ByStart)
	return list
}

// Changes is what changed among the cluster's jobs since the last call: copies of
// those that are to be or were handed over, and the ids of those that are not any
// more.
func (a *Jobs) Changes() (jobs []job.Job, gone []string) {
	for _, id := range slices.Sorted(maps.Keys(a.changed)) {
		j := a.queue.Line.Roster.Get(id)
		if j == nil || !a.ready[id] && !j.HandedOver() {
			gone = append(gone, id)
			continue
		}
		jobs = append(jobs, *j.Clone())
	}
	clear(a.changed)
	return jobs, gone
}

// Count counts the unfinished jobs that the cluster has.
func (a *Jobs) Count() (n int) {
	a.queue.Line.Roster.Each(0, func(j *job.Job) bool {
		if j.HandedOver() {
			n++
		}
		return true
	})
	return n
}

// SetTrouble says why a user's jobs on the cluster do not go on.
func (a *Jobs) SetTrouble(uid int, trouble Trouble) { a.trouble[uid] = trouble }

// Ready reports whether a job is still to be handed over, and whether it is as it
// was when it was taken.
func (a *Jobs) Ready(taken *job.Job) (ready, same bool) {
	if !a.ready[taken.ID] {
		return false, false
	}
	j := a.queue.Line.Roster.Get(taken.ID)
	return true, waiting.SameSpec(j.Spec, taken.Spec) && j.VRAMMiB == taken.VRAMMiB && j.Attempt.Number == taken.Attempt.Number
}

// HandOver records that a job that is ready is about to be handed over.
func (a *Jobs) HandOver(id string, h job.Handover) {
	j := a.queue.Line.Roster.Get(id)
	delete(a.ready, id)
	j.Handover, j.Stop, j.Detail = h, job.NoStop, ""
	a.changes.Fact(j)
}

// handed is a job that was handed over in this batch, or nil: what is reported may
// be about an earlier one.
func (a *Jobs) handed(id, batch string) *job.Job {
	if j := a.queue.Line.Roster.Get(id); j != nil && batch != "" && j.Handover.Batch == batch {
		return j
	}
	return nil
}

// Named records Slurm's id of a job.
func (a *Jobs) Named(id, batch, slurm string) {
	if j := a.handed(id, batch); j != nil && j.Handover.Slurm != slurm {
		j.Handover.Slurm = slurm
		a.changes.Fact(j)
		a.queue.Tell(job.EventNotice, j, "job "+id+" is in Slurm's queue as "+slurm)
	}
}

// See keeps what the cluster says about a waiting job. It is not stored.
func (a *Jobs) See(id, batch, words string) {
	if j := a.handed(id, batch); j != nil && j.State == job.Queued {
		a.seen[id] = words
	}
}

// Released records that the cluster does not hold a job any more that berth
// released.
func (a *Jobs) Released(id, batch string) {
	if j := a.handed(id, batch); j != nil && !j.Held && j.Handover.Held {
		j.Handover.Held = false
		a.changes.Fact(j)
	}
}

// Began records that the cluster started a job, on these GPUs of its node.
func (a *Jobs) Began(id, batch string, b handover.Begun, log string) {
	j := a.handed(id, batch)
	if j == nil || j.State != job.Queued {
		return
	}
	stop := j.Stop
	j.Held = false // Slurm was faster
	j.MustTo(job.Running)
	// The node's clock may differ, and the file is the user's.
	at := job.Later(earlier(b.At, a.changes.Now), j.Handover.At)
	j.Attempt = j.Attempt.Next(at, grantOf(b, j.Spec.Share), "")
	j.Stop, j.Log, j.Handover.Node = stop, log, b.Node
	if b.Slurm != "" {
		j.Handover.Slurm = b.Slurm
	}
	delete(a.seen, id)
	a.running[id] = j
	a.changes.Fact(j)
	a.queue.Tell(job.EventStarted, j, "on "+b.Node)
	a.queue.Line.Begun(a.changes.Now, j)
}

func grantOf(b handover.Begun, share float64) job.Grant {
	g := job.Grant{Share: share}
	for i, card := range b.GPUs {
		g.GPUs, g.UUIDs = append(g.GPUs, card.Index), append(g.UUIDs, card.UUID)
		if i == 0 || card.TotalMiB < g.CardMiB {
			g.CardMiB = card.TotalMiB
		}
	}
	return g
}

// Used takes in what a job of the cluster uses. It is stored with its end.
func (a *Jobs) Used(id, batch string, n handover.Now) {
	if j := a.handed(id, batch); j != nil && j.State == job.Running {
		j.PeakMiB, j.AvgUtil = n.PeakMiB, n.AvgUtil
	}
}

// Returned records how a job of the cluster ended, and what follows.
func (a *Jobs) Returned(id, batch string, r handover.Record) {
	j := a.handed(id, batch)
	if j == nil || j.State != job.Running {
		return
	}
	j.ExitCode, j.Signal, j.LogDropped, j.AvgUtil = r.ExitCode, r.Signal, r.LogDropped, r.AvgUtil
	if r.PeakMiB != nil {
		j.PeakMiB = r.PeakMiB
	}
	j.OverGPUs = sched.OverGPUs(j.Grant, j.VRAMMiB, j.PeakMiB, func(int) int64 { return j.Grant.CardMiB })
	r.EndedAt = earlier(r.EndedAt, a.changes.Now)
	a.Leave(id)
	ruling := judge.Remote(j, r, a.changes.Now)
	if ruling.Outcome != "" {
		a.queue.FinishAt(j, ruling.Outcome, ruling.Detail, r.EndedAt)
		return
	}
	j.EndedAt = r.EndedAt
	j.Handover = job.Handover{}
	a.queue.Back(j, ruling)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// TakenBack records that a job will not begin where it was handed over: it is
// cancelled, or handed over again. why is empty if that needs no explanation.
func (a *Jobs) TakenBack(id, batch, why string) {
	j := a.handed(id, batch)
	if j == nil || j.State != job.Queued {
		return
	}
	a.Leave(id)
	if j.Stop == job.StopCancel {
		a.queue.Finish(j, job.WasCancelled, judge.Said(j, "cancelled before it started"))
		return
	}
	j.Handover, j.Stop = job.Handover{}, job.NoStop
	a.changes.Fact(j)
	if why != "" {
		a.queue.Tell(job.EventWarning, j, why)
	}
	a.queue.Enqueue(j)
}

// KeepChanges undoes a call of Changes whose changes could not be written.
func (a *Jobs) KeepChanges(jobs []job.Job, gone []string) {
	for i := range jobs {
		a.changed[jobs[i].ID] = true
	}
	for _, id := range gone {
		a.changed[id] = true
	}
}

// Cancelled ends a job that was cancelled in the cluster's own queue.
func (a *Jobs) Cancelled(id, batch, detail string) {
	if j := a.handed(id, batch); j != nil && j.State == job.Queued {
		a.Leave(id)
		a.queue.Finish(j, job.WasCancelled, detail)
	}
}

// Refused ends a job that the cluster does not take. batch is empty if it was not
// handed over.
func (a *Jobs) Refused(id, batch, why string) {
	j := a.queue.Queued(id)
	if j == nil || j.Handover.Batch != batch || !j.HandedOver() && !a.ready[id] {
		return
	}
	a.Leave(id)
	if j.Stop == job.StopCancel {
		a.queue.Finish(j, job.WasCancelled, judge.Said(j, "cancelled before it started"))
		return
	}
	a.queue.Finish(j, job.Launch, why)
}

// Stop has the cluster stop a job, once that is on disk. The first reason
// counts, but cancelling overrides a requeue.
func (a *Jobs) Stop(j *job.Job, why job.Stop, detail string) {
	if j.Stop == job.NoStop || why == job.StopCancel && j.Stop != job.StopCancel {
		j.Stop = why
		if detail != "" {
			j.Detail = detail
		}
		a.changes.Fact(j)
		a.queue.Tell(job.EventStopping, j, string(why))
	}
	a.changed[j.ID] = true
}

// Begun counts the jobs that the cluster has started.
func (a *Jobs) Begun() int { return len(a.running) }

// HasChanges reports whether Changes has something to report.
func (a *Jobs) HasChanges() bool { return len(a.changed) > 0 }

// Runs reports whether the cluster has started a job.
func (a *Jobs) Runs(id string) bool { return a.running[id] != nil }
