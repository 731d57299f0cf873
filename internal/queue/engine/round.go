package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/fault"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/judge"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/waiting"
	"berth/internal/sched"
)

// round is one pass of the loop: decide, commit, act.
type round struct {
	*parts
	explain  *Explain
	ends     *ends
	parker   *Parker
	recovery *Recovery
}

// ledgerWait bounds how long a decision waits for another berth's.
const ledgerWait = 200 * time.Millisecond

// maxStarts bounds one round; the next follows at once.
const maxStarts = 256

// ErrNotNow means that a job cannot be started at the moment, through no fault
// of its own.
var ErrNotNow = errors.New("cannot start just now")

// notNowDelay is how long such a job waits before it is tried again.
const notNowDelay = 10 * time.Second

// diedDelay is the same for a job whose supervisor died before the job started,
// if another did so shortly before.
const diedDelay = time.Second

// step is one round: what was observed so far is in memory; decide, commit
// facts and decisions in one transaction, and act on them.
//
// An error means nothing of this round is on disk: facts stay pending for the
// next round, decisions are dropped.
func (r *round) step() error {
	defer r.line.Roster.Tidy()
	r.cfg.Watch.Round()
	clear(r.line.Conditions.Outcomes)
	// 1. What time alone changed.
	r.openGates()
	r.attempts.Preemption.Urge(r.changes.Now, r.line.Queue.Has)
	r.parker.endSlices()
	r.line.ReviewSome()
	// 2. Decide. The starts hold supervisors, but nothing runs yet.
	starts, victims := r.decide()
	starts = r.watchAdopted(starts)
	// 3. Commit.
	r.attempts.Uses.SaveGrown(r.changes.Now, r.ending)
	if value, due := r.line.Usage.Save(r.changes.Now, r.ending); due {
		r.changes.Meta[waiting.UsageKey] = value
	}
	fault.Point("before commit")
	tx, kept, err := r.changes.Commit(r.changes.Now, decisions(starts, victims))
	if err == nil && !kept {
		r.abandon(starts)
		starts, victims = nil, nil
		r.moved = true
	}
	if err != nil {
		r.abandon(starts)
		r.attempts.StopUnsaved()
		r.moved = true
		r.publish(r.changes.Shown())
		r.changes.Answer(err)
		return err
	}
	fault.Point("committed")
	// 4. Act: acknowledge, send stops, start what was placed, and publish. An
	// adopted stray may have ended: that is acknowledged in the next round.
	r.depart(victims)
	r.attempts.Act()
	r.admit(r.changes.Settle())
	events := r.changes.Take(tx.Events)
	r.launch(starts) // first: the jobs run while the rest is told
	r.publish(events)
	r.changes.Answer(nil)
	if len(starts) == 0 && r.cards.Bookings.Behind {
		r.cards.Publish(r.changes.Now, r.attempts.Holdings.Bookings(nil))
	}
	r.cards.Bookings.Behind = false
	if r.remote.HasChanges() && r.cfg.Away != nil {
		r.cfg.Away()
	}
	return nil
}

// openGates queues the jobs whose time has come.
func (r *round) openGates() {
	for {
		next, ok := r.line.Gates.Until.First()
		if !ok || next.At.After(r.changes.Now) {
			return
		}
		r.queue.Enqueue(r.line.Roster.Get(next.Id))
	}
}

// decisions is what a round decided, with the events.
func decisions(starts, victims []*job.Job) []journal.Decision {
	decided := make([]journal.Decision, 0, len(starts)+len(victims))
	for _, j := range starts {
		if j.Parking.Phase == job.ParkBack {
			decided = append(decided, journal.Decision{Job: j, Kind: job.EventNotice, Text: "job " + j.ID + " is being resumed on " + running.CardsOf(j)})
			continue
		}
		decided = append(decided, journal.Decision{Job: j, Kind: job.EventStarted, Text: startText(j)})
	}
	for _, j := range victims {
		if j.Parking.Phase == job.ParkOut {
			decided = append(decided, journal.Decision{Job: j, Kind: job.EventNotice, Text: "job " + j.ID + " " + j.Detail})
			continue
		}
		decided = append(decided, journal.Decision{Job: j, Kind: job.EventStopping, Text: string(j.Stop)})
	}
	return decided
}

