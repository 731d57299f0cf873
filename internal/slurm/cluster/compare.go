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

// queueDue reports whether Slurm's queue should be listed.
func (d *desk) queueDue() bool {
	since := time.Since(d.asked)
	if d.trouble != "" {
		return since >= d.c.pace.troubled
	}
	return d.want && since >= d.c.pace.look || since >= max(d.c.pace.queue, queueShare*d.cost)
}

// compare holds what Slurm has against what berth believes, when it is due.
func (d *desk) compare(ctx context.Context) {
	if !d.queueDue() {
		return
	}
	begun := time.Now()
	d.asked, d.want = begun, false
	reply, err := d.do(ctx, Request{Queue: anyPrefix})
	if err != nil || reply.Trouble != "" {
		d.troubles(ctx, unreachable(reply.Trouble, err))
		return
	}
	d.good, d.cost = begun, reply.Cost
	d.troubles(ctx, "")
	byBatch := d.batches()
	seen, past := map[string]bool{}, memory{batches: map[string]bool{}, ended: map[string]*slurm.Account{}}
	strays := map[Named]time.Time{}
	var news []func(*engine.Turn)
	var active []slurm.Entry
	var stuck, again []*held
	for i := range reply.Queue {
		e := &reply.Queue[i]
		name := batchOf(e.Comment)
		if byBatch[name] == nil && !strings.HasPrefix(e.Comment, d.c.prefix()) {
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
			n := Named{e.ID, e.Name}
			if strays[n] = d.strays[n]; strays[n].IsZero() {
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
		if news = append(news, d.listed(h, e)); d.isStuck(h, e) {
			stuck = append(stuck, h)
		}
	}
	if len(news) > 0 {
		_ = d.c.Engine.Change(ctx, func(t *engine.Turn) {
			for _, f := range news {
				f(t)
			}
		}) // if it is not on disk, the next berth asks again
	}
	d.holds(ctx, byBatch, active)
	d.strays = strays
	d.cancelStrays(ctx)
	d.takeBack(ctx, stuck, fmt.Sprintf("Slurm has said for %s that this job runs, but it has not begun; berth hands it over again", text.Brief(d.c.pace.stuck)))
	d.requeued(ctx, again)
	d.unlisted(ctx, begun, seen, past)
}

// requeued deals with jobs that began and that Slurm has put back into its queue,
// because it preempted them, their node failed, or they asked for it. berth hands them
// over again: what is in Slurm's queue would find the start marker and exit.
func (d *desk) requeued(ctx context.Context, jobs []*held) {
	for _, h := range jobs {
		if h.missing.IsZero() {
			h.missing, d.want = d.asked, true
		}
		if h.ended == nil && h.looked.Sub(h.missing) < d.patience() {
			continue // its record may be on its way
		}
		d.conclude(ctx, h, &slurm.Account{State: "REQUEUED"})
	}
}

// cancelStrays removes from Slurm's queue what can only exit at once: its job was
// taken back, has ended or was handed over again. One that has just ended is about to
// leave by itself, and would be listed as cancelled.
func (d *desk) cancelStrays(ctx context.Context) {
	var r Request
	for n, since := range d.strays {
		if d.asked.Sub(since) >= d.c.pace.queue {
			r.Cancel = append(r.Cancel, n)
		}
	}
	if len(r.Cancel) > 0 {
		_, _ = d.do(ctx, r) // the next listing shows whether it worked
	}
}

// listed takes in what Slurm says about a job, and returns what the engine is to know.
func (d *desk) listed(h *held, e *slurm.Entry) func(*engine.Turn) {
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
func (d *desk) isStuck(h *held, e *slurm.Entry) bool {
	switch {
	case e.State != "RUNNING" || h.has.Begun:
		h.stuck = time.Time{}
	case h.stuck.IsZero():
		h.stuck = d.asked
	}
	return !h.stuck.IsZero() && d.asked.Sub(h.stuck) >= d.c.pace.stuck
}

// holds tells Slurm which waiting jobs are held and released.
func (d *desk) holds(ctx context.Context, byBatch map[string]batch, queue []slurm.Entry) {
	var r Request
	var released []*held
	for i := range queue {
		e := &queue[i]
		h := byBatch[batchOf(e.Comment)].find(e.ID)
		if h == nil || h.has.Begun {
			continue
		}
		there := e.Reason == "JobHeldUser"
		switch {
		case h.job.Held && !there && e.Reason != "JobHeldAdmin":
			r.Hold = append(r.Hold, e.ID)
		case !h.job.Held && h.job.Handover.Held && there:
			r.Release = append(r.Release, e.ID)
		case !h.job.Held && h.job.Handover.Held:
			h.job.Handover.Held = false
			released = append(released, h)
		}
	}
	if len(released) > 0 {
		_ = d.c.Engine.Change(ctx, func(t *engine.Turn) {
			for _, h := range released {
				t.Remote().Released(h.job.ID, h.job.Handover.Batch)
			}
		}) // if it is not on disk, the next berth finds the same
	}
	if len(r.Hold)+len(r.Release) > 0 {
		_, _ = d.do(ctx, r) // the next listing shows whether it worked
		d.want = true
	}
}

// memory is what slurmctld remembers of jobs that have ended.
type memory struct {
	batches map[string]bool           // of which it knows any job
	ended   map[string]*slurm.Account // by berth's id; without an exit status
}

// patience is how long the record of a job that Slurm does not list may take to be
// seen here.
func (d *desk) patience() time.Duration { return cmp.Or(d.c.Config().Patience, d.c.pace.patience) }

// unlisted deals with the jobs that Slurm does not have any more. What it may only
// have forgotten to list yet is given time.
func (d *desk) unlisted(ctx context.Context, asked time.Time, seen map[string]bool, past memory) {
	var lost, question []*held
	for _, h := range d.sorted(func(h *held) bool { return h.job.HandedOver() && !seen[h.job.ID] }) {
		switch {
		case h.job.Handover.At.After(asked): // sbatch came later
		case h.missing.IsZero():
			h.missing, d.want = asked, true
		case h.ended != nil || h.verdict == nil && past.ended[h.job.ID] != nil:
			question = append(question, h)
		case h.has.Begun && time.Since(h.missing) < d.patience():
			d.want = true // its record may be on its way
		case h.has.Begun && h.looked.Sub(h.missing) < d.patience():
			// Its record may be where it cannot be read now.
		case h.job.Handover.Slurm == "":
			lost = append(lost, h) // sbatch never reached Slurm
		default:
			question = append(question, h)
		}
	}
	d.takeBack(ctx, lost, "")
	for some := range slices.Chunk(question, 200) {
		d.inquire(ctx, some, past)
	}
}

// inquire asks Slurm how jobs ended that it does not list any more.
func (d *desk) inquire(ctx context.Context, jobs []*held, past memory) {
	ids := make([]string, len(jobs))
	for i, h := range jobs {
		ids[i] = h.job.Handover.Slurm
	}
	reply, err := d.do(ctx, Request{Account: ids})
	if err != nil || reply.Trouble != "" {
		return
	}
	var gone []*held
	for _, h := range jobs {
		a, lags := accountOf(reply.Accounts, &h.job.Handover), false
		if a == nil || isActive(a) {
			// Accounting hears of an end later than slurmctld, and never of what
			// slurmctld forgot.
			lags = a != nil && time.Since(h.missing) < d.patience()
			a = cmp.Or(past.ended[h.job.ID], h.verdict)
		}
		h.verdict = a // slurmctld may forget it while its record is waited for
		switch {
		case h.ended == nil && h.has.Begun && h.looked.Sub(h.missing) < d.patience():
			d.killed(ctx, h, a)
		case h.ended != nil && a == nil && lags: // only Slurm knows why it ended
		case h.ended != nil || h.has.Begun:
			d.conclude(ctx, h, a)
		case a == nil && past.batches[h.job.Handover.Batch]:
			// A waiting task that is cancelled leaves no trace but the rest of its array.
			d.neverBegan(ctx, h, &slurm.Account{State: "CANCELLED"})
		case a == nil:
			gone = append(gone, h)
		default:
			d.neverBegan(ctx, h, a)
		}
	}
	d.takeBack(ctx, gone, "Slurm has forgotten this job, which had not begun; berth hands it over again")
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
func (d *desk) conclude(ctx context.Context, h *held, a *slurm.Account) {
	if h.ended == nil && a.Doubtful() && !d.fence(ctx, h) {
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
	if d.c.Engine.Change(ctx, func(t *engine.Turn) { t.Remote().Returned(id, batch, r) }) == nil {
		d.forget(ctx, h)
	}
}

// killed ends a job that Slurm killed for its host memory. Its wrapper died with it, so
// there is no record to wait for.
func (d *desk) killed(ctx context.Context, h *held, a *slurm.Account) {
	if a == nil || !a.Killed() {
		return
	}
	reply, err := d.do(ctx, Request{Memory: []Marker{d.marker(h)}})
	if err != nil || len(reply.Memory) != 1 || reply.Memory[0] == "" && a.State != slurm.OutOfMemory {
		return
	}
	d.conclude(ctx, h, &slurm.Account{State: slurm.OutOfMemory, Node: a.Node, End: a.End, Words: reply.Memory[0]})
}

// fence reports whether a job that left no record has ended for certain. Its node may
// be cut off from Slurm alone, so its wrapper is told to stop it, and given the time to
// do so and to leave a record.
func (d *desk) fence(ctx context.Context, h *held) bool {
	if h.fenced.IsZero() {
		reply, err := d.do(ctx, Request{Stop: []Marker{d.marker(h)}})
		if err != nil || reply.StopError != "" {
			return false // later
		}
		h.fenced = time.Now()
	}
	return h.looked.Sub(h.fenced) >= d.c.pace.fence+d.patience()
}

// neverBegan ends a job that Slurm ended before it began: it was cancelled there,
// or its node could not run it.
func (d *desk) neverBegan(ctx context.Context, h *held, a *slurm.Account) {
	reply, err := d.do(ctx, Request{Take: []Marker{d.marker(h)}})
	if err != nil || len(reply.Taken) != 1 || !reply.Taken[0] {
		return // it has begun after all
	}
	outcome, detail := a.Outcome()
	id, batch, why := h.job.ID, h.job.Handover.Batch, cmp.Or(detail, outcome.Words())
	again := d.mayTryAgain(id, a)
	err = d.c.Engine.Change(ctx, func(t *engine.Turn) {
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
		d.forget(ctx, h)
	}
}

// mayTryAgain reports whether a job whose script failed before it began is handed over
// again, after a pause. A node without berth's program will not get one.
func (d *desk) mayTryAgain(id string, a *slurm.Account) bool {
	if d.failed[id]++; a.ExitCode == noProgram || d.failed[id] > mostFailures {
		delete(d.failed, id)
		return false
	}
	if d.failed[id] > 1 {
		d.fullUntil, d.full = time.Now().Add(d.c.pace.troubled), "Slurm's nodes could not start a job"
	}
	return true
}
