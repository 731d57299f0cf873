package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/slurm"
	"berth/internal/slurm/handover"
	"berth/internal/text"
)

// comparison holds what Slurm says against what berth believes about a user's jobs.
type comparison struct {
	w      *worker
	asked  time.Time             // when Slurm's queue was last listed
	good   time.Time             // when that last worked
	cost   time.Duration         // of listing it
	want   bool                  // something needs Slurm's word
	strays map[jobName]time.Time // jobs in Slurm that are of no use, and since when
	failed map[string]int        // how often jobs ended before they began, by berth's id
}

// queueDue reports whether Slurm's queue should be listed.
func (q *comparison) queueDue() bool {
	since := time.Since(q.asked)
	if q.w.trouble != "" {
		return since >= q.w.c.pace.troubled
	}
	return q.want && since >= q.w.c.pace.look || since >= max(q.w.c.pace.queue, time.Duration(q.w.c.pace.lists)*q.cost)
}

// compare holds what Slurm has against what berth believes, when it is due.
func (q *comparison) compare(ctx context.Context) {
	if !q.queueDue() {
		return
	}
	begun := time.Now()
	q.asked, q.want = begun, false
	listed, err := do(ctx, q.w, listRequest{Comment: anyPrefix})
	if q.w.troubles(ctx, err); err != nil {
		return
	}
	q.good, q.cost = begun, listed.Cost
	byBatch := q.w.batches()
	seen, past := map[string]bool{}, memory{batches: map[string]bool{}, ended: map[string]*slurm.Account{}}
	strays := map[jobName]time.Time{}
	var news []func(*engine.Turn)
	var active []slurm.Entry
	var stuck, again []*remoteJob
	for i := range listed.Queue {
		e := &listed.Queue[i]
		name := batchOf(e.Comment)
		if byBatch[name] == nil && !strings.HasPrefix(e.Comment, q.w.c.prefix()) {
			continue // another queue's
		}
		past.batches[name] = true
		if ended, _ := (slurm.Account{State: e.State}).Outcome(); ended != "" {
			if h := byBatch[name].find(e.ID); h != nil {
				past.ended[h.job.ID] = &slurm.Account{ID: e.ID, Comment: e.Comment, State: e.State, Node: e.Node}
			}
			continue
		}
		h := byBatch[name].find(e.ID)
		if h == nil {
			n := jobName{e.ID, e.Name}
			if strays[n] = q.strays[n]; strays[n].IsZero() {
				strays[n] = begun
			}
			continue
		}
		seen[h.job.ID] = true
		if h.has.Begun && e.State == "PENDING" {
			again = append(again, h)
			continue
		}
		active = append(active, *e)
		if news = append(news, q.listed(h, e)); q.isStuck(h, e) {
			stuck = append(stuck, h)
		}
	}
	_ = q.w.report(ctx, news) // if it is not on disk, the next berth asks again
	q.holds(ctx, byBatch, active)
	q.strays = strays
	q.cancelStrays(ctx)
	q.w.takeBack(ctx, stuck, fmt.Sprintf("Slurm has said for %s that this job runs, but it has not begun; berth hands it over again", text.Brief(q.w.c.pace.stuck)))
	q.requeued(ctx, again)
	q.unlisted(ctx, begun, seen, past)
}

// requeued deals with jobs that began and that Slurm has put back into its queue,
// because it preempted them, their node failed, or they asked for it. berth hands them
// over again: what is in Slurm's queue would find the start marker and exit.
func (q *comparison) requeued(ctx context.Context, jobs []*remoteJob) {
	for _, h := range jobs {
		if h.missing.IsZero() {
			h.missing, q.want = q.asked, true
		}
		if h.ended == nil && h.looked.Sub(h.missing) < q.patience() {
			continue // its record may be on its way
		}
		q.conclude(ctx, h, &slurm.Account{State: "REQUEUED"})
	}
}