// undecided reports whether anything happened since the last decision that could
// change it.
func (r *round) undecided() bool {
	return r.moved || r.line.Moved || r.cards.Moved || !r.again.IsZero() && !r.changes.Now.Before(r.again)
}

// decideAt is when time alone changes the decision.
func (r *round) decideAt() time.Time {
	if r.stopping || r.line.Queue.Len() == 0 {
		return time.Time{}
	}
	return r.again
}

// decide asks sched, takes a supervisor for each start, and returns the jobs to
// preempt. The machine-wide ledger is locked from reading the other berths'
// bookings until ours are published.
func (r *round) decide() (starts, victims []*job.Job) {
	if r.stopping || r.line.Queue.Len() == 0 || !r.undecided() || r.cards.Unseen() {
		return nil, nil // before any card was seen, nothing can be refused either
	}
	if present(r.parts) != nil {
		return nil, nil
	}
	// If something prevents it below, the next reading of the cards asks again.
	r.moved, r.line.Moved, r.cards.Moved, r.again = false, false, false, time.Time{}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerWait)
	defer cancel()
	if err := r.cards.Bookings.Ledger.Lock(ctx); err != nil {
		r.changes.Warn(r.changes.Now, "the ledger of GPU reservations is locked; nothing starts until it is free", err)
		return nil, nil
	}
	defer r.cards.Bookings.Ledger.Unlock()
	changed, ok := r.cards.ReadOthers(r.changes.Now, r.attempts.Runs)
	if changed {
		r.attempts.Holdings.SetOwners()
	}
	if !ok {
		return nil, nil
	}
	begun := time.Now()
	plan := sched.Decide(r.explain.State())
	r.cfg.Watch.Decided(time.Since(begun))
	r.again = plan.Again
	for _, refusal := range plan.Infeasible {
		r.queue.Finish(r.line.Roster.Get(refusal.Job), job.Infeasible, refusal.Reason.String())
	}
	starts = r.lease(plan.Starts)
	if len(starts) > 0 {
		fault.Point("leased")
	}
	r.moved = r.moved || len(starts) == maxStarts
	if len(starts) > 0 {
		if err := r.cards.Bookings.Ledger.Publish(r.attempts.Holdings.Bookings(starts)); err != nil {
			r.changes.Warn(r.changes.Now, "cannot book in the ledger of GPU reservations; nothing starts", err)
			r.returnLeases(starts)
			return nil, nil
		}
	}
	if len(starts) > 0 && len(starts) == len(plan.Starts) {
		// It worked this time: report the next failure again.
		clear(r.changes.Warned)
	}
	return starts, r.attempts.Preemption.Victims(r.changes.Now, plan.Victims)
}

// lease takes a supervisor for each placement. It returns a changed copy of the
// job, which replaces the old one once it is on disk.
func (r *round) lease(planned []sched.Start) []*job.Job {
	starts := make([]*job.Job, 0, len(planned))
	r.unleased = nil
	for _, p := range planned {
		if j := r.line.Roster.Get(p.Job); j.State == job.Parked {
			starts = append(starts, r.parker.comeBack(j, p.Grant))
			continue
		}
		token, err := r.attempts.Runner.Lease()
		if r.unleased = err; err != nil {
			r.changes.Warn(r.changes.Now, "cannot start a supervisor; the jobs stay queued", err)
			break
		}
		j := r.line.Roster.Get(p.Job).Clone()
		j.MustTo(job.Running)
		before := j.PeakMiB
		j.Attempt = j.Attempt.Next(r.changes.Now, p.Grant, token)
		if j.Spec.Adopt != nil {
			j.PeakMiB = before // the process goes on, whoever watches it
		}
		j.Grant.CardMiB = r.cards.Book.Smallest(p.Grant.GPUs)
		j.Log, j.Detail, j.PreemptedFor = r.cfg.LogPath(j), "", ""
		if since := r.line.InLine[j.ID].Since; since.After(j.SubmittedAt) {
			j.WaitsSince = since
		}
		starts = append(starts, j)
	}
	return starts
}

func (r *round) returnLeases(starts []*job.Job) {
	for _, j := range starts {
		if j.Parking.Phase != job.ParkBack {
			r.attempts.Runner.Release(j.Keep)
		}
	}
}

