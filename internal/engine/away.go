package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"berth/internal/handover"
	"berth/internal/job"
	"berth/internal/sched"
)

// away is the jobs that a cluster runs: those to hand over, and those it has. It
// keeps what it is told about them; another room talks to the cluster.
type away struct {
	ready   map[string]bool     // may be handed over
	running map[string]*job.Job // the cluster has started them
	seen    map[string]string   // what the cluster says about those that wait
	changed map[string]bool     // since they were last taken
	trouble map[int]Trouble     // by user
}

// Trouble is why a user's jobs do not go on; empty: they do.
type Trouble struct {
	Ask    string // why the cluster cannot be asked
	Submit string // why it gets no more jobs
}

func newAway() *away {
	return &away{ready: map[string]bool{}, running: map[string]*job.Job{}, seen: map[string]string{}, changed: map[string]bool{}, trouble: map[int]Trouble{}}
}

// enter takes in a job that may be handed over, or was.
func (a *away) enter(j *job.Job) {
	a.changed[j.ID] = true
	switch {
	case j.State == job.Running:
		a.running[j.ID] = j
	case !j.HandedOver():
		a.ready[j.ID] = true
	}
}

// leave removes a job that has ended, or is not ready any more.
func (a *away) leave(id string) {
	if a.running[id] != nil || a.ready[id] || a.seen[id] != "" {
		a.changed[id] = true
	}
	delete(a.running, id)
	delete(a.ready, id)
	delete(a.seen, id)
}

// why says what a queued job of the cluster waits for; empty: it is not one.
func (a *away) why(j *job.Job) string {
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

// oldestFirst is the running jobs by start.
func (a *away) oldestFirst() []*job.Job {
	list := make([]*job.Job, 0, len(a.running))
	for _, j := range a.running {
		list = append(list, j)
	}
	slices.SortFunc(list, byStart)
	return list
}

func byStart(a, b *job.Job) int {
	return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Seq, b.Seq))
}

// TakeAway is what changed among the cluster's jobs since the last call: copies of
// those that are to be or were handed over, and the ids of those that are not any
// more.
func (t *Turn) TakeAway() (jobs []job.Job, gone []string) {
	for _, id := range slices.Sorted(maps.Keys(t.line.away.changed)) {
		j := t.line.jobs[id]
		if j == nil || !t.line.away.ready[id] && !j.HandedOver() {
			gone = append(gone, id)
			continue
		}
		jobs = append(jobs, *j.Clone())
	}
	clear(t.line.away.changed)
	slices.SortFunc(jobs, func(a, b job.Job) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Seq, b.Seq))
	})
	return jobs, gone
}

// HandedOver counts the unfinished jobs that the cluster has.
func (t *Turn) HandedOver() (n int) {
	for _, j := range t.line.jobs {
		if j.HandedOver() {
			n++
		}
	}
	return n
}

// AwayTrouble says why a user's jobs on the cluster do not go on.
func (t *Turn) AwayTrouble(uid int, trouble Trouble) { t.line.away.trouble[uid] = trouble }

// AwayReady reports whether a job is still to be handed over, and whether it may be
// now: as it was when it was taken, and not by a berth that starts nothing any more.
func (t *Turn) AwayReady(taken *job.Job) (ready, now bool) {
	if !t.line.away.ready[taken.ID] {
		return false, false
	}
	j := t.line.jobs[taken.ID]
	return true, !t.stopping && t.removed == nil && sameSpec(j.Spec, taken.Spec) && j.VRAMMiB == taken.VRAMMiB && j.Attempt.Number == taken.Attempt.Number
}

// HandOver records that a job that is ready is about to be handed over.
func (t *Turn) HandOver(id string, h job.Handover) {
	j := t.line.jobs[id]
	delete(t.line.away.ready, id)
	j.Handover, j.Stop, j.Detail = h, job.NoStop, ""
	t.changes.fact(j)
}

// handed is a job that was handed over in this batch, or nil: what is reported may
// be about an earlier one.
func (t *Turn) handed(id, batch string) *job.Job {
	if j := t.line.jobs[id]; j != nil && batch != "" && j.Handover.Batch == batch {
		return j
	}
	return nil
}

// Named records Slurm's id of a job.
func (t *Turn) Named(id, batch, slurm string) {
	if j := t.handed(id, batch); j != nil && j.Handover.Slurm != slurm {
		j.Handover.Slurm = slurm
		t.changes.fact(j)
		t.tell(job.EventNotice, j, "job "+id+" is in Slurm's queue as "+slurm)
	}
}

// SeeAway keeps what the cluster says about a waiting job. It is not stored.
func (t *Turn) SeeAway(id, batch, words string) {
	if j := t.handed(id, batch); j != nil && j.State == job.Queued {
		t.line.away.seen[id] = words
	}
}

// ReleasedAway records that the cluster does not hold a job any more that berth
// released.
func (t *Turn) ReleasedAway(id, batch string) {
	if j := t.handed(id, batch); j != nil && !j.Held && j.Handover.Held {
		j.Handover.Held = false
		t.changes.fact(j)
	}
}