// cancelStrays removes from Slurm's queue what can only exit at once: its job was
// taken back, has ended or was handed over again. One that has just ended is about to
// leave by itself, and would be listed as cancelled.
func (q *comparison) cancelStrays(ctx context.Context) {
	var useless []jobName
	for n, since := range q.strays {
		if q.asked.Sub(since) >= q.w.c.pace.queue {
			useless = append(useless, n)
		}
	}
	if len(useless) > 0 {
		_, _ = do(ctx, q.w, cancelRequest{useless}) // the next listing shows whether it worked
	}
}

// listed takes in what Slurm says about a job, and returns what the engine is to know.
func (q *comparison) listed(h *remoteJob, e *slurm.Entry) func(*engine.Turn) {
	h.missing, h.name, h.job.Handover.Slurm = time.Time{}, e.Name, e.ID
	id, batch := h.job.ID, h.job.Handover.Batch
	words := "in Slurm's queue as " + e.ID
	if why := slurm.Why(*e); why != "" {
		words += ": " + why
	} else if e.State == "RUNNING" {
		words += ": on its way to " + cmp.Or(e.Node, "a node")
	}
	// Slurm takes a job without a time limit for one of a year.
	if until := time.Until(e.Start); until > 0 && until < 90*24*time.Hour {
		words += ", expected to start at " + e.Start.Local().Format(time.DateTime)
	}
	return func(t *engine.Turn) {
		t.Remote().Named(id, batch, e.ID)
		t.Remote().See(id, batch, words)
	}
}

// isStuck reports whether a job has still not begun long after Slurm gave it a node.
// A node may refuse a job without a word. Should it start the job after all, berth has
// its marker by then.
func (q *comparison) isStuck(h *remoteJob, e *slurm.Entry) bool {
	switch {
	case e.State != "RUNNING" || h.has.Begun:
		h.stuck = time.Time{}
	case h.stuck.IsZero():
		h.stuck = q.asked
	}
	return !h.stuck.IsZero() && q.asked.Sub(h.stuck) >= q.w.c.pace.stuck
}

// holds tells Slurm which waiting jobs are remoteJob and released.
func (q *comparison) holds(ctx context.Context, byBatch map[string]batch, queue []slurm.Entry) {
	var hold holdRequest
	var released []func(*engine.Turn)
	for i := range queue {
		e := &queue[i]
		h := byBatch[batchOf(e.Comment)].find(e.ID)
		if h == nil || h.has.Begun {
			continue
		}
		there := e.Reason == "JobHeldUser"
		switch {
		case h.job.Held && !there && e.Reason != "JobHeldAdmin":
			hold.Hold = append(hold.Hold, e.ID)
		case !h.job.Held && h.job.Handover.Held && there:
			hold.Release = append(hold.Release, e.ID)
		case !h.job.Held && h.job.Handover.Held:
			h.job.Handover.Held = false
			released = append(released, func(t *engine.Turn) { t.Remote().Released(h.job.ID, h.job.Handover.Batch) })
		}
	}
	_ = q.w.report(ctx, released) // if it is not on disk, the next berth finds the same
	if len(hold.Hold)+len(hold.Release) > 0 {
		_, _ = do(ctx, q.w, hold) // the next listing shows whether it worked
		q.want = true
	}
}

// memory is what slurmctld remembers of jobs that have ended.
type memory struct {
	batches map[string]bool           // of which it knows any job
	ended   map[string]*slurm.Account // by berth's id; without an exit status
}

// patience is how long the record of a job that Slurm does not list may take to be
// seen here.
func (q *comparison) patience() time.Duration {
	return cmp.Or(q.w.c.Config().Patience, q.w.c.pace.patience)
}

