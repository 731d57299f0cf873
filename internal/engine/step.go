package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/sched"
	"berth/internal/store"
)

// ledgerWait bounds how long a decision waits for another berth's.
const ledgerWait = 200 * time.Millisecond

// maxStarts bounds one round; the next follows at once.
const maxStarts = 256

// lazyDelay bounds how long a grown peak stays in memory only.
const lazyDelay = 10 * time.Second

// Step is one round: what was observed so far is in memory; decide, commit
// facts and decisions in one transaction, and act on them.
//
// An error means nothing of this round is on disk: facts stay pending for the
// next round, decisions are dropped.
func (e *Engine) Step(now time.Time) error {
	e.now = now
	clear(e.outcomes)
	// 1. What time alone changed.
	e.openGates()
	e.urgeLeavers()
	e.reviewSome()
	e.moved = e.moved || !e.again.IsZero() && !now.Before(e.again)
	// 2. Decide. The starts hold supervisors, but nothing runs yet.
	starts, leavers := e.decide()
	starts = e.watchStrangers(starts)
	// 3. Commit. New jobs that cannot be written are refused, and the rest
	// is tried without them: a queue that is too long for the disk must not
	// keep what has happened from it.
	tx := e.transaction(starts, leavers)
	Fault("before commit")
	err := e.commit(tx)
	if err != nil && e.refuseStaged(err) {
		tx = e.transaction(starts, leavers)
		if err = e.commit(tx); err == nil {
			e.commitErr = nil // nothing that has happened waits for room
		}
	}
	if err != nil {
		e.abandon(starts)
		e.moved = true
		e.publish(nil, nil)
		e.answer(err)
		return err
	}
	Fault("committed")
	// 4. Act.
	e.depart(leavers)
	e.settle(tx)
	e.answer(nil)
	if len(starts) == 0 && e.unbooked {
		e.publishBookings(nil)
	}
	e.unbooked = false
	e.launch(starts)
	return nil
}

// ErrNotNow says that a job cannot be started at the moment, through no fault
// of its own.
var ErrNotNow = errors.New("cannot start just now")

// notNowDelay is how long such a job waits before it is tried again.
const notNowDelay = 10 * time.Second

// refuseStaged turns the new jobs down. It reports whether there were any.
func (e *Engine) refuseStaged(err error) bool {
	staged := e.unstage()
	for _, b := range staged {
		b.Done(err)
	}
	return len(staged) > 0 && errors.Is(err, store.ErrFull)
}

// answer tells those who wait what became of their request.
func (e *Engine) answer(err error) {
	thens := e.thens
	e.thens = nil
	for _, f := range thens {
		f(err)
	}
}

// start is a placement on its way: a changed copy of the job that replaces
// the old one once it is on disk.
type start struct {
	job   *job.Job
	token string
}

// state is the snapshot that sched decides on.
func (e *Engine) state() sched.State {
	e.queue.Tick(e.now)
	s := sched.State{
		Now: e.now, Rules: e.cfg.Rules, Host: e.cfg.Host,
		Cards: e.cards.placeable(e.now, e.freshFor()), Held: e.held(), Queue: e.queue, MaxStarts: maxStarts,
	}
	e.shares(&s)
	switch {
	case e.cards.err != nil:
		s.Unreadable = e.cards.err.Error()
	case e.cards.at.IsZero():
		s.Unreadable = "they have not been read yet"
	}
	return s
}

