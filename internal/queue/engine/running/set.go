package running

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/engine/fault"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/settings"
	"berth/internal/sched"
)

// Set is the running jobs, their supervisors, and the orders to send once
// they are on disk. It knows the cards that jobs hold, and no queue.
type Set struct {
	Active  map[string]*Attempt    // those that run, with cards or without, by job id
	Parked  map[string]*Attempt    // those that are parked, likewise
	ByToken map[string]string      // supervisor token to job id
	Strays  map[string]*StrayEntry // by token
	Runner  Runner
	cards   *cards.Cards
	cfg     *settings.Settings
	changes *journal.Journal
	Limits  memoryLimits

	Acks  []string // supervisors whose exit record may be deleted
	Stops []StopOrder
	warns []warnOrder
	Parks []parkOrder

	DiedAt time.Time // when a supervisor last died before its job started

	Parking    Parking
	Uses       Uses
	Preemption preemption
	Hindrances hindrances
	Holdings   holdings
}

// Attempt is a running job as the engine sees it.
type Attempt struct {
	Job       *job.Job
	Token     string
	StartedAt time.Time
	exceeds   string // how far it exceeds its declaration, once that was reported
	shownMiB  int64
	StoredMiB int64
	bookedMiB int64          // the highest peak published to other berths
	occupies  int            // how many cards an adopted process uses, as published
	Run       sched.Estimate // estimated duration
	Kind      string         // groups jobs with similar commands

	Told     bool      // it is being preempted, and the order to stop was sent
	warnedOf time.Time // the stop time it was warned of

	nearMiB   int64     // its peak when that last grew noticeably
	grewAt    time.Time // when that was
	Trouble   string    // what happened to one of its cards
	remarks   string    // notes of its supervisor that were published
	cpu       cpuUse
	IdleSince time.Time // since when it has not used its cards, or its CPUs; zero: it uses them
	IdleTold  bool
	overSince time.Time // since when it has used far more than it declared; zero: it does not
	overTold  bool      // that it will be ended
	// Unmeasured is a share that counts as whole GPUs until it was measured.
	Unmeasured bool
	Hindrance  hindrance
}

type StopOrder struct {
	Token string
	Why   job.Stop
	Grace time.Duration
}

// warnOrder sends a job's warning signal.
type warnOrder struct{ token, stamp string }

func New(cfg *settings.Settings, r Runner, k *cards.Cards, c *journal.Journal) *Set {
	s := &Set{
		Active: map[string]*Attempt{}, Parked: map[string]*Attempt{}, ByToken: map[string]string{}, Strays: map[string]*StrayEntry{},
		Runner: r, cards: k, cfg: cfg, changes: c, Limits: memoryLimits{},
	}
	s.Parking = Parking{set: s, Pace: sched.FirstPace, Refusals: Refusals{}, Attended: map[string]int{}}
	s.Uses = Uses{set: s, Grown: map[string]struct{}{}}
	s.Preemption, s.Hindrances, s.Holdings = preemption{s}, hindrances{s}, holdings{s}
	return s
}

// Begin records an attempt that is on disk.
func (s *Set) Begin(now time.Time, j *job.Job, run sched.Estimate, kind string) *Attempt {
	a := &Attempt{Job: j, Token: j.Keep, StartedAt: now, Run: run, Kind: kind}
	s.Active[j.ID], s.ByToken[j.Keep] = a, j.ID
	s.cards.Meter.Seed(j.ID, j.PeakMiB)
	return a
}

// Release frees the cards: the last process of the attempt is gone.
func (s *Set) Release(now time.Time, a *Attempt) {
	_, parked := s.Parked[a.Job.ID]
	delete(s.Active, a.Job.ID)
	delete(s.Parked, a.Job.ID)
	delete(s.ByToken, a.Token)
	delete(s.Uses.Grown, a.Job.ID)
	if parked {
		s.cards.Moved = true
		s.Acks = append(s.Acks, a.Token)
		return // it holds no card
	}
	if a.Job.Spec.Adopt == nil { // an adopted process may keep running
		s.cards.Meter.Ended(a.Job.ID, a.Job.Grant.GPUs, now)
	}
	s.cards.Meter.Forget(a.Job.ID)
	for _, card := range a.Job.Grant.GPUs {
		s.cards.Book.Freed[card] = now
	}
	s.cards.Moved = true
	s.Hindrances.openCards(now, a.Job.Grant.UUIDs)
	s.Acks = append(s.Acks, a.Token)
	s.Holdings.SetOwners()
}

