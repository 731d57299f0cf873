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

// attempts is what runs, under which supervisors, and what these are to be told
// once it is on disk. It knows the cards that jobs are on, and no queue.
type attempts struct {
	active  map[string]*attempt // by job id
	byToken map[string]string   // supervisor token to job id
	runner  Runner
	cards   *cards
	cfg     *Config
	changes *changes
	limits  memoryLimits

	acks  []string // supervisors that may forget
	stops []stopOrder
	warns []warnOrder

	grown      map[string]struct{} // peaks that are worth storing, not worth a commit of their own
	grownSince time.Time
}

// attempt is a running job as the engine sees it.
type attempt struct {
	job       *job.Job
	token     string
	startedAt time.Time
	warned    bool
	shownMiB  int64
	storedMiB int64
	bookedMiB int64          // the highest peak the other berths were told of
	run       sched.Estimate // how long it is expected to run
	kind      string         // what its command has in common with others

	told     bool      // it is a leaver, and the order to end went out
	warnedOf time.Time // the end that it was warned of

	nearMiB   int64     // its peak when that last grew by more than a little
	grewAt    time.Time // when that was
	trouble   string    // what happened to one of its cards
	remarks   string    // what its supervisor noted, as far as it was told
	idleSince time.Time // since when it has not used its cards; zero: it does
	idleTold  bool
}

type stopOrder struct {
	token string
	why   job.Stop
	grace time.Duration
}

// warnOrder asks for a job's warning signal.
type warnOrder struct{ token, stamp string }

func newAttempts(cfg *Config, r Runner, k *cards, c *changes) *attempts {
	return &attempts{
		active: map[string]*attempt{}, byToken: map[string]string{}, runner: r, cards: k, cfg: cfg, changes: c,
		limits: memoryLimits{}, grown: map[string]struct{}{},
	}
}

// begin enters an attempt that is on disk.
func (s *attempts) begin(now time.Time, j *job.Job, run sched.Estimate) *attempt {
	a := &attempt{job: j, token: j.Keep, startedAt: now, run: run, kind: kindOf(j)}
	s.active[j.ID], s.byToken[j.Keep] = a, j.ID
	return a
}

// release gives the cards back: the last process of the attempt is gone.
func (s *attempts) release(now time.Time, a *attempt) {
	delete(s.active, a.job.ID)
	delete(s.byToken, a.token)
	delete(s.grown, a.job.ID)
	if a.job.Spec.Adopt == nil { // whose process may well go on
		s.cards.meter.Ended(a.job.ID, a.job.Grant.GPUs, now)
	}
	s.cards.meter.Forget(a.job.ID)
	for _, card := range a.job.Grant.GPUs {
		s.cards.freed[card] = now
	}
	s.cards.moved = true
	s.acks = append(s.acks, a.token)
	s.setOwners()
}