// decide asks sched, takes a supervisor for each start, and says which running
// jobs are to make room. The machine-wide ledger is locked from reading the
// other berths' bookings until ours are published.
func (e *Engine) decide() ([]start, []leaver) {
	if e.stopping || e.queue.Len() == 0 || !e.moved || len(e.cards.known) == 0 {
		return nil, nil // on a machine whose cards nobody has seen, nothing can be refused either
	}
	// Should something stand in the way below, the next look at the cards
	// asks again.
	e.moved, e.again = false, time.Time{}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerWait)
	defer cancel()
	if err := e.ledger.Lock(ctx); err != nil {
		e.warn("the ledger of GPU reservations is locked; nothing starts until it is free", err)
		return nil, nil
	}
	defer e.ledger.Unlock()
	if !e.readOthers() {
		return nil, nil
	}
	plan := sched.Decide(e.state())
	e.again = plan.Again
	for _, refusal := range plan.Infeasible {
		e.finish(e.jobs[refusal.Job], job.Infeasible, refusal.Reason.String())
	}
	starts := e.lease(plan.Starts)
	if len(starts) > 0 {
		Fault("leased")
	}
	e.moved = e.moved || len(starts) == maxStarts
	if len(starts) > 0 {
		if err := e.ledger.Publish(e.bookings(starts)); err != nil {
			e.warn("cannot book in the ledger of GPU reservations; nothing starts", err)
			e.letGo(starts)
			return nil, nil
		}
	}
	if len(starts) > 0 && len(starts) == len(plan.Starts) {
		// Nothing stood in the way this time: should it again, say so again.
		clear(e.warned)
	}
	return starts, e.leavers(plan.SetAside)
}

// readOthers refreshes what other berths have booked.
func (e *Engine) readOthers() bool {
	others, err := e.ledger.Others()
	if err != nil {
		e.warn("cannot read the ledger of GPU reservations; nothing starts", err)
		return false
	}
	e.takeOthers(others)
	return true
}

// glanceAtOthers is for what is measured and shown while there is nothing to
// decide. It needs no lock, and what cannot be read is told when it matters.
func (e *Engine) glanceAtOthers() {
	if others, err := e.ledger.Others(); err == nil {
		e.takeOthers(others)
	}
}

func (e *Engine) takeOthers(others []gpu.Entry) {
	for _, note := range e.ledger.Notes() {
		e.cfg.Log.Warn("ledger of GPU reservations", "note", note)
	}
	others = slices.DeleteFunc(others, e.within)
	changed := !slices.EqualFunc(others, e.others, func(a, b gpu.Entry) bool {
		return a.Key == b.Key && a.HolderPID == b.HolderPID
	})
	for _, old := range e.others {
		if !slices.ContainsFunc(others, func(entry gpu.Entry) bool { return entry.Key == old.Key }) {
			e.meter.Forget(old.Key)
		}
	}
	e.others = others
	if changed {
		e.setOwners()
	}
}

// within is true of bookings that are part of one another: the job this berth
// itself runs in made room for everything inside it, and a berth inside one of
// our jobs books within what that job holds.
func (e *Engine) within(entry gpu.Entry) bool {
	if e.cfg.Outer != "" && entry.Key == e.cfg.Outer {
		return true
	}
	holder, ok := e.owners.Local(entry.HolderPID)
	_, ours := e.active[holder]
	return ok && ours
}

// BookingKey names a job in the ledger.
func BookingKey(token, id string) string { return token + "/" + id }

func (e *Engine) lease(planned []sched.Start) []start {
	starts := make([]start, 0, len(planned))
	for _, p := range planned {
		token, err := e.runner.Lease()
		if err != nil {
			e.warn("cannot start a supervisor; the jobs stay queued", err)
			break
		}
		j := e.jobs[p.Job].Clone()
		j.MustTo(job.Running)
		j.Attempt = j.Attempt.Next(e.now, p.Grant, token)
		j.Grant.CardMiB = e.cards.smallest(p.Grant.GPUs)
		j.Log, j.Detail, j.AsideFor = e.cfg.LogPath(j), "", ""
		if since := e.inLine[j.ID].since; since.After(j.SubmittedAt) {
			j.WaitsSince = since
		}
		starts = append(starts, start{job: j, token: token})
	}
	return starts
}

func (e *Engine) letGo(starts []start) {
	for _, s := range starts {
		e.runner.Release(s.token)
	}
}

// abandon is letGo for starts that are booked.
func (e *Engine) abandon(starts []start) {
	e.letGo(starts)
	if len(starts) > 0 {
		e.publishBookings(nil)
	}
}

