package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/run"
	"berth/internal/sched"
)

// attempts is the running jobs, their supervisors, and the orders to send once
// they are on disk. It knows the cards that jobs hold, and no queue.
type attempts struct {
	active  map[string]*attempt // those that hold cards, by job id
	parked  map[string]*attempt // those that left them, likewise
	byToken map[string]string   // supervisor token to job id
	strays  map[string]*stray   // by token
	runner  Runner
	cards   *cards
	cfg     *Config
	changes *changes
	limits  memoryLimits

	acks  []string // supervisors whose exit record may be deleted
	stops []stopOrder
	warns []warnOrder
	parks []parkOrder

	diedAt time.Time // when a supervisor last died before its job started

	parking    parking
	uses       uses
	preemption preemption
	hindrances hindrances
	holdings   holdings
}

// attempt is a running job as the engine sees it.
type attempt struct {
	job       *job.Job
	token     string
	startedAt time.Time
	exceeds   string // how far it exceeds its declaration, once that was reported
	shownMiB  int64
	storedMiB int64
	bookedMiB int64          // the highest peak published to other berths
	occupies  int            // how many cards an adopted process uses, as published
	run       sched.Estimate // estimated duration
	kind      string         // groups jobs with similar commands

	told     bool      // it is being preempted, and the order to stop was sent
	warnedOf time.Time // the stop time it was warned of

	nearMiB   int64     // its peak when that last grew noticeably
	grewAt    time.Time // when that was
	trouble   string    // what happened to one of its cards
	remarks   string    // notes of its supervisor that were published
	cpu       cpuUse
	idleSince time.Time // since when it has not used its cards, or its CPUs; zero: it uses them
	idleTold  bool
	overSince time.Time // since when it has used far more than it declared; zero: it does not
	overTold  bool      // that it will be ended
	// unmeasured is a share that counts as whole GPUs until it was measured.
	unmeasured bool
	hindrance  hindrance
}

type stopOrder struct {
	token string
	why   job.Stop
	grace time.Duration
}

// warnOrder sends a job's warning signal.
type warnOrder struct{ token, stamp string }

func newAttempts(cfg *Config, r Runner, k *cards, c *changes) *attempts {
	s := &attempts{
		active: map[string]*attempt{}, parked: map[string]*attempt{}, byToken: map[string]string{}, strays: map[string]*stray{},
		runner: r, cards: k, cfg: cfg, changes: c, limits: memoryLimits{},
	}
	s.parking = parking{set: s, pace: firstPace, attended: map[string]int{}}
	s.uses = uses{set: s, grown: map[string]struct{}{}}
	s.preemption, s.hindrances, s.holdings = preemption{s}, hindrances{s}, holdings{s}
	return s
}

// begin records an attempt that is on disk.
func (s *attempts) begin(now time.Time, j *job.Job, run sched.Estimate) *attempt {
	a := &attempt{job: j, token: j.Keep, startedAt: now, run: run, kind: kindOf(j)}
	s.active[j.ID], s.byToken[j.Keep] = a, j.ID
	s.cards.meter.Seed(j.ID, j.PeakMiB)
	return a
}

// release frees the cards: the last process of the attempt is gone.
func (s *attempts) release(now time.Time, a *attempt) {
	_, parked := s.parked[a.job.ID]
	delete(s.active, a.job.ID)
	delete(s.parked, a.job.ID)
	delete(s.byToken, a.token)
	delete(s.uses.grown, a.job.ID)
	if parked {
		s.cards.moved = true
		s.acks = append(s.acks, a.token)
		return // it holds no card
	}
	if a.job.Spec.Adopt == nil { // an adopted process may keep running
		s.cards.meter.Ended(a.job.ID, a.job.Grant.GPUs, now)
	}
	s.cards.meter.Forget(a.job.ID)
	for _, card := range a.job.Grant.GPUs {
		s.cards.book.freed[card] = now
	}
	s.cards.moved = true
	s.hindrances.openCards(now, a.job.Grant.UUIDs)
	s.acks = append(s.acks, a.token)
	s.holdings.setOwners()
}