// unlisted deals with the jobs that Slurm does not have any more. What it may only
// have forgotten to list yet is given time.
func (q *comparison) unlisted(ctx context.Context, asked time.Time, seen map[string]bool, past memory) {
	var lost, question []*remoteJob
	for _, h := range q.w.sorted(func(h *remoteJob) bool { return h.job.HandedOver() && !seen[h.job.ID] }) {
		switch {
		case h.job.Handover.At.After(asked): // sbatch came later
		case h.missing.IsZero():
			h.missing, q.want = asked, true
		case h.ended != nil || h.verdict == nil && past.ended[h.job.ID] != nil:
			question = append(question, h)
		case h.has.Begun && time.Since(h.missing) < q.patience():
			q.want = true // its record may be on its way
		case h.has.Begun && h.looked.Sub(h.missing) < q.patience():
			// Its record may be where it cannot be read now.
		case h.job.Handover.Slurm == "":
			lost = append(lost, h) // sbatch never reached Slurm
		default:
			question = append(question, h)
		}
	}
	q.w.takeBack(ctx, lost, "")
	for some := range slices.Chunk(question, 200) {
		q.inquire(ctx, some, past)
	}
}

// inquire asks Slurm how jobs ended that it does not list any more.
func (q *comparison) inquire(ctx context.Context, jobs []*remoteJob, past memory) {
	ids := make([]string, len(jobs))
	for i, h := range jobs {
		ids[i] = h.job.Handover.Slurm
	}
	accounts, err := do(ctx, q.w, accountRequest{ids})
	if err != nil {
		return
	}
	var gone []*remoteJob
	for _, h := range jobs {
		a, lags := accountOf(accounts, &h.job.Handover), false
		if a == nil || isActive(a) {
			// Accounting hears of an end later than slurmctld, and never of what
			// slurmctld forgot.
			lags = a != nil && time.Since(h.missing) < q.patience()
			a = cmp.Or(past.ended[h.job.ID], h.verdict)
		}
		h.verdict = a // slurmctld may forget it while its record is waited for
		switch {
		case h.ended == nil && h.has.Begun && h.looked.Sub(h.missing) < q.patience():
			q.killed(ctx, h, a)
		case h.ended != nil && a == nil && lags: // only Slurm knows why it ended
		case h.ended != nil || h.has.Begun:
			q.conclude(ctx, h, a)
		case a == nil && past.batches[h.job.Handover.Batch]:
			// A waiting task that is cancelled leaves no trace but the rest of its array.
			q.neverBegan(ctx, h, &slurm.Account{State: "CANCELLED"})
		case a == nil:
			gone = append(gone, h)
		default:
			q.neverBegan(ctx, h, a)
		}
	}
	q.w.takeBack(ctx, gone, "Slurm has forgotten this job, which had not begun; berth hands it over again")
}

func isActive(a *slurm.Account) bool {
	outcome, _ := a.Outcome()
	return outcome == ""
}

// accountOf is Slurm's word on a job: of this id, and ours by its comment, or where
// comments are not stored by its name.
func accountOf(all []slurm.Account, h *job.Handover) *slurm.Account {
	for i := range all {
		a := &all[i]
		if a.ID == h.Slurm && (batchOf(a.Comment) == h.Batch || a.Comment == "" && strings.HasSuffix(a.Name, mark(h.Batch))) {
			return a
		}
	}
	return nil
}

// conclude ends a job that began and that Slurm ended, or that left no record.
func (q *comparison) conclude(ctx context.Context, h *remoteJob, a *slurm.Account) {
	if h.ended == nil && a.Doubtful() && !q.fence(ctx, h) {
		return
	}
	r := handover.Record{Stopped: job.StopInterrupt, PeakMiB: h.job.PeakMiB, StartedAt: h.job.StartedAt, EndedAt: time.Now()}
	if h.ended != nil {
		r = *h.ended
	}
	switch {
	case a != nil && !a.Again():
		if r.Outcome, r.Detail = a.Outcome(); r.Outcome == job.Launch {
			r.Outcome = job.Lost // it had begun
		}
		if !a.End.IsZero() && h.ended == nil {
			r.EndedAt = a.End
		}
	case a != nil && (h.ended != nil || a.State != "COMPLETED"):
		r.Outcome, r.Detail, r.Stopped = job.Lost, "Slurm requeued it", job.StopRequeue
	case h.ended != nil && !h.fenced.IsZero():
		r.Outcome, r.Detail = job.Lost, fmt.Sprintf("berth stopped it on %s: Slurm no longer knows it", h.job.Handover.Node)
	case h.ended != nil:
		r.Outcome, r.Detail = job.Lost, "Slurm ended it, and does not say why"
	case a != nil:
		// A wrapper that finds the job begun exits well: only the record says that a
		// job did.
		r.Outcome, r.Detail = job.Lost, fmt.Sprintf("it began on %s and left no record of its end; Slurm says only that its script ended", h.job.Handover.Node)
	default:
		r.Outcome, r.Detail = job.Lost, fmt.Sprintf("it began on %s and left no record of its end, and Slurm no longer knows it", h.job.Handover.Node)
	}
	id, batch := h.job.ID, h.job.Handover.Batch
	if q.w.c.Engine.Change(ctx, func(t *engine.Turn) { t.Remote().Returned(id, batch, r) }) == nil {
		q.w.forget(ctx, h)
	}
}