// transaction gathers what has to be on disk before anything is acted on.
func (e *Engine) transaction(starts []start, leavers []leaver) store.Tx {
	tx := store.Tx{Delete: e.deleted, Events: slices.Clone(e.events)}
	if e.lazyDue() {
		for id := range e.lazyDirty {
			a := e.active[id]
			a.job.PeakMiB = e.meter.Peak(id)
			_, a.storedMiB = highest(a.job.PeakMiB)
			e.fact(a.job)
		}
		clear(e.lazyDirty)
	}
	decided := make(map[string]bool, len(starts)+len(leavers))
	for _, s := range starts {
		decided[s.job.ID] = true
		tx.Put = append(tx.Put, s.job)
	}
	for _, l := range leavers {
		decided[l.job.ID] = true
		tx.Put = append(tx.Put, l.job)
	}
	for id, j := range e.dirty {
		if !decided[id] {
			tx.Put = append(tx.Put, j)
		}
	}
	for _, b := range e.staged {
		tx.Put = append(tx.Put, b.Jobs...)
		if tx.Blobs == nil && len(b.Blobs) > 0 {
			tx.Blobs = map[string][]byte{}
		}
		maps.Copy(tx.Blobs, b.Blobs)
	}
	e.saveUsage(e.leaving)
	tx.Meta = e.meta
	slices.SortFunc(tx.Put, func(a, b *job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, s := range starts {
		tx.Events = append(tx.Events, &job.Event{At: e.now, Kind: job.EventStarted, Job: s.job.Clone(), Text: startText(s.job)})
	}
	for _, l := range leavers {
		tx.Events = append(tx.Events, &job.Event{At: e.now, Kind: job.EventStopping, Job: l.job.Clone(), Text: string(l.job.Stop)})
	}
	return tx
}

// lazyDue lets grown peaks ride on another commit, or after a while make one.
func (e *Engine) lazyDue() bool {
	return len(e.lazyDirty) > 0 && (len(e.dirty) > 0 || e.leaving || e.now.Sub(e.lazySince) >= lazyDelay)
}

func (e *Engine) commit(tx store.Tx) error {
	if len(tx.Put)+len(tx.Delete)+len(tx.Events)+len(tx.Meta) == 0 {
		return nil
	}
	err := e.store.Commit(tx)
	if err != nil {
		err = fmt.Errorf("write down %s: %w", counted(len(tx.Put), "change"), err)
	}
	if err == nil && e.commitErr != nil {
		e.show(job.EventNotice, nil, "the store can be written again")
	}
	if err != nil && e.commitErr == nil && errors.Is(err, store.ErrFull) {
		e.show(job.EventWarning, nil, err.Error()+"; running jobs go on, nothing new starts until there is room")
		e.cfg.Log.Error("commit", "err", err)
	}
	e.commitErr = err
	return err
}

// settle acts on facts that are on disk now: supervisors may forget, stops go
// out, the world is told.
func (e *Engine) settle(tx store.Tx) {
	clear(e.dirty)
	e.meta = map[string]string{}
	e.deleted, e.events = nil, nil
	e.admit(e.unstage())
	for _, token := range e.acks {
		Fault("before ack")
		e.runner.Ack(token)
		Fault("acked")
	}
	for _, w := range e.warns {
		Fault("before warning")
		if err := e.runner.Warn(w.token, w.stamp); err != nil {
			e.cfg.Log.Warn("warn", "token", w.token, "err", err)
		}
		Fault("warned")
	}
	for _, s := range e.stops {
		Fault("before stop")
		if err := e.runner.Stop(s.token, s.why, s.grace); err != nil {
			e.cfg.Log.Warn("stop", "token", s.token, "err", err)
		}
		Fault("stopped")
	}
	e.unbooked = e.unbooked || len(e.acks) > 0
	e.acks, e.stops, e.warns = nil, nil, nil
	arrivals := e.arrivals
	e.arrivals = nil
	e.publish(arrivals, tx.Events)
}

// publish tells of what is on disk, and of what never will be.
func (e *Engine) publish(arrivals []job.Event, durable []*job.Event) {
	events := make([]job.Event, 0, len(arrivals)+len(durable)+len(e.transient))
	events = append(events, arrivals...)
	for _, ev := range durable {
		events = append(events, *ev)
	}
	events = append(events, e.transient...)
	e.transient = nil
	if len(events) > 0 && e.cfg.Publish != nil {
		e.cfg.Publish(events)
	}
}

// launch lets the committed starts run.
func (e *Engine) launch(starts []start) {
	for _, s := range starts {
		id := s.job.ID
		e.unqueue(id)
		e.jobs[id] = s.job
		e.active[id] = &attempt{job: s.job, token: s.token, startedAt: e.now, run: e.span(s.job), kind: kindOf(s.job)}
		e.byToken[s.token] = id
	}
	for _, s := range starts {
		order, err := e.cfg.Order(s.job)
		if err == nil {
			Fault("before go")
			err = e.runner.Go(s.token, order)
			Fault("gone")
		}
		if err != nil {
			e.refused(s, err)
		}
	}
	if len(starts) > 0 {
		e.setOwners()
	}
}

// refused ends a job whose order the runner would not take: nothing ran, and
// no event will follow.
func (e *Engine) refused(s start, err error) {
	e.cfg.Log.Error("give go", "job", s.job.ID, "token", s.token, "err", err)
	// There is no end to acknowledge: the supervisor may have another job by
	// the time that would be done.
	defer func() {
		e.acks = slices.DeleteFunc(e.acks, func(token string) bool { return token == s.token })
	}()
	if errors.Is(err, ErrNotNow) && s.job.Stop != job.StopCancel {
		e.neverRan(e.active[s.job.ID], err.Error(), e.now.Add(notNowDelay))
		e.runner.Release(s.token)
		return
	}
	e.release(e.active[s.job.ID])
	e.runner.Release(s.token)
	e.finish(s.job, job.Launch, err.Error())
}

// bookings is what this berth tells the others on the machine.
func (e *Engine) bookings(starts []start) []gpu.Entry {
	entries := make([]gpu.Entry, 0, len(e.active)+len(starts))
	cards := e.cards.list()
	for _, a := range e.active {
		entries = append(entries, e.booking(a.job, a.token, cards))
	}
	for _, s := range starts {
		entries = append(entries, e.booking(s.job, s.token, cards))
	}
	slices.SortFunc(entries, func(a, b gpu.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

func (e *Engine) booking(j *job.Job, token string, cards []sched.Card) gpu.Entry {
	identity, _ := e.runner.Identity(token)
	return gpu.Entry{
		Key: BookingKey(token, j.ID), User: j.User, Job: j.ID, Name: j.Name(),
		UUIDs: j.Grant.UUIDs, BudgetMiB: e.hold(j, cards).BudgetMiB, Share: j.Grant.Share,
		Alone: j.Grant.Alone, Exclusive: j.Grant.Exclusive,
		HolderPID: identity.KeepPID, HolderStart: identity.KeepStart,
	}
}

// publishBookings tells the others outside a decision: bookings only shrink
// or grow by what is already running, so the lock is not needed.
func (e *Engine) publishBookings(starts []start) {
	if err := e.ledger.Publish(e.bookings(starts)); err != nil {
		e.warn("cannot update the ledger of GPU reservations", err)
	}
}

// warn says a thing once until it changes. Its cause decides, not its text:
// that may name another file each time.
func (e *Engine) warn(what string, err error) {
	why := cause(err).Error()
	if e.warned[what] == why {
		return
	}
	e.warned[what] = why
	e.cfg.Log.Warn(what, "err", err)
	e.show(job.EventWarning, nil, fmt.Sprintf("%s: %v", what, err))
}

// cause is the error at the bottom.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
