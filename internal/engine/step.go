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

// step is one round: what was observed so far is in memory; decide, commit
// facts and decisions in one transaction, and act on them.
//
// An error means nothing of this round is on disk: facts stay pending for the
// next round, decisions are dropped.
func (t *Turn) step() error {
	clear(t.outcomes)
	// 1. What time alone changed.
	t.openGates()
	t.urgeLeavers()
	t.reviewSome()
	t.moved = t.moved || !t.again.IsZero() && !t.Now.Before(t.again)
	// 2. Decide. The starts hold supervisors, but nothing runs yet.
	starts, leavers := t.decide()
	starts = t.watchStrangers(starts)
	// 3. Commit. New jobs that cannot be written are refused, and the rest
	// is tried without them: a queue that is too long for the disk must not
	// keep what has happened from it.
	tx := t.transaction(starts, leavers)
	Fault("before commit")
	err := t.commit(tx)
	if err != nil && t.refuseStaged(err) {
		tx = t.transaction(starts, leavers)
		if err = t.commit(tx); err == nil {
			t.commitErr = nil // nothing that has happened waits for room
		}
	}
	if err != nil {
		t.abandon(starts)
		t.moved = true
		t.publish(nil, nil)
		t.answer(err)
		return err
	}
	Fault("committed")
	// 4. Act.
	t.depart(leavers)
	t.settle(tx)
	t.answer(nil)
	if len(starts) == 0 && t.unbooked {
		t.publishBookings(nil)
	}
	t.unbooked = false
	t.launch(starts)
	return nil
}

// ErrNotNow says that a job cannot be started at the moment, through no fault
// of its own.
var ErrNotNow = errors.New("cannot start just now")

// notNowDelay is how long such a job waits before it is tried again.
const notNowDelay = 10 * time.Second

// refuseStaged turns the new jobs down. It reports whether there were any.
func (t *Turn) refuseStaged(err error) bool {
	staged := t.unstage()
	for _, b := range staged {
		b.Done(err)
	}
	return len(staged) > 0 && errors.Is(err, store.ErrFull)
}

// answer tells those who wait what became of their request.
func (t *Turn) answer(err error) {
	thens := t.thens
	t.thens = nil
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
func (t *Turn) state() sched.State {
	t.queue.Tick(t.Now)
	s := sched.State{
		Now: t.Now, Rules: t.cfg.Rules, Host: t.cfg.Host,
		Cards: t.cards.placeable(t.Now, t.freshFor()), Held: t.held(), Queue: t.queue, MaxStarts: maxStarts,
	}
	t.shares(&s)
	switch {
	case t.cards.err != nil:
		s.Unreadable = t.cards.err.Error()
	case t.cards.at.IsZero():
		s.Unreadable = "they have not been read yet"
	}
	return s
}

// decide asks sched, takes a supervisor for each start, and says which running
// jobs are to make room. The machine-wide ledger is locked from reading the
// other berths' bookings until ours are published.
func (t *Turn) decide() ([]start, []leaver) {
	if t.stopping || t.queue.Len() == 0 || !t.moved || len(t.cards.known) == 0 {
		return nil, nil // on a machine whose cards nobody has seen, nothing can be refused either
	}
	// Should something stand in the way below, the next look at the cards
	// asks again.
	t.moved, t.again = false, time.Time{}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerWait)
	defer cancel()
	if err := t.ledger.Lock(ctx); err != nil {
		t.warn("the ledger of GPU reservations is locked; nothing starts until it is free", err)
		return nil, nil
	}
	defer t.ledger.Unlock()
	if !t.readOthers() {
		return nil, nil
	}
	plan := sched.Decide(t.state())
	t.again = plan.Again
	for _, refusal := range plan.Infeasible {
		t.finish(t.jobs[refusal.Job], job.Infeasible, refusal.Reason.String())
	}
	starts := t.lease(plan.Starts)
	if len(starts) > 0 {
		Fault("leased")
	}
	t.moved = t.moved || len(starts) == maxStarts
	if len(starts) > 0 {
		if err := t.ledger.Publish(t.bookings(starts)); err != nil {
			t.warn("cannot book in the ledger of GPU reservations; nothing starts", err)
			t.letGo(starts)
			return nil, nil
		}
	}
	if len(starts) > 0 && len(starts) == len(plan.Starts) {
		// Nothing stood in the way this time: should it again, say so again.
		clear(t.warned)
	}
	return starts, t.leavers(plan.SetAside)
}

// readOthers refreshes what other berths have booked.
func (t *Turn) readOthers() bool {
	others, err := t.ledger.Others()
	if err != nil {
		t.warn("cannot read the ledger of GPU reservations; nothing starts", err)
		return false
	}
	t.takeOthers(others)
	return true
}

// glanceAtOthers is for what is measured and shown while there is nothing to
// decide. It needs no lock, and what cannot be read is told when it matters.
func (t *Turn) glanceAtOthers() {
	if others, err := t.ledger.Others(); err == nil {
		t.takeOthers(others)
	}
}

