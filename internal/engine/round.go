package engine

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

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
	clear(t.line.outcomes)
	// 1. What time alone changed.
	t.openGates()
	t.attempts.urge(t.Now, t.waits)
	t.endSlices()
	t.line.reviewSome()
	// 2. Decide. The starts hold supervisors, but nothing runs yet.
	starts, victims := t.decide()
	starts = t.watchAdopted(starts)
	// 3. Commit.
	t.attempts.saveGrown(t.Now, t.ending)
	if value, due := t.line.usage.save(t.Now, t.ending); due {
		t.changes.meta[usageKey] = value
	}
	Fault("before commit")
	tx, kept, err := t.changes.commit(t.Now, decisions(starts, victims))
	if err == nil && !kept {
		t.abandon(starts)
		starts, victims = nil, nil
		t.moved = true
	}
	if err != nil {
		t.abandon(starts)
		t.attempts.stopUnsaved()
		t.moved = true
		t.publish(t.changes.shown())
		t.changes.answer(err)
		return err
	}
	Fault("committed")
	// 4. Act: acknowledge, send stops, publish, and start what was placed. An
	// adopted stray may have ended: that is acknowledged in the next round.
	t.depart(victims)
	t.attempts.act()
	t.admit(t.changes.settle())
	t.publish(t.changes.take(tx.Events))
	t.changes.answer(nil)
	if len(starts) == 0 && t.cards.behind {
		t.cards.publish(t.Now, t.attempts.bookings(nil))
	}
	t.cards.behind = false
	t.launch(starts)
	if len(t.line.away.changed) > 0 && t.cfg.Away != nil {
		t.cfg.Away()
	}
	return nil
}

// openGates queues the jobs whose time has come.
func (t *Turn) openGates() {
	for {
		next, ok := t.line.gates.until.first()
		if !ok || next.at.After(t.Now) {
			return
		}
		t.enqueue(t.line.jobs[next.id])
	}
}

// waits reports whether a job waits for room.
func (t *Turn) waits(id string) bool {
	_, queued := t.line.queue.Get(id)
	return queued
}

// decisions is what a round decided, with the events.
func decisions(starts, victims []*job.Job) []decision {
	decided := make([]decision, 0, len(starts)+len(victims))
	for _, j := range starts {
		if j.Parking.Phase == job.ParkBack {
			decided = append(decided, decision{j, job.EventNotice, "job " + j.ID + " is being resumed on " + cardsOf(j)})
			continue
		}
		decided = append(decided, decision{j, job.EventStarted, startText(j)})
	}
	for _, j := range victims {
		if j.Parking.Phase == job.ParkOut {
			decided = append(decided, decision{j, job.EventNotice, "job " + j.ID + " " + j.Detail})
			continue
		}
		decided = append(decided, decision{j, job.EventStopping, string(j.Stop)})
	}
	return decided
}

// undecided reports whether anything happened since the last decision that could
// change it.
func (t *Turn) undecided() bool {
	return t.moved || t.line.moved || t.cards.moved || !t.again.IsZero() && !t.Now.Before(t.again)
}

// decideAt is when time alone changes the decision.
func (t *Turn) decideAt() time.Time {
	if t.stopping || t.line.queue.Len() == 0 {
		return time.Time{}
	}
	return t.again
}

// decide asks sched, takes a supervisor for each start, and returns the jobs to
// preempt. The machine-wide ledger is locked from reading the other berths'
// bookings until ours are published.
func (t *Turn) decide() (starts, victims []*job.Job) {
	if t.stopping || t.line.queue.Len() == 0 || !t.undecided() || t.cards.unseen() {
		return nil, nil // before any card was seen, nothing can be refused either
	}
	if t.Present() != nil {
		return nil, nil
	}
	// If something prevents it below, the next reading of the cards asks again.
	t.moved, t.line.moved, t.cards.moved, t.again = false, false, false, time.Time{}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerWait)
	defer cancel()
	if err := t.cards.ledger.Lock(ctx); err != nil {
		t.changes.warn(t.Now, "the ledger of GPU reservations is locked; nothing starts until it is free", err)
		return nil, nil
	}
	defer t.cards.ledger.Unlock()
	changed, ok := t.cards.readOthers(t.Now, t.attempts.runs)
	if changed {
		t.attempts.setOwners()
	}
	if !ok {
		return nil, nil
	}
	begun := time.Now()
	plan := sched.Decide(t.State())
	t.cfg.Watch.Decided(time.Since(begun))
	t.again = plan.Again
	for _, refusal := range plan.Infeasible {
		t.finish(t.line.jobs[refusal.Job], job.Infeasible, refusal.Reason.String())
	}
	starts = t.lease(plan.Starts)
	if len(starts) > 0 {
		Fault("leased")
	}
	t.moved = t.moved || len(starts) == maxStarts
	if len(starts) > 0 {
		if err := t.cards.ledger.Publish(t.attempts.bookings(starts)); err != nil {
			t.changes.warn(t.Now, "cannot book in the ledger of GPU reservations; nothing starts", err)
			t.letGo(starts)
			return nil, nil
		}
	}
	if len(starts) > 0 && len(starts) == len(plan.Starts) {
		// It worked this time: report the next failure again.
		clear(t.changes.warned)
	}
	return starts, t.attempts.victims(t.Now, plan.Victims)
}

