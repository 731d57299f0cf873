package engine

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"berth/internal/engine/fault"
	"berth/internal/engine/journal"
	"berth/internal/engine/running"
	"berth/internal/engine/waiting"
	"berth/internal/job"
	"berth/internal/sched"
)

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
func (t *Turn) step() error {
	t.cfg.Watch.Round()
	clear(t.line.Outcomes)
	// 1. What time alone changed.
	t.openGates()
	t.attempts.Preemption.Urge(t.Now, t.waits)
	t.endSlices()
	t.line.ReviewSome()
	// 2. Decide. The starts hold supervisors, but nothing runs yet.
	starts, victims := t.decide()
	starts = t.watchAdopted(starts)
	// 3. Commit.
	t.attempts.Uses.SaveGrown(t.Now, t.ending)
	if value, due := t.line.Usage.Save(t.Now, t.ending); due {
		t.changes.Meta[waiting.UsageKey] = value
	}
	fault.Point("before commit")
	tx, kept, err := t.changes.Commit(t.Now, decisions(starts, victims))
	if err == nil && !kept {
		t.abandon(starts)
		starts, victims = nil, nil
		t.moved = true
	}
	if err != nil {
		t.abandon(starts)
		t.attempts.StopUnsaved()
		t.moved = true
		t.publish(t.changes.Shown())
		t.changes.Answer(err)
		return err
	}
	fault.Point("committed")
	// 4. Act: acknowledge, send stops, publish, and start what was placed. An
	// adopted stray may have ended: that is acknowledged in the next round.
	t.depart(victims)
	t.attempts.Act()
	t.admit(t.changes.Settle())
	t.publish(t.changes.Take(tx.Events))
	t.changes.Answer(nil)
	if len(starts) == 0 && t.cards.Bookings.Behind {
		t.cards.Publish(t.Now, t.attempts.Holdings.Bookings(nil))
	}
	t.cards.Bookings.Behind = false
	t.launch(starts)
	if t.remote.HasChanges() && t.cfg.Away != nil {
		t.cfg.Away()
	}
	return nil
}

// openGates queues the jobs whose time has come.
func (t *Turn) openGates() {
	for {
		next, ok := t.line.Gates.Until.First()
		if !ok || next.At.After(t.Now) {
			return
		}
		t.queue.Enqueue(t.line.Roster.Jobs[next.Id])
	}
}

// waits reports whether a job waits for room.
func (t *Turn) waits(id string) bool {
	_, queued := t.line.Queue.Get(id)
	return queued
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
func (t *Turn) undecided() bool {
	return t.moved || t.line.Moved || t.cards.Moved || !t.again.IsZero() && !t.Now.Before(t.again)
}

// decideAt is when time alone changes the decision.
func (t *Turn) decideAt() time.Time {
	if t.stopping || t.line.Queue.Len() == 0 {
		return time.Time{}
	}
	return t.again
}

// decide asks sched, takes a supervisor for each start, and returns the jobs to
// preempt. The machine-wide ledger is locked from reading the other berths'
// bookings until ours are published.
func (t *Turn) decide() (starts, victims []*job.Job) {
	if t.stopping || t.line.Queue.Len() == 0 || !t.undecided() || t.cards.Unseen() {
		return nil, nil // before any card was seen, nothing can be refused either
	}
	if t.Present() != nil {
		return nil, nil
	}
	// If something prevents it below, the next reading of the cards asks again.
	t.moved, t.line.Moved, t.cards.Moved, t.again = false, false, false, time.Time{}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerWait)
	defer cancel()
	if err := t.cards.Bookings.Ledger.Lock(ctx); err != nil {
		t.changes.Warn(t.Now, "the ledger of GPU reservations is locked; nothing starts until it is free", err)
		return nil, nil
	}
	defer t.cards.Bookings.Ledger.Unlock()
	changed, ok := t.cards.ReadOthers(t.Now, t.attempts.Runs)
	if changed {
		t.attempts.Holdings.SetOwners()
	}
	if !ok {
		return nil, nil
	}
	begun := time.Now()
	plan := sched.Decide(t.State())
	t.cfg.Watch.Decided(time.Since(begun))
	t.again = plan.Again
	for _, refusal := range plan.Infeasible {
		t.queue.Finish(t.line.Roster.Jobs[refusal.Job], job.Infeasible, refusal.Reason.String())
	}
	starts = t.lease(plan.Starts)
	if len(starts) > 0 {
		fault.Point("leased")
	}
	t.moved = t.moved || len(starts) == maxStarts
	if len(starts) > 0 {
		if err := t.cards.Bookings.Ledger.Publish(t.attempts.Holdings.Bookings(starts)); err != nil {
			t.changes.Warn(t.Now, "cannot book in the ledger of GPU reservations; nothing starts", err)
			t.letGo(starts)
			return nil, nil
		}
	}
	if len(starts) > 0 && len(starts) == len(plan.Starts) {
		// It worked this time: report the next failure again.
		clear(t.changes.Warned)
	}
	return starts, t.attempts.Preemption.Victims(t.Now, plan.Victims)
}