func (t *Turn) takeOthers(others []gpu.Entry) {
	for _, note := range t.ledger.Notes() {
		t.cfg.Log.Warn("ledger of GPU reservations", "note", note)
	}
	others = slices.DeleteFunc(others, t.within)
	changed := !slices.EqualFunc(others, t.others, func(a, b gpu.Entry) bool {
		return a.Key == b.Key && a.HolderPID == b.HolderPID
	})
	for _, old := range t.others {
		if !slices.ContainsFunc(others, func(entry gpu.Entry) bool { return entry.Key == old.Key }) {
			t.meter.Forget(old.Key)
		}
	}
	t.others = others
	if changed {
		t.setOwners()
	}
}

// within is true of bookings that are part of one another: the job this berth
// itself runs in made room for everything inside it, and a berth inside one of
// our jobs books within what that job holds.
func (t *Turn) within(entry gpu.Entry) bool {
	if t.cfg.Outer != "" && entry.Key == t.cfg.Outer {
		return true
	}
	holder, ok := t.owners.Local(entry.HolderPID)
	_, ours := t.active[holder]
	return ok && ours
}

// BookingKey names a job in the ledger.
func BookingKey(token, id string) string { return token + "/" + id }

func (t *Turn) lease(planned []sched.Start) []start {
	starts := make([]start, 0, len(planned))
	for _, p := range planned {
		token, err := t.runner.Lease()
		if err != nil {
			t.warn("cannot start a supervisor; the jobs stay queued", err)
			break
		}
		j := t.jobs[p.Job].Clone()
		j.MustTo(job.Running)
		j.Attempt = j.Attempt.Next(t.Now, p.Grant, token)
		j.Grant.CardMiB = t.cards.smallest(p.Grant.GPUs)
		j.Log, j.Detail, j.AsideFor = t.cfg.LogPath(j), "", ""
		if since := t.inLine[j.ID].since; since.After(j.SubmittedAt) {
			j.WaitsSince = since
		}
		starts = append(starts, start{job: j, token: token})
	}
	return starts
}

func (t *Turn) letGo(starts []start) {
	for _, s := range starts {
		t.runner.Release(s.token)
	}
}

// abandon is letGo for starts that are booked.
func (t *Turn) abandon(starts []start) {
	t.letGo(starts)
	if len(starts) > 0 {
		t.publishBookings(nil)
	}
}