// abandon is returnLeases for starts that are booked.
func (r *round) abandon(starts []*job.Job) {
	r.returnLeases(starts)
	if len(starts) > 0 {
		r.cards.Publish(r.changes.Now, r.attempts.Holdings.Bookings(nil))
	}
}

func (r *round) publish(events []job.Event) {
	if len(events) > 0 && r.cfg.Publish != nil {
		r.cfg.Publish(events)
	}
}

// depart publishes the committed preemptions.
func (r *round) depart(victims []*job.Job) {
	for _, j := range victims {
		a := r.attempts.Active[j.ID]
		r.line.Roster.Put(j)
		a.Job = j
		if j.Parking.Phase == job.ParkOut {
			r.attempts.Parks = append(r.attempts.Parks, r.attempts.Parking.OrderFor(j))
			continue
		}
		r.attempts.Preemption.Hurry(r.changes.Now, a, r.line.Queue.Has)
	}
}

// launch starts the committed placements.
func (r *round) launch(starts []*job.Job) {
	for _, j := range starts {
		r.line.Unqueue(j.ID)
		r.line.Roster.Put(j)
		if a := r.attempts.Parked[j.ID]; a != nil {
			r.attempts.Parking.Occupy(a, j, r.line.Span(j))
			continue
		}
		a := r.attempts.Begin(r.changes.Now, j, r.line.Span(j), waiting.KindOf(j))
		a.Unmeasured = r.line.Unproven(j, a.Kind, j.Grant.Share)
	}
	for _, j := range starts {
		if j.Parking.Phase == job.ParkBack {
			r.attempts.Parking.Send(r.attempts.Parking.OrderFor(j))
			continue
		}
		order, err := r.cfg.Order(j, r.cards.Book.Given)
		if err == nil {
			order.Grace = r.cfg.Bounded(order.Grace)
			order.Copy, err = running.EncodeCopy(j, order.Env)
		}
		if err == nil {
			fault.Point("before go")
			err = r.attempts.Runner.Go(j.Keep, order)
			fault.Point("gone")
		}
		if err != nil {
			r.ends.refused(j, err)
			continue
		}
		r.line.Begun(r.changes.Now, j)
	}
	if len(starts) > 0 {
		r.attempts.Holdings.SetOwners()
	}
}

// admit queues the staged jobs, which are on disk now.
func (r *round) admit(batches []journal.Batch) {
	for _, b := range batches {
		if j := b.Jobs[0]; j.State == job.Running { // an adopted stray
			r.line.Roster.Know(j)
			r.recovery.rejoin(j)
		} else {
			r.queue.EnqueueAll(b.Jobs)
			r.tellQueued(b.Jobs)
		}
		r.admitted = true
		b.Done(nil)
	}
}

// tellQueued publishes new jobs. Those that were put away change no more, so they need
// not be copied.
func (r *round) tellQueued(jobs []*job.Job) {
	if !r.cfg.TellQueued {
		return
	}
	r.line.Roster.Tidy()
	for _, j := range jobs {
		if waiting.Keeps(&r.line.Roster, j) {
			j = j.Clone()
		}
		r.changes.Arrive(r.changes.Now, j)
	}
}

// watchAdopted starts watching adopted processes. It runs after the decision,
// because their memory is in use already.
func (r *round) watchAdopted(decided []*job.Job) []*job.Job {
	if r.stopping || len(r.line.Adopted) == 0 {
		return decided
	}
	var planned []sched.Start
	for _, id := range slices.Sorted(maps.Keys(r.line.Adopted)) {
		j := r.line.Roster.Get(id)
		if !r.alive(*j.Spec.Adopt) {
			r.queue.Finish(j, job.Lost, judge.AdoptedEnded(j))
			continue
		}
		planned = append(planned, sched.Start{Job: id, Grant: j.Grant})
	}
	starts := r.lease(planned)
	if len(starts) == 0 {
		return decided
	}
	starts = append(decided, starts...)
	r.cards.Publish(r.changes.Now, r.attempts.Holdings.Bookings(starts))
	return starts
}

func (r *round) alive(p job.Process) bool {
	if r.cfg.Alive != nil {
		return r.cfg.Alive(p)
	}
	return run.Alive(p)
}