// lease takes a supervisor for each placement. It returns a changed copy of the
// job, which replaces the old one once it is on disk.
func (t *Turn) lease(planned []sched.Start) []*job.Job {
	starts := make([]*job.Job, 0, len(planned))
	t.unleased = nil
	for _, p := range planned {
		if j := t.line.Roster.Jobs[p.Job]; j.State == job.Parked {
			starts = append(starts, t.comeBack(j, p.Grant))
			continue
		}
		token, err := t.attempts.Runner.Lease()
		if t.unleased = err; err != nil {
			t.changes.Warn(t.Now, "cannot start a supervisor; the jobs stay queued", err)
			break
		}
		j := t.line.Roster.Jobs[p.Job].Clone()
		j.MustTo(job.Running)
		before := j.PeakMiB
		j.Attempt = j.Attempt.Next(t.Now, p.Grant, token)
		if j.Spec.Adopt != nil {
			j.PeakMiB = before // the process goes on, whoever watches it
		}
		j.Grant.CardMiB = t.cards.Book.Smallest(p.Grant.GPUs)
		j.Log, j.Detail, j.PreemptedFor = t.cfg.LogPath(j), "", ""
		if since := t.line.InLine[j.ID].Since; since.After(j.SubmittedAt) {
			j.WaitsSince = since
		}
		starts = append(starts, j)
	}
	return starts
}

func (t *Turn) letGo(starts []*job.Job) {
	for _, j := range starts {
		if j.Parking.Phase != job.ParkBack {
			t.attempts.Runner.Release(j.Keep)
		}
	}
}

// abandon is letGo for starts that are booked.
func (t *Turn) abandon(starts []*job.Job) {
	t.letGo(starts)
	if len(starts) > 0 {
		t.cards.Publish(t.Now, t.attempts.Holdings.Bookings(nil))
	}
}

func (t *Turn) publish(events []job.Event) {
	if len(events) > 0 && t.cfg.Publish != nil {
		t.cfg.Publish(events)
	}
}

// depart publishes the committed preemptions.
func (t *Turn) depart(victims []*job.Job) {
	for _, j := range victims {
		a := t.attempts.Active[j.ID]
		t.line.Roster.Jobs[j.ID], a.Job = j, j
		if j.Parking.Phase == job.ParkOut {
			t.attempts.Parks = append(t.attempts.Parks, t.attempts.Parking.OrderFor(j))
			continue
		}
		t.attempts.Preemption.Hurry(t.Now, a, t.waits)
	}
}

// launch starts the committed placements.
func (t *Turn) launch(starts []*job.Job) {
	for _, j := range starts {
		t.line.Unqueue(j.ID)
		t.line.Roster.Jobs[j.ID] = j
		if a := t.attempts.Parked[j.ID]; a != nil {
			t.attempts.Parking.Occupy(a, j)
			continue
		}
		a := t.attempts.Begin(t.Now, j, t.line.Span(j), waiting.KindOf(j))
		a.Unmeasured = t.line.Unproven(j, a.Kind, j.Grant.Share)
	}
	for _, j := range starts {
		if j.Parking.Phase == job.ParkBack {
			t.attempts.Parking.Send(t.attempts.Parking.OrderFor(j))
			continue
		}
		order, err := t.cfg.Order(j, t.cards.Book.Given)
		if err == nil {
			order.Grace = t.cfg.Bounded(order.Grace)
			order.Copy, err = running.EncodeCopy(j, order.Env)
		}
		if err == nil {
			fault.Point("before go")
			err = t.attempts.Runner.Go(j.Keep, order)
			fault.Point("gone")
		}
		if err != nil {
			t.refused(j, err)
		}
	}
	if len(starts) > 0 {
		t.attempts.Holdings.SetOwners()
	}
}

// refused ends a job whose order the runner rejected: nothing ran, and no event
// will follow.
func (t *Turn) refused(j *job.Job, err error) {
	a, token := t.attempts.Active[j.ID], j.Keep
	t.cfg.Log.Error("cannot start a job", "job", j.ID, "token", token, "err", err)
	// There is nothing to acknowledge, and the supervisor may have another job
	// by then.
	defer func() {
		t.attempts.Acks = slices.DeleteFunc(t.attempts.Acks, func(other string) bool { return other == token })
	}()
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if (full || diskFails(err) || errors.Is(err, ErrNotNow)) && j.Stop != job.StopCancel {
		t.neverRan(a, err.Error(), t.Now.Add(notNowDelay))
		t.attempts.Runner.Release(token)
		return
	}
	t.release(a)
	t.attempts.Runner.Release(token)
	t.queue.Finish(j, job.Launch, err.Error())
}