// killed ends a job that Slurm killed for its host memory. Its wrapper died with it, so
// there is no record to wait for.
func (q *comparison) killed(ctx context.Context, h *remoteJob, a *slurm.Account) {
	if a == nil || !a.Killed() {
		return
	}
	words, err := do(ctx, q.w, memoryRequest{h.marker()})
	if err != nil || words == "" && a.State != slurm.OutOfMemory {
		return
	}
	q.conclude(ctx, h, &slurm.Account{State: slurm.OutOfMemory, Node: a.Node, End: a.End, Words: words})
}

// fence reports whether a job that left no record has ended for certain. Its node may
// be cut off from Slurm alone, so its wrapper is told to stop it, and given the time to
// do so and to leave a record.
func (q *comparison) fence(ctx context.Context, h *remoteJob) bool {
	if h.fenced.IsZero() {
		if _, err := do(ctx, q.w, stopRequest{[]startMarker{h.marker()}}); err != nil {
			return false // later
		}
		h.fenced = time.Now()
	}
	return h.looked.Sub(h.fenced) >= q.w.c.pace.fence+q.patience()
}

// neverBegan ends a job that Slurm ended before it began: it was cancelled there,
// or its node could not run it.
func (q *comparison) neverBegan(ctx context.Context, h *remoteJob, a *slurm.Account) {
	if taken, err := q.w.take(ctx, []*remoteJob{h}); err != nil || len(taken) == 0 {
		return // it has begun after all
	}
	outcome, detail := a.Outcome()
	id, batch, why := h.job.ID, h.job.Handover.Batch, cmp.Or(detail, outcome.Words())
	again := q.mayTryAgain(id, a)
	err := q.w.c.Engine.Change(ctx, func(t *engine.Turn) {
		switch {
		case outcome == job.WasCancelled && a.Node != "":
			// Nobody cancels in that moment; but a node ends a job whose id it knows from
			// another one, which slurmctld gave out twice after a crash.
			t.Remote().TakenBack(id, batch, "Slurm ended this job on "+a.Node+" before it began; berth hands it over again")
		case outcome == job.WasCancelled:
			t.Remote().Cancelled(id, batch, detail)
		case outcome == job.OK: // its wrapper found that berth had taken it back
			t.Remote().TakenBack(id, batch, "")
		case outcome == job.Lost || again: // the node failed, Slurm preempted it, or the shared disk was full
			t.Remote().TakenBack(id, batch, "Slurm ended this job before it began ("+why+"); berth hands it over again")
		default:
			t.Remote().Refused(id, batch, fmt.Sprintf("Slurm ended it before it began (%s); see %s", why, slurmLog(h.job.Handover.Dir)))
		}
	})
	if err == nil {
		q.w.forget(ctx, h)
	}
}

// mayTryAgain reports whether a job whose script failed before it began is handed over
// again, after a pause. A node without berth's program will not get one.
func (q *comparison) mayTryAgain(id string, a *slurm.Account) bool {
	if q.failed[id]++; a.ExitCode == noProgram || q.failed[id] > mostFailures {
		delete(q.failed, id)
		return false
	}
	if q.failed[id] > 1 {
		q.w.sender.fullUntil, q.w.sender.full = time.Now().Add(q.w.c.pace.troubled), "Slurm's nodes could not start a job"
	}
	return true
}