// lease takes a supervisor for each placement. It returns a changed copy of the
// job, which replaces the old one once it is on disk.
func (t *Turn) lease(planned []sched.Start) []*job.Job {
	starts := make([]*job.Job, 0, len(planned))
	t.unleased = nil
	for _, p := range planned {
		if j := t.line.jobs[p.Job]; j.State == job.Parked {
			starts = append(starts, t.comeBack(j, p.Grant))
			continue
		}
		token, err := t.attempts.runner.Lease()
		if t.unleased = err; err != nil {
			t.changes.warn(t.Now, "cannot start a supervisor; the jobs stay queued", err)
			break
		}
		j := t.line.jobs[p.Job].Clone()
		j.MustTo(job.Running)
		before := j.PeakMiB
		j.Attempt = j.Attempt.Next(t.Now, p.Grant, token)
		if j.Spec.Adopt != nil {
			j.PeakMiB = before // the process goes on, whoever watches it
		}
		j.Grant.CardMiB = t.cards.smallest(p.Grant.GPUs)
		j.Log, j.Detail, j.PreemptedFor = t.cfg.LogPath(j), "", ""
		if since := t.line.inLine[j.ID].since; since.After(j.SubmittedAt) {
			j.WaitsSince = since
		}
		starts = append(starts, j)
	}
	return starts
}

func (t *Turn) letGo(starts []*job.Job) {
	for _, j := range starts {
		if j.Parking.Phase != job.ParkBack {
			t.attempts.runner.Release(j.Keep)
		}
	}
}

// abandon is letGo for starts that are booked.
func (t *Turn) abandon(starts []*job.Job) {
	t.letGo(starts)
	if len(starts) > 0 {
		t.cards.publish(t.Now, t.attempts.bookings(nil))
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
		a := t.attempts.active[j.ID]
		t.line.jobs[j.ID], a.job = j, j
		if j.Parking.Phase == job.ParkOut {
			t.attempts.parks = append(t.attempts.parks, t.attempts.parkOrderFor(j))
			continue
		}
		t.attempts.hurry(t.Now, a, t.waits)
	}
}

// launch starts the committed placements.
func (t *Turn) launch(starts []*job.Job) {
	for _, j := range starts {
		t.line.unqueue(j.ID)
		t.line.jobs[j.ID] = j
		if a := t.attempts.parked[j.ID]; a != nil {
			t.attempts.occupy(a, j)
			continue
		}
		a := t.attempts.begin(t.Now, j, t.line.span(j))
		a.unmeasured = t.line.unproven(j, a.kind, j.Grant.Share)
	}
	for _, j := range starts {
		if j.Parking.Phase == job.ParkBack {
			t.attempts.move(t.attempts.parkOrderFor(j))
			continue
		}
		order, err := t.cfg.Order(j, t.cards.given)
		if err == nil {
			order.Grace = t.cfg.bounded(order.Grace)
			order.Copy, err = encodeCopy(j, order.Env)
		}
		if err == nil {
			Fault("before go")
			err = t.attempts.runner.Go(j.Keep, order)
			Fault("gone")
		}
		if err != nil {
			t.refused(j, err)
			continue
		}
		t.line.begun(t.Now, j)
	}
	if len(starts) > 0 {
		t.attempts.setOwners()
	}
}

// refused ends a job whose order the runner rejected: nothing ran, and no event
// will follow.
func (t *Turn) refused(j *job.Job, err error) {
	a, token := t.attempts.active[j.ID], j.Keep
	t.cfg.Log.Error("cannot start a job", "job", j.ID, "token", token, "err", err)
	// There is nothing to acknowledge, and the supervisor may have another job
	// by then.
	defer func() {
		t.attempts.acks = slices.DeleteFunc(t.attempts.acks, func(other string) bool { return other == token })
	}()
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if (full || diskFails(err) || errors.Is(err, ErrNotNow)) && j.Stop != job.StopCancel {
		t.neverRan(a, err.Error(), t.Now.Add(notNowDelay))
		t.attempts.runner.Release(token)
		return
	}
	t.release(a)
	t.attempts.runner.Release(token)
	t.finish(j, job.Launch, err.Error())
}