// transaction gathers what has to be on disk before anything is acted on.
func (t *Turn) transaction(starts []start, leavers []leaver) store.Tx {
	tx := store.Tx{Delete: t.deleted, Events: slices.Clone(t.events)}
	if t.lazyDue() {
		for id := range t.lazyDirty {
			a := t.active[id]
			a.job.PeakMiB = t.meter.Peak(id)
			_, a.storedMiB = highest(a.job.PeakMiB)
			t.fact(a.job)
		}
		clear(t.lazyDirty)
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
	for id, j := range t.dirty {
		if !decided[id] {
			tx.Put = append(tx.Put, j)
		}
	}
	for _, b := range t.staged {
		tx.Put = append(tx.Put, b.Jobs...)
		if tx.Blobs == nil && len(b.Blobs) > 0 {
			tx.Blobs = map[string][]byte{}
		}
		maps.Copy(tx.Blobs, b.Blobs)
	}
	t.saveUsage(t.leaving)
	tx.Meta = t.meta
	slices.SortFunc(tx.Put, func(a, b *job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, s := range starts {
		tx.Events = append(tx.Events, &job.Event{At: t.Now, Kind: job.EventStarted, Job: s.job.Clone(), Text: startText(s.job)})
	}
	for _, l := range leavers {
		tx.Events = append(tx.Events, &job.Event{At: t.Now, Kind: job.EventStopping, Job: l.job.Clone(), Text: string(l.job.Stop)})
	}
	return tx
}

// lazyDue lets grown peaks ride on another commit, or after a while make one.
func (t *Turn) lazyDue() bool {
	return len(t.lazyDirty) > 0 && (len(t.dirty) > 0 || t.leaving || t.Now.Sub(t.lazySince) >= lazyDelay)
}

func (t *Turn) commit(tx store.Tx) error {
	if len(tx.Put)+len(tx.Delete)+len(tx.Events)+len(tx.Meta) == 0 {
		return nil
	}
	err := t.store.Commit(tx)
	if err != nil {
		err = fmt.Errorf("write down %s: %w", counted(len(tx.Put), "change"), err)
	}
	if err == nil && t.commitErr != nil {
		t.show(job.EventNotice, nil, "the store can be written again")
	}
	if err != nil && t.commitErr == nil && errors.Is(err, store.ErrFull) {
		t.show(job.EventWarning, nil, err.Error()+"; running jobs go on, nothing new starts until there is room")
		t.cfg.Log.Error("commit", "err", err)
	}
	t.commitErr = err
	return err
}

// settle acts on facts that are on disk now: supervisors may forget, stops go
// out, the world is told.
func (t *Turn) settle(tx store.Tx) {
	clear(t.dirty)
	t.meta = map[string]string{}
	t.deleted, t.events = nil, nil
	t.admit(t.unstage())
	for _, token := range t.acks {
		Fault("before ack")
		t.runner.Ack(token)
		Fault("acked")
	}
	for _, w := range t.warns {
		Fault("before warning")
		if err := t.runner.Warn(w.token, w.stamp); err != nil {
			t.cfg.Log.Warn("warn", "token", w.token, "err", err)
		}
		Fault("warned")
	}
	for _, s := range t.stops {
		Fault("before stop")
		if err := t.runner.Stop(s.token, s.why, s.grace); err != nil {
			t.cfg.Log.Warn("stop", "token", s.token, "err", err)
		}
		Fault("stopped")
	}
	t.unbooked = t.unbooked || len(t.acks) > 0
	t.acks, t.stops, t.warns = nil, nil, nil
	arrivals := t.arrivals
	t.arrivals = nil
	t.publish(arrivals, tx.Events)
}

// publish tells of what is on disk, and of what never will be.
func (t *Turn) publish(arrivals []job.Event, durable []*job.Event) {
	events := make([]job.Event, 0, len(arrivals)+len(durable)+len(t.transient))
	events = append(events, arrivals...)
	for _, ev := range durable {
		events = append(events, *ev)
	}
	events = append(events, t.transient...)
	t.transient = nil
	if len(events) > 0 && t.cfg.Publish != nil {
		t.cfg.Publish(events)
	}
}

// launch lets the committed starts run.
func (t *Turn) launch(starts []start) {
	for _, s := range starts {
		id := s.job.ID
		t.unqueue(id)
		t.jobs[id] = s.job
		t.active[id] = &attempt{job: s.job, token: s.token, startedAt: t.Now, run: t.span(s.job), kind: kindOf(s.job)}
		t.byToken[s.token] = id
	}
	for _, s := range starts {
		order, err := t.cfg.Order(s.job, t.cards.given)
		if err == nil {
			Fault("before go")
			err = t.runner.Go(s.token, order)
			Fault("gone")
		}
		if err != nil {
			t.refused(s, err)
		}
	}
	if len(starts) > 0 {
		t.setOwners()
	}
}

// refused ends a job whose order the runner would not take: nothing ran, and
// no event will follow.
func (t *Turn) refused(s start, err error) {
	t.cfg.Log.Error("give go", "job", s.job.ID, "token", s.token, "err", err)
	// There is no end to acknowledge: the supervisor may have another job by
	// the time that would be done.
	defer func() {
		t.acks = slices.DeleteFunc(t.acks, func(token string) bool { return token == s.token })
	}()
	if errors.Is(err, ErrNotNow) && s.job.Stop != job.StopCancel {
		t.neverRan(t.active[s.job.ID], err.Error(), t.Now.Add(notNowDelay))
		t.runner.Release(s.token)
		return
	}
	t.release(t.active[s.job.ID])
	t.runner.Release(s.token)
	t.finish(s.job, job.Launch, err.Error())
}

// bookings is what this berth tells the others on the machine.
func (t *Turn) bookings(starts []start) []gpu.Entry {
	entries := make([]gpu.Entry, 0, len(t.active)+len(starts))
	cards := t.cards.list()
	for _, a := range t.active {
		entries = append(entries, t.booking(a.job, a.token, cards))
	}
	for _, s := range starts {
		entries = append(entries, t.booking(s.job, s.token, cards))
	}
	slices.SortFunc(entries, func(a, b gpu.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

func (t *Turn) booking(j *job.Job, token string, cards []sched.Card) gpu.Entry {
	identity, _ := t.runner.Identity(token)
	return gpu.Entry{
		Key: BookingKey(token, j.ID), User: j.User, Job: j.ID, Name: j.Name(),
		UUIDs: j.Grant.UUIDs, BudgetMiB: t.hold(j, cards).BudgetMiB, Share: j.Grant.Share,
		Alone: j.Grant.Alone, Exclusive: j.Grant.Exclusive,
		HolderPID: identity.KeepPID, HolderStart: identity.KeepStart,
	}
}

// publishBookings tells the others outside a decision: bookings only shrink
// or grow by what is already running, so the lock is not needed.
func (t *Turn) publishBookings(starts []start) {
	if err := t.ledger.Publish(t.bookings(starts)); err != nil {
		t.warn("cannot update the ledger of GPU reservations", err)
	}
}

// warn says a thing once until it changes. Its cause decides, not its text:
// that may name another file each time.
func (t *Turn) warn(what string, err error) {
	why := cause(err).Error()
	if t.warned[what] == why {
		return
	}
	t.warned[what] = why
	t.cfg.Log.Warn(what, "err", err)
	t.show(job.EventWarning, nil, fmt.Sprintf("%s: %v", what, err))
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