// heldBy is the attempt that a supervisor speaks of; nil: it does not hold it.
func (s *attempts) heldBy(ev *run.Event) *attempt {
	id, ok := s.byToken[ev.Token]
	a := s.active[id]
	if ok && a != nil && ev.Kind == run.Lost && ev.Job == "" {
		// A supervisor whose record is gone cannot name what it held.
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

// inUse is true of a card that a job holds.
func (s *attempts) inUse(index int) bool {
	for _, a := range s.active {
		if slices.Contains(a.job.Grant.GPUs, index) {
			return true
		}
	}
	return false
}

// closely is true while one of them is watched closely.
func (s *attempts) closely(now time.Time) bool {
	for _, a := range s.active {
		if a.closely(now) {
			return true
		}
	}
	return false
}

// closely is true of a job that has just started on a card, or that is near
// what it declared and still growing.
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

// held is what is on the cards for placement, other berths' jobs included:
// budgets escalate here, once a job was seen to use more than it declared.
func (s *attempts) held(now time.Time) []sched.Held {
	list := make([]sched.Held, 0, len(s.active)+len(s.cards.others))
	cards := s.cards.list()
	for _, a := range s.active {
		h := s.hold(a.job, cards)
		s.stands(now, a, &h)
		list = append(list, h)
	}
	return append(list, s.cards.heldByOthers()...)
}

// hold is one job of ours on its cards, with what was measured of it so far.
func (s *attempts) hold(j *job.Job, cards []sched.Card) sched.Held {
	measured := *j
	measured.PeakMiB = s.cards.meter.Peak(j.ID)
	return sched.Hold(&measured, s.cfg.Rules, cards)
}

// holdings is the same for the meter.
func (s *attempts) holdings(now time.Time) []gpu.Holding {
	list := make([]gpu.Holding, 0, len(s.active)+len(s.cards.others))
	for _, h := range s.held(now) {
		list = append(list, gpu.Holding{Key: h.Job, Cards: h.Cards, BudgetMiB: h.BudgetMiB})
	}
	return list
}

// stands fills in who a running job is and how it stands in the order.
func (s *attempts) stands(now time.Time, a *attempt, h *sched.Held) {
	j := a.job
	ran := max(0, now.Sub(j.StartedAt))
	h.User, h.Priority, h.Rank, h.Seq = j.User, j.Spec.Priority, j.Rank, j.Seq
	h.Submitted, h.Started, h.Run, h.Limit = j.SubmittedAt, j.StartedAt, a.run, j.Spec.TimeLimit
	if waited := j.StartedAt.Sub(laterOf(j.SubmittedAt, j.WaitsSince)); waited > 0 {
		h.Waited = waited
	}
	switch {
	case j.Leaving():
		h.Leaving, h.LeavesFor, h.LeavesBy = true, j.PreemptedFor, laterOf(j.PreemptAt.Add(j.Spec.Grace), now)
	case j.Stop != job.NoStop:
		// It was told to end, and is gone within its grace.
		end := ran + j.Spec.Grace
		h.Run, h.Limit = sched.Estimate{Low: ran, Mid: end, High: end}, end
	default:
		h.Preempt = s.aside(&j.Spec)
	}
}

// bookings is what this berth tells the others on the machine.
func (s *attempts) bookings(starts []*job.Job) []gpu.Entry {
	entries := make([]gpu.Entry, 0, len(s.active)+len(starts))
	cards := s.cards.list()
	for _, a := range s.active {
		entries = append(entries, s.booking(a.job, cards))
	}
	for _, j := range starts {
		entries = append(entries, s.booking(j, cards))
	}
	slices.SortFunc(entries, func(a, b gpu.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

func (s *attempts) booking(j *job.Job, cards []sched.Card) gpu.Entry {
	identity, _ := s.runner.Identity(j.Keep)
	return gpu.Entry{
		Key: BookingKey(j.Keep, j.ID), User: j.User, Job: j.ID, Name: j.Name(),
		UUIDs: j.Grant.UUIDs, BudgetMiB: s.hold(j, cards).BudgetMiB, Share: j.Grant.Share,
		Alone: j.Grant.Alone, Exclusive: j.Grant.Exclusive,
		HolderPID: identity.KeepPID, HolderStart: identity.KeepStart,
	}
}

// setOwners tells attribution which supervisors and sessions are whose.
func (s *attempts) setOwners() {
	holders := make([]run.Holder, 0, len(s.active)+len(s.cards.others))
	for id, a := range s.active {
		identity, _ := s.runner.Identity(a.token)
		holder := run.Holder{
			Key: id, KeepPID: identity.KeepPID, Session: identity.Session, Cgroup: identity.Cgroup, Token: a.token, UID: a.job.UID,
		}
		if p := a.job.Spec.Adopt; p != nil {
			holder.Root = *p
		}
		holders = append(holders, holder)
	}
	s.cards.setOwners(holders)
}

// expect is told that more is known of how long jobs of a kind run.
func (s *attempts) expect(kind string, span func(*job.Job) sched.Estimate) {
	for _, a := range s.active {
		if kind != "" && a.kind == kind {
			a.run = span(a.job)
		}
	}
}

// stop asks a job's supervisor to end it, once the reason is on disk. The
// first reason counts, but for a job that is given up while it is on its way
// back to the queue, and for one that would only have made room for another.
func (s *attempts) stop(now time.Time, j *job.Job, why job.Stop, grace time.Duration) {
	if j.Stop == job.NoStop || j.Stop == job.StopPreempt || why == job.StopCancel && j.Stop != job.StopCancel {
		if j.Stop == job.StopPreempt && j.Detail == leavingText(j.PreemptedFor) {
			j.Detail = "" // that is not what ends it now
		}
		j.Stop = why
		s.changes.fact(j)
		s.changes.tell(now, job.EventStopping, j, string(why))
		// What was asked for before and could not be written yet is asked for
		// this reason now.
		for i := range s.stops {
			if s.stops[i].token == j.Keep {
				s.stops[i].why = why
			}
		}
	}
	s.stops = append(s.stops, stopOrder{j.Keep, j.Stop, grace})
}

// act tells the supervisors what is on disk now: they may forget, are to warn
// their jobs, or to end them.
func (s *attempts) act() {
	for _, token := range s.acks {
		Fault("before ack")
		s.runner.Ack(token)
		Fault("acked")
	}
	for _, w := range s.warns {
		Fault("before warning")
		if err := s.runner.Warn(w.token, w.stamp); err != nil {
			s.cfg.Log.Warn("warn", "token", w.token, "err", err)
		}
		Fault("warned")
	}
	for _, o := range s.stops {
		Fault("before stop")
		if err := s.runner.Stop(o.token, o.why, o.grace); err != nil {
			s.cfg.Log.Warn("stop", "token", o.token, "err", err)
		}
		Fault("stopped")
	}
	s.cards.behind = s.cards.behind || len(s.acks) > 0
	s.acks, s.stops, s.warns = nil, nil, nil
}

// tellJobsOn says of each job on a card that was quarantined that it is there.
// It goes on: what it has done so far may be all it needs.
func (s *attempts) tellJobsOn(now time.Time, c gpu.HealthChange) {
	for _, id := range s.ids() {
		a := s.active[id]
		if !slices.Contains(a.job.Grant.UUIDs, c.UUID) {
			continue
		}
		a.trouble = whileItRan(c.Index, c.To)
		s.changes.tellCard(now, cardChange(c), a.job, fmt.Sprintf("%s; job %s goes on", c, id))
	}
}

// whileItRan is what became of a card, for the jobs that were on it.
func whileItRan(index int, v gpu.Verdict) string {
	what := "quarantined"
	if v.Cause == gpu.CauseLost {
		what = "lost"
	}
	return fmt.Sprintf("gpu%d was %s while it ran (%s)", index, what, v.Reason)
}

// recallTrouble finds out that a job is on a quarantined card, after a restart.
// It may have ended meanwhile.
func (s *attempts) recallTrouble(a *attempt) {
	for i, uuid := range a.job.Grant.UUIDs {
		if v := s.cards.health.Of(uuid); v.State == gpu.HealthQuarantined && a.trouble == "" {
			a.trouble = whileItRan(a.job.Grant.GPUs[i], v)
		}
	}
}

// blame adds to how a job failed that its card was in trouble.
func (a *attempt) blame(detail string) string {
	switch {
	case a.trouble == "":
		return detail
	case detail == "":
		return a.trouble
	}
	return a.trouble + "; " + detail
}

// remarked tells, once each, of what a job has to do without, as its supervisor
// notes it: a limit that could not be set, an MPS server that ended.
func (s *attempts) remarked(now time.Time, a *attempt, notes string) {
	if rest, known := strings.CutPrefix(notes, a.remarks); known && rest != "" {
		a.remarks = notes
		s.changes.tell(now, job.EventWarning, a.job, strings.TrimPrefix(rest, "; "))
	}
}