// HeldBy is the attempt that a supervisor's event is about; nil: it does not
// hold one.
func (s *Set) HeldBy(ev *run.Event) *Attempt {
	id, ok := s.ByToken[ev.Token]
	a := s.Active[id]
	if a == nil {
		a = s.Parked[id]
	}
	if ok && a != nil && ev.Kind == run.Lost && ev.Job == "" {
		// A supervisor whose record is gone cannot name its job.
		ev.Job, ev.Attempt = id, a.Job.Attempt.Number
	}
	if !ok || a == nil || ev.Job != id || ev.Attempt != a.Job.Attempt.Number {
		return nil
	}
	return a
}

func (s *Set) IDs() []string {
	ids := make([]string, 0, len(s.Active))
	for id := range s.Active {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (s *Set) Runs(id string) bool { return s.Active[id] != nil }

// InUse reports whether a job holds the card.
func (s *Set) InUse(index int) bool {
	for _, a := range s.Active {
		if slices.Contains(a.Job.Grant.GPUs, index) {
			return true
		}
	}
	return false
}

// Closely reports whether a job is watched closely.
func (s *Set) Closely(now time.Time) bool {
	for _, a := range s.Active {
		if a.closely(now) {
			return true
		}
	}
	return false
}

// closely reports whether a job has just started, or is near its declared memory
// and still growing.
func (a *Attempt) closely(now time.Time) bool {
	if len(a.Job.Grant.GPUs) == 0 {
		return false
	}
	if now.Sub(a.StartedAt) < cards.CloseWatch {
		return true
	}
	declaredMiB := a.Job.VRAMMiB
	return declaredMiB > 0 && float64(a.nearMiB) >= cards.NearShare*float64(declaredMiB) && now.Sub(a.grewAt) < cards.CloseWatch
}

// measure sets a job's peaks, and what it is charged for them.
func (s *Set) measure(j *job.Job) {
	j.PeakMiB = s.cards.Meter.Peak(j.ID)
	j.OverGPUs = sched.OverGPUs(j.Grant, j.VRAMMiB, j.PeakMiB, func(card int) int64 { return s.cards.Book.Known[card].TotalMiB })
}

// Charged is a running job as it counts now.
func (s *Set) Charged(a *Attempt) *job.Job {
	j := *a.Job
	s.measure(&j)
	return &j
}

// Expect updates the estimates of a group of similar jobs.
func (s *Set) Expect(kind string, span func(*job.Job) sched.Estimate) {
	for _, a := range s.Active {
		if kind != "" && a.Kind == kind {
			a.Run = span(a.Job)
		}
	}
}

// Stop asks a job's supervisor to stop it, once the reason is on disk. The first
// reason counts, with two exceptions: cancelling overrides a requeue, and any
// reason overrides preemption. detail, if any, replaces the job's detail.
func (s *Set) Stop(now time.Time, j *job.Job, why job.Stop, grace time.Duration, detail string) {
	if j.Stop == job.NoStop || j.Stop == job.StopPreempt || why == job.StopCancel && j.Stop != job.StopCancel {
		if detail != "" || j.Stop == job.StopPreempt {
			j.Detail = detail
		}
		j.Stop = why
		s.changes.Fact(j)
		s.changes.Tell(now, job.EventStopping, j, string(why))
		// An earlier order that is not written yet gets the new reason.
		for i := range s.Stops {
			if s.Stops[i].Token == j.Keep {
				s.Stops[i].Why = why
			}
		}
	}
	s.Stops = append(s.Stops, StopOrder{j.Keep, j.Stop, grace})
}

// Act sends the supervisors what is on disk now: acknowledgements, warnings and
// stops.
func (s *Set) Act() {
	for _, token := range s.Acks {
		fault.Point("before ack")
		s.Runner.Ack(token)
		fault.Point("acked")
	}
	for _, w := range s.warns {
		fault.Point("before warning")
		if err := s.Runner.Warn(w.token, w.stamp); err != nil {
			s.cfg.Log.Warn("cannot warn a job", "token", w.token, "err", err)
		}
		fault.Point("warned")
	}
	for _, o := range s.Parks {
		s.Parking.Send(o)
	}
	for _, o := range s.Stops {
		fault.Point("before stop")
		if err := s.Runner.Stop(o.Token, o.Why, s.cfg.Bounded(o.Grace)); err != nil {
			s.cfg.Log.Warn("cannot stop a job", "token", o.Token, "err", err)
		}
		fault.Point("stopped")
	}
	s.cards.Bookings.Behind = s.cards.Bookings.Behind || len(s.Acks) > 0
	s.Acks, s.Stops, s.warns, s.Parks = nil, nil, nil, nil
}

// StopUnsaved sends the stops of a round that could not be saved: a job that fills
// the disk must not be kept alive by the full disk. If berth dies before it can
// save the reason, the supervisor's record has it. Jobs that are to run again wait
// for the disk: nothing can start in the meantime.
func (s *Set) StopUnsaved() {
	var wait []StopOrder
	for _, o := range s.Stops {
		if o.Why == job.StopPreempt || o.Why == job.StopRequeue {
			wait = append(wait, o)
			continue
		}
		if err := s.Runner.Stop(o.Token, o.Why, s.cfg.Bounded(o.Grace)); err != nil {
			s.cfg.Log.Warn("cannot stop a job", "token", o.Token, "err", err)
		}
	}
	s.Stops = wait
}

// whileItRan is what happened to a card, for the jobs that were on it.
func whileItRan(index int, v gpu.Verdict) string {
	what := "quarantined"
	if v.Cause == gpu.CauseLost {
		what = "lost"
	}
	return fmt.Sprintf("gpu%d was %s while it ran (%s)", index, what, v.Reason)
}

// RecallTrouble finds out after a restart that a job is on a quarantined card.
// The job may have ended meanwhile.
func (s *Set) RecallTrouble(a *Attempt) {
	for i, uuid := range a.Job.Grant.UUIDs {
		if v := s.cards.Book.Health.Of(uuid); v.State == gpu.HealthQuarantined && a.Trouble == "" {
			a.Trouble = whileItRan(a.Job.Grant.GPUs[i], v)
		}
	}
}

// Blame adds the card's trouble to a job's failure.
func (a *Attempt) Blame(detail string) string {
	switch {
	case a.Trouble == "":
		return detail
	case detail == "":
		return a.Trouble
	}
	return a.Trouble + "; " + detail
}

// Remarked publishes, once each, what a supervisor noted: a limit that could not
// be set, an MPS server that ended.
func (s *Set) Remarked(now time.Time, a *Attempt, notes string) {
	if rest, known := strings.CutPrefix(notes, a.remarks); known && rest != "" {
		a.remarks = notes
		s.changes.Tell(now, job.EventWarning, a.Job, strings.TrimPrefix(rest, "; "))
	}
}

// Job is a running job with its current use.
type Job struct {
	Job     *job.Job
	NowMiB  int64 // on the card where it uses most; -1: not known
	CardMiB map[int]int64
	PeakMiB int64
}

// List is the running jobs, oldest first.
func (s *Set) List() []Job {
	list := make([]Job, 0, len(s.Active))
	for _, j := range s.OldestFirst() {
		r := Job{Job: j, NowMiB: -1, CardMiB: s.cards.Meter.Now(j.ID)}
		if card, now := job.Highest(r.CardMiB); card >= 0 {
			r.NowMiB = now
		}
		_, r.PeakMiB = job.Highest(s.cards.Meter.Peak(j.ID))
		list = append(list, r)
	}
	return list
}

// OldestFirst is the running jobs by start.
func (s *Set) OldestFirst() []*job.Job {
	list := make([]*job.Job, 0, len(s.Active))
	for _, a := range s.Active {
		list = append(list, a.Job)
	}
	slices.SortFunc(list, job.ByStart)
	return list
}

// Copy is a copy of a job as it is now, with what was measured so far.
func (s *Set) Copy(j *job.Job) job.Job {
	c := *j
	s.Complete(&c)
	return c
}

// Complete adds what was measured so far to a copy of a job.
func (s *Set) Complete(c *job.Job) {
	a := s.Active[c.ID]
	if a == nil {
		return
	}
	peak := c.PeakMiB
	if s.measure(c); len(c.PeakMiB) == 0 {
		c.PeakMiB = peak
	}
	if util, ok := s.cards.Meter.AvgUtil(c.ID); ok {
		c.AvgUtil = &util
	}
	if since, idle := s.Uses.IdleSince(c.ID); idle {
		c.IdleSince = since
	}
	if c.Detail = cmp.Or(a.Hindrance.String(), c.Detail, a.Trouble); c.IdleSince.IsZero() {
		c.Detail = cmp.Or(c.Detail, join(a.exceeds, s.Uses.EndsForOveruse(c.ID)))
	}
}

// join puts a second remark behind a first, where there are both.
func join(first, second string) string {
	if first == "" || second == "" {
		return cmp.Or(first, second)
	}
	return first + "; " + second
}

// Supervises is the running job whose supervisor the process is.
func (s *Set) Supervises(pid int) (id string, found bool) {
	for id, a := range s.Active {
		if identity, ok := s.Runner.Identity(a.Token); ok && identity.KeepPID == pid {
			return id, true
		}
	}
	return "", false
}

// NowMiB is what a running job uses on a card now, and its peak there.
func (s *Set) NowMiB(id string, card int) (nowMiB, peakMiB int64, known bool) {
	nowMiB, known = s.cards.Meter.Now(id)[card]
	return nowMiB, s.cards.Meter.Peak(id)[card], known
}

// TakeOver continues with a job that its supervisor holds.
func (s *Set) TakeOver(now time.Time, j *job.Job) {
	switch j.Stop {
	case job.StopInterrupt:
		// The berth that wanted it stopped is gone. If the supervisor got the
		// order, its record will say so.
		j.Stop = job.NoStop
		s.changes.Fact(j)
	case job.StopCancel, job.StopRequeue, job.StopTimeout, job.StopOveruse:
		s.Stops = append(s.Stops, StopOrder{j.Keep, j.Stop, j.Spec.Grace})
	case job.StopPreempt:
		// Each round checks what it is to be told, and when.
	}
	s.changes.Tell(now, job.EventAdopted, j, "")
}

// Runner holds the supervisors. A lease runs nothing until Go.
type Runner interface {
	Lease() (token string, err error)
	Release(token string)
	Go(token string, order keep.Order) error
	Stop(token string, why job.Stop, grace time.Duration) error
	Warn(token, stamp string) error
	// Park and Resume ask a supervisor; an event says what came of it.
	Park(token string, patience time.Duration, hostMiB int64) error
	Resume(token string, hold []keep.Room) error
	Ack(token string)
	// Lose ends what is left of a job whose supervisor's directory is gone. The
	// event follows when the last process is gone.
	Lose(token, id string, attempt int)
	Identity(token string) (run.Identity, bool)
}

// Elsewhere is jobs that a cluster runs. Their current use is not known, only
// their peak.
func Elsewhere(jobs []*job.Job) []Job {
	list := make([]Job, 0, len(jobs))
	for _, j := range jobs {
		r := Job{Job: j, NowMiB: -1}
		_, r.PeakMiB = job.Highest(j.PeakMiB)
		list = append(list, r)
	}
	return list
}