// Began records that the cluster started a job, on these GPUs of its node.
func (t *Turn) Began(id, batch string, b handover.Begun, log string) {
	j := t.handed(id, batch)
	if j == nil || j.State != job.Queued {
		return
	}
	stop := j.Stop
	j.Held = false // Slurm was faster
	j.MustTo(job.Running)
	// The node's clock may differ, and the file is the user's.
	at := notBefore(earlier(b.At, t.Now), j.Handover.At)
	j.Attempt = j.Attempt.Next(at, grantOf(b, j.Spec.Share), "")
	j.Stop, j.Log, j.Handover.Node = stop, log, b.Node
	if b.Slurm != "" {
		j.Handover.Slurm = b.Slurm
	}
	delete(t.line.away.seen, id)
	t.line.away.running[id] = j
	t.changes.fact(j)
	t.tell(job.EventStarted, j, "on "+b.Node)
	t.line.begun(t.Now, j)
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

// UsedAway takes in what a job of the cluster uses. It is stored with its end.
func (t *Turn) UsedAway(id, batch string, n handover.Now) {
	if j := t.handed(id, batch); j != nil && j.State == job.Running {
		j.PeakMiB, j.AvgUtil = n.PeakMiB, n.AvgUtil
	}
}

// Returned records how a job of the cluster ended, and what follows.
func (t *Turn) Returned(id, batch string, r handover.Record) {
	j := t.handed(id, batch)
	if j == nil || j.State != job.Running {
		return
	}
	j.ExitCode, j.Signal, j.LogDropped, j.AvgUtil = r.ExitCode, r.Signal, r.LogDropped, r.AvgUtil
	if r.PeakMiB != nil {
		j.PeakMiB = r.PeakMiB
	}
	j.OverGPUs = sched.OverGPUs(j.Grant, j.VRAMMiB, j.PeakMiB, func(int) int64 { return j.Grant.CardMiB })
	r.EndedAt = earlier(r.EndedAt, t.Now)
	t.line.away.leave(id)
	ruling := judgeAway(j, r, t.Now)
	if ruling.outcome != "" {
		t.finishAt(j, ruling.outcome, ruling.detail, r.EndedAt)
		return
	}
	j.EndedAt = r.EndedAt
	j.Handover = job.Handover{}
	t.back(j, ruling)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// judgeAway decides what the end of a job on the cluster means. Its wrapper judged
// the attempt as a supervisor's berth does; what follows is decided here.
func judgeAway(j *job.Job, r handover.Record, now time.Time) ruling {
	stopped := r.Stopped != job.NoStop
	switch {
	case j.Stop == job.StopCancel && (stopped || r.Outcome != job.OK):
		return ruling{outcome: job.WasCancelled, detail: said(j, "cancelled while running")}
	case j.Stop == job.StopRequeue:
		return ruling{again: job.EventRequeued, detail: said(j, "requeued")}
	case r.Stopped == job.StopRequeue:
		return ruling{again: job.EventRequeued, detail: r.Detail}
	case r.Outcome == job.Timeout:
		ruling := judgeTimeout(j)
		if ruling.outcome != "" && stopped {
			ruling.detail = r.Detail // the limit was Slurm's own
		}
		return ruling
	case (stopped || r.Outcome == job.Lost) && j.Spec.Requeue && r.Outcome != job.WasCancelled && r.Outcome != job.OOM:
		return ruling{again: job.EventRequeued, detail: r.Detail}
	case stopped || r.Outcome == job.OK || r.Outcome == job.Launch || r.Outcome == job.Lost || r.Outcome == job.WasCancelled:
		return ruling{outcome: r.Outcome, detail: r.Detail}
	case r.Outcome == job.OOM:
		return judgeOOM(j, end{peaks: r.PeakMiB, now: now})
	}
	return judgeFailure(j, r.Outcome, r.Detail, now)
}

// TakenBack records that a job will not begin where it was handed over: it is
// cancelled, or handed over again. why is empty if that needs no explanation.
func (t *Turn) TakenBack(id, batch, why string) {
	j := t.handed(id, batch)
	if j == nil || j.State != job.Queued {
		return
	}
	t.line.away.leave(id)
	if j.Stop == job.StopCancel {
		t.finish(j, job.WasCancelled, said(j, "cancelled before it started"))
		return
	}
	j.Handover, j.Stop = job.Handover{}, job.NoStop
	t.changes.fact(j)
	if why != "" {
		t.tell(job.EventWarning, j, why)
	}
	t.enqueue(j)
}

// KeepAway undoes a TakeAway whose changes could not be written.
func (t *Turn) KeepAway(jobs []job.Job, gone []string) {
	for i := range jobs {
		t.line.away.changed[jobs[i].ID] = true
	}
	for _, id := range gone {
		t.line.away.changed[id] = true
	}
}

// CancelledAway ends a job that was cancelled in the cluster's own queue.
func (t *Turn) CancelledAway(id, batch, detail string) {
	if j := t.handed(id, batch); j != nil && j.State == job.Queued {
		t.line.away.leave(id)
		t.finish(j, job.WasCancelled, detail)
	}
}

// Refused ends a job that the cluster does not take. batch is empty if it was not
// handed over.
func (t *Turn) Refused(id, batch, why string) {
	j := t.queued(id)
	if j == nil || j.Handover.Batch != batch || !j.HandedOver() && !t.line.away.ready[id] {
		return
	}
	t.line.away.leave(id)
	if j.Stop == job.StopCancel {
		t.finish(j, job.WasCancelled, said(j, "cancelled before it started"))
		return
	}
	t.finish(j, job.Launch, why)
}

// stopAway has the cluster stop a job, once that is on disk. The first reason
// counts, but cancelling overrides a requeue.
func (t *Turn) stopAway(j *job.Job, why job.Stop, detail string) {
	if j.Stop == job.NoStop || why == job.StopCancel && j.Stop != job.StopCancel {
		j.Stop = why
		if detail != "" {
			j.Detail = detail
		}
		t.changes.fact(j)
		t.tell(job.EventStopping, j, string(why))
	}
	t.line.away.changed[j.ID] = true
}