// heldBy is the attempt that a supervisor's event is about; nil: it does not
// hold one.
func (s *attempts) heldBy(ev *run.Event) *attempt {
	id, ok := s.byToken[ev.Token]
	a := s.active[id]
	if a == nil {
		a = s.parked[id]
	}
	if ok && a != nil && ev.Kind == run.Lost && ev.Job == "" {
		// A supervisor whose record is gone cannot name its job.
		ev.Job, ev.Attempt = id, a.job.Attempt.Number
	}
	if !ok || a == nil || ev.Job != id || ev.Attempt != a.job.Attempt.Number {
		return nil
	}
	return a
}

func (s *attempts) ids() []string {
	ids := make([]string, 0, len(s.active))
	for id := range s.active {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (s *attempts) runs(id string) bool { return s.active[id] != nil }

// inUse reports whether a job holds the card.
func (s *attempts) inUse(index int) bool {
	for _, a := range s.active {
		if slices.Contains(a.job.Grant.GPUs, index) {
			return true
		}
	}
	return false
}

// closely reports whether a job is watched closely.
func (s *attempts) closely(now time.Time) bool {
	for _, a := range s.active {
		if a.closely(now) {
			return true
		}
	}
	return false
}

// closely reports whether a job has just started, or is near its declared memory
// and still growing.
func (a *attempt) closely(now time.Time) bool {
	if len(a.job.Grant.GPUs) == 0 {
		return false
	}
	if now.Sub(a.startedAt) < closeWatch {
		return true
	}
	declaredMiB := a.job.VRAMMiB
	return declaredMiB > 0 && float64(a.nearMiB) >= nearShare*float64(declaredMiB) && now.Sub(a.grewAt) < closeWatch
}

// holdings is what running jobs hold of the cards, for placement, for other berths
// and for the meter.
type holdings struct{ set *attempts }

// held is what is on the cards for placement, including other berths' jobs. Here
// a budget grows once a job used more than it declared.
func (hs *holdings) held(now time.Time) []sched.Held {
	list := make([]sched.Held, 0, len(hs.set.active)+len(hs.set.cards.bookings.others))
	cards := hs.set.cards.book.list()
	for _, a := range hs.set.active {
		h := hs.occupied(a.job, cards)
		hs.rank(now, a, &h)
		list = append(list, h)
	}
	return append(list, hs.set.cards.heldByOthers()...)
}

// hold is one of our jobs on its cards, with what was measured so far.
func (hs *holdings) hold(j *job.Job, cards []sched.Card) sched.Held {
	measured := *j
	hs.set.measure(&measured)
	return sched.Hold(&measured, hs.set.cfg.Rules, cards)
}

// occupied is hold without the cards that an adopted process has left: berth
// keeps nothing free for it that it used and freed.
func (hs *holdings) occupied(j *job.Job, cards []sched.Card) sched.Held {
	h := hs.hold(j, cards)
	if j.Spec.Adopt == nil {
		return h
	}
	nowMiB, peakMiB := hs.set.cards.meter.Now(j.ID), hs.set.cards.meter.Peak(j.ID)
	var left sched.Held
	for i, card := range h.Cards {
		if used, known := nowMiB[card]; !known || used > 0 || peakMiB[card] == 0 {
			left.Cards, left.BudgetMiB = append(left.Cards, card), append(left.BudgetMiB, h.BudgetMiB[i])
		}
	}
	h.Cards, h.BudgetMiB = left.Cards, left.BudgetMiB
	return h
}

// measure sets a job's peaks, and what it is charged for them.
func (s *attempts) measure(j *job.Job) {
	j.PeakMiB = s.cards.meter.Peak(j.ID)
	j.OverGPUs = sched.OverGPUs(j.Grant, j.VRAMMiB, j.PeakMiB, func(card int) int64 { return s.cards.book.known[card].TotalMiB })
}

// charged is a running job as it counts now.
func (s *attempts) charged(a *attempt) *job.Job {
	j := *a.job
	s.measure(&j)
	return &j
}

// list is where the meter looks for whose memory.
func (hs *holdings) list() []gpu.Holding {
	held := hs.set.cards.heldByOthers()
	cards := hs.set.cards.book.list()
	for _, a := range hs.set.active {
		held = append(held, hs.hold(a.job, cards))
	}
	list := make([]gpu.Holding, 0, len(held))
	for _, h := range held {
		list = append(list, gpu.Holding{Key: h.Job, Cards: h.Cards, BudgetMiB: h.BudgetMiB})
	}
	return list
}

// rank fills in a running job's owner and its rank in the order.
func (hs *holdings) rank(now time.Time, a *attempt, h *sched.Held) {
	j := a.job
	ran := max(0, now.Sub(j.RunsSince()))
	h.User, h.Priority, h.Rank, h.Seq = j.User, j.Spec.Priority, j.Rank, j.Seq
	h.Submitted, h.Started, h.Run, h.Limit = j.SubmittedAt, j.RunsSince(), a.run, hs.set.cfg.left(j)
	h.Served = j.Parking.Served
	if waited := j.RunsSince().Sub(laterOf(j.SubmittedAt, j.WaitsSince)); waited > 0 {
		h.Waited = waited
	}
	switch {
	case j.Leaving():
		h.Leaving, h.LeavesFor, h.LeavesBy = true, j.PreemptedFor, laterOf(j.PreemptAt.Add(hs.set.cfg.bounded(j.Spec.Grace)), now)
	case j.Parking.Phase == job.ParkOut:
		h.Leaving, h.LeavesFor, h.LeavesBy = true, j.PreemptedFor, now.Add(hs.set.parking.pace.out(j.Parking.HostMiB()))
	case j.Stop != job.NoStop:
		// It was told to stop, and is gone within its grace period.
		end := ran + hs.set.cfg.bounded(j.Spec.Grace)
		h.Run, h.Limit = sched.Estimate{Low: ran, Mid: end, High: end}, end
	default:
		h.Preempt = hs.set.parking.preemptMode(a)
	}
}

// bookings is what this berth publishes to the others on the machine.
func (hs *holdings) bookings(starts []*job.Job) []gpu.Entry {
	entries := make([]gpu.Entry, 0, len(hs.set.active)+len(starts))
	cards := hs.set.cards.book.list()
	for _, a := range hs.set.active {
		entries = append(entries, hs.booking(a.job, cards))
	}
	for _, j := range starts {
		entries = append(entries, hs.booking(j, cards))
	}
	entries = append(entries, hs.strayBookings()...)
	slices.SortFunc(entries, func(a, b gpu.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

func (hs *holdings) booking(j *job.Job, cards []sched.Card) gpu.Entry {
	identity, _ := hs.set.runner.Identity(j.Keep)
	h, uuids := hs.occupied(j, cards), j.Grant.UUIDs
	if len(h.Cards) < len(j.Grant.GPUs) {
		uuids = make([]string, len(h.Cards))
		for i, card := range h.Cards {
			uuids[i] = j.Grant.UUIDs[slices.Index(j.Grant.GPUs, card)]
		}
	}
	return gpu.Entry{
		Key: BookingKey(j.Keep, j.ID), User: j.User, Job: j.ID, Name: j.Name(),
		UUIDs: uuids, BudgetMiB: h.BudgetMiB, Share: j.Grant.Share,
		Alone: j.Grant.Alone, Exclusive: j.Grant.Exclusive,
		HolderPID: identity.KeepPID, HolderStart: identity.KeepStart,
	}
}

// setOwners tells attribution which supervisors and sessions belong to which
// job.
func (hs *holdings) setOwners() {
	holders := make([]run.Holder, 0, len(hs.set.active)+len(hs.set.cards.bookings.others))
	for id, a := range hs.set.active {
		identity, _ := hs.set.runner.Identity(a.token)
		holder := run.Holder{
			Key: id, KeepPID: identity.KeepPID, Session: identity.Session, Cgroup: identity.Cgroup, Token: a.token, UID: a.job.UID,
		}
		if p := a.job.Spec.Adopt; p != nil {
			holder.Root = *p
		}
		holders = append(holders, holder)
	}
	hs.set.cards.bookings.setOwners(holders)
}

// expect updates the estimates of a group of similar jobs.
func (s *attempts) expect(kind string, span func(*job.Job) sched.Estimate) {
	for _, a := range s.active {
		if kind != "" && a.kind == kind {
			a.run = span(a.job)
		}
	}
}

// stop asks a job's supervisor to stop it, once the reason is on disk. The first
// reason counts, with two exceptions: cancelling overrides a requeue, and any
// reason overrides preemption. detail, if any, replaces the job's detail.
func (s *attempts) stop(now time.Time, j *job.Job, why job.Stop, grace time.Duration, detail string) {
	if j.Stop == job.NoStop || j.Stop == job.StopPreempt || why == job.StopCancel && j.Stop != job.StopCancel {
		if detail != "" || j.Stop == job.StopPreempt {
			j.Detail = detail
		}
		j.Stop = why
		s.changes.fact(j)
		s.changes.tell(now, job.EventStopping, j, string(why))
		// An earlier order that is not written yet gets the new reason.
		for i := range s.stops {
			if s.stops[i].token == j.Keep {
				s.stops[i].why = why
			}
		}
	}
	s.stops = append(s.stops, stopOrder{j.Keep, j.Stop, grace})
}

// act sends the supervisors what is on disk now: acknowledgements, warnings and
// stops.
func (s *attempts) act() {
	for _, token := range s.acks {
		Fault("before ack")
		s.runner.Ack(token)
		Fault("acked")
	}
	for _, w := range s.warns {
		Fault("before warning")
		if err := s.runner.Warn(w.token, w.stamp); err != nil {
			s.cfg.Log.Warn("cannot warn a job", "token", w.token, "err", err)
		}
		Fault("warned")
	}
	for _, o := range s.parks {
		s.parking.send(o)
	}
	for _, o := range s.stops {
		Fault("before stop")
		if err := s.runner.Stop(o.token, o.why, s.cfg.bounded(o.grace)); err != nil {
			s.cfg.Log.Warn("cannot stop a job", "token", o.token, "err", err)
		}
		Fault("stopped")
	}
	s.cards.bookings.behind = s.cards.bookings.behind || len(s.acks) > 0
	s.acks, s.stops, s.warns, s.parks = nil, nil, nil, nil
}

// stopUnsaved sends the stops of a round that could not be saved: a job that fills
// the disk must not be kept alive by the full disk. If berth dies before it can
// save the reason, the supervisor's record has it. Jobs that are to run again wait
// for the disk: nothing can start in the meantime.
func (s *attempts) stopUnsaved() {
	var wait []stopOrder
	for _, o := range s.stops {
		if o.why == job.StopPreempt || o.why == job.StopRequeue {
			wait = append(wait, o)
			continue
		}
		if err := s.runner.Stop(o.token, o.why, s.cfg.bounded(o.grace)); err != nil {
			s.cfg.Log.Warn("cannot stop a job", "token", o.token, "err", err)
		}
	}
	s.stops = wait
}

// tellJobsOn reports a quarantined card for each job on it. The jobs keep
// running: they may have read all they need.
func (s *attempts) tellJobsOn(now time.Time, c gpu.HealthChange) {
	for _, id := range s.ids() {
		a := s.active[id]
		if !slices.Contains(a.job.Grant.UUIDs, c.UUID) {
			continue
		}
		a.trouble = whileItRan(c.Index, c.To)
		s.changes.tellCard(now, cardChange(c), a.job, fmt.Sprintf("%s; job %s keeps running", c, id))
	}
}

// whileItRan is what happened to a card, for the jobs that were on it.
func whileItRan(index int, v gpu.Verdict) string {
	what := "quarantined"
	if v.Cause == gpu.CauseLost {
		what = "lost"
	}
	return fmt.Sprintf("gpu%d was %s while it ran (%s)", index, what, v.Reason)
}

// recallTrouble finds out after a restart that a job is on a quarantined card.
// The job may have ended meanwhile.
func (s *attempts) recallTrouble(a *attempt) {
	for i, uuid := range a.job.Grant.UUIDs {
		if v := s.cards.book.health.Of(uuid); v.State == gpu.HealthQuarantined && a.trouble == "" {
			a.trouble = whileItRan(a.job.Grant.GPUs[i], v)
		}
	}
}

// blame adds the card's trouble to a job's failure.
func (a *attempt) blame(detail string) string {
	switch {
	case a.trouble == "":
		return detail
	case detail == "":
		return a.trouble
	}
	return a.trouble + "; " + detail
}

// remarked publishes, once each, what a supervisor noted: a limit that could not
// be set, an MPS server that ended.
func (s *attempts) remarked(now time.Time, a *attempt, notes string) {
	if rest, known := strings.CutPrefix(notes, a.remarks); known && rest != "" {
		a.remarks = notes
		s.changes.tell(now, job.EventWarning, a.job, strings.TrimPrefix(rest, "; "))
	}
}
