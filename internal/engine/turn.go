package engine

import (
	"context"
	"time"

	"berth/internal/engine/cards"
	"berth/internal/engine/journal"
	"berth/internal/engine/judge"
	"berth/internal/engine/remote"
	"berth/internal/engine/running"
	"berth/internal/engine/waiting"
	"berth/internal/fair"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/run"
)

// Turn is the engine at a moment, held by the only function that may touch it: a
// request, or a step of the loop. It ends when that function returns. It gives
// access to the parts by name.
type Turn struct {
	Now time.Time
	*parts

	explain  *Explain
	ends     *ends
	parker   *Parker
	recovery *Recovery
	round    *round
	set      *Settings
	door     door
}

// parts is the state of one queue. It has no methods: each of the types that work
// on several parts has its own.
type parts struct {
	cfg      *Config
	changes  *journal.Journal // not on disk yet
	line     *waiting.Line    // waiting jobs
	queue    *waiting.Queue   // requests about them
	groups   *waiting.Groups
	cards    *cards.Cards // what jobs run on
	attempts *running.Set // running jobs
	remote   *remote.Jobs // those that a cluster runs

	moved    bool      // something happened since the last decision that could change it
	again    time.Time // when time alone changes the decision
	removed  error     // why nothing starts here any more: the store is gone
	unleased error     // why no supervisor could be had for the last job that was placed
	admitted bool      // this round let jobs in
	stopping bool
	ending   bool // the loop is about to end: postpone nothing
}

func newTurn(p *parts) *Turn {
	t := &Turn{parts: p, explain: &Explain{p}, door: fair.NewDoor[func(*Turn)]()}
	t.ends = &ends{p, t.explain}
	t.parker = &Parker{p, t.explain}
	t.recovery = &Recovery{p, t.ends, t.parker}
	t.round = &round{p, t.explain, t.ends, t.parker, t.recovery}
	t.set = &Settings{p, t.parker}
	return t
}

func (e *Engine) at(now time.Time) *Turn {
	e.turn.Now, e.turn.changes.Now = now, now
	return e.turn
}

// Jobs is the unfinished jobs.
func (t *Turn) Jobs() *waiting.Roster { return &t.line.Roster }

// Queue is the requests about unfinished jobs.
func (t *Turn) Queue() *waiting.Queue { return t.queue }

// Groups is the limits and pauses of groups.
func (t *Turn) Groups() *waiting.Groups { return t.groups }

// Remote is the jobs that a cluster runs.
func (t *Turn) Remote() *remote.Jobs { return t.remote }

// Cards is what berth knows about the machine's cards.
func (t *Turn) Cards() *cards.Book { return &t.cards.Book }

// Bookings is what the berths on this machine tell each other.
func (t *Turn) Bookings() *cards.Bookings { return &t.cards.Bookings }

// Running is the running jobs.
func (t *Turn) Running() *running.Set { return t.attempts }

// Parking parks jobs and brings them back.
func (t *Turn) Parking() *Parker { return t.parker }

// Explain says what the next decision is based on, and why jobs wait.
func (t *Turn) Explain() *Explain { return t.explain }

// Recovery takes the queue over from an earlier berth.
func (t *Turn) Recovery() *Recovery { return t.recovery }

// Settings changes what the owner of the queue decides.
func (t *Turn) Settings() *Settings { return t.set }

// Uses is what running jobs use.
func (t *Turn) Uses() *running.Uses { return &t.attempts.Uses }

// Starting reports whether jobs may start at all: berth is not stopping, and its
// store is there.
func (t *Turn) Starting() bool { return !t.stopping && t.removed == nil }

// Accept takes jobs of a request that waits for the answer. They exist only once
// they are on disk: a failed commit refuses them, and they are not tried again.
func (t *Turn) Accept(b journal.Batch) {
	if err := t.Present(); err != nil {
		b.Done(err)
		return
	}
	for _, j := range b.Jobs {
		j.Submitted(t.Now)
		j.VRAMMiB = j.Spec.VRAMMiB
	}
	t.changes.Stage(b)
}

// Cancel ends a queued job at once, and a running one through its supervisor
// after that is on disk.
func (t *Turn) Cancel(id, detail string) bool {
	j := t.line.Roster.Jobs[id]
	if j == nil {
		return false
	}
	if j.HandedOver() {
		t.remote.Stop(j, job.StopCancel, detail)
		return true
	}
	if j.State == job.Queued {
		t.queue.Finish(j, job.WasCancelled, detail)
		return true
	}
	t.stop(j, job.StopCancel, j.Spec.Grace, "")
	return true
}

// stop stops a job that its supervisor holds; a parked one does not come back.
func (t *Turn) stop(j *job.Job, why job.Stop, grace time.Duration, detail string) {
	if j.HandedOver() {
		t.remote.Stop(j, why, detail)
		return
	}
	if j.State == job.Parked {
		t.line.Unqueue(j.ID)
	}
	t.attempts.Stop(t.Now, j, why, grace, detail)
}

// CancelBy is Cancel for a user, whose name the job will carry, with this much
// time between TERM and KILL.
func (t *Turn) CancelBy(id, by string, grace time.Duration) bool {
	j := t.line.Roster.Jobs[id]
	if j == nil || j.State == job.Queued {
		return t.Cancel(id, "cancelled by "+by)
	}
	detail := "cancelled by " + by + " while running"
	if j.Spec.Adopt != nil {
		detail = "cancelled by " + by + ": " + judge.GoesOn(j)
	}
	t.stop(j, job.StopCancel, grace, detail)
	return true
}

// Requeue stops a running job and runs it again from the beginning. A cancelled
// one does not come back.
func (t *Turn) Requeue(id, by string, grace time.Duration) bool {
	j := t.line.Roster.Jobs[id]
	if j == nil || j.State != job.Running && j.State != job.Parked || j.Stop == job.StopCancel {
		return false
	}
	t.stop(j, job.StopRequeue, grace, "requeued by "+by)
	return true
}

// Interrupt stops all running jobs, which go back to the queue, and starts
// nothing more. immediately skips the grace period.
func (t *Turn) Interrupt(immediately bool) {
	t.stopping = true
	for _, held := range []map[string]*running.Attempt{t.attempts.Active, t.attempts.Parked} {
		for _, a := range held {
			grace := a.Job.Spec.Grace
			if immediately {
				grace = 0
			}
			t.stop(a.Job, job.StopInterrupt, grace, "")
		}
	}
}

// Present looks whether the store is still where another berth would look for it.
// If not, nothing starts: another berth may have begun there anew. Running jobs
// are seen to their end, because nobody else can find them.
func (t *Turn) Present() error { return present(t.parts) }

func present(p *parts) error {
	was := p.removed
	p.removed = p.changes.Store.Present()
	switch {
	case p.removed != nil && was == nil:
		p.changes.Show(p.changes.Now, job.EventWarning, nil, p.removed.Error()+"; no job starts any more, and running jobs are seen to their end")
		p.cfg.Log.Error("the store is gone", "err", p.removed)
	case p.removed == nil && was != nil:
		p.moved = true
		p.changes.Show(p.changes.Now, job.EventNotice, nil, "the store is back; jobs start again")
	}
	return p.removed
}

// Lost is what Present last said.
func (t *Turn) Lost() error { return t.removed }

// Retire makes an idle engine accept no more jobs. It returns false, and changes
// nothing, if it is not idle.
func (t *Turn) Retire() bool {
	if t.line.Roster.Size() > 0 || !t.Written() {
		return false
	}
	t.stopping = true
	return true
}

// Pause stops jobs from starting on a card, or lets them start again; running
// jobs are not touched. It returns false if there is no such card.
func (t *Turn) Pause(index int, paused bool, by string) bool {
	return t.cards.Pause(t.Now, index, paused, by)
}

// SetHealth sets a card's health for a user. It returns false if there is no
// such card.
func (t *Turn) SetHealth(index int, state gpu.HealthState, by, reason string) bool {
	return t.cards.SetHealth(t.Now, index, state, by, reason)
}

// Warn records a warning about a job, or about berth itself.
func (t *Turn) Warn(j *job.Job, text string) { t.queue.Tell(job.EventWarning, j, text) }

// TellCard records what a user did to one card or all.
func (t *Turn) TellCard(card job.CardChange, text string) { t.changes.TellCard(t.Now, card, nil, text) }

// observe takes in a reading of the cards, or its failure. A failed reading
// starts nothing and ends nothing.
func (t *Turn) observe(s gpu.Sample, err error) {
	first := t.cards.Book.At.IsZero()
	if !t.cards.Look(t.Now, s, err, t.work(), t.attempts.InUse) {
		return
	}
	if (first || t.line.Queue.Len() == 0) && t.cards.GlanceAtOthers(t.attempts.Runs) {
		t.attempts.Holdings.SetOwners()
	}
	if first {
		t.attempts.Hindrances.ForgetStuck(t.Now)
	}
	t.cards.Measure(t.attempts.Holdings.List())
	t.attempts.Uses.Compare(t.Now)
	t.vouch(append(t.attempts.Uses.Settle(t.Now), t.attempts.Uses.WatchOveruse(t.Now, t.explain.harms())...))
	t.cards.CheckLeft(t.Now)
	t.attempts.Uses.WatchIdle(t.Now)
	t.record()
}

// work is why the cards should be read.
func (t *Turn) work() cards.Work {
	return cards.Work{Queued: t.line.Queue.Len() > 0, Running: len(t.attempts.Active) > 0, Closely: t.attempts.Closely(t.Now)}
}

// absorb takes in a supervisor's event. It is in memory at once and on disk
// after the next round; until then it is not acknowledged.
func (t *Turn) absorb(ev run.Event) {
	a := t.attempts.HeldBy(&ev)
	if s := t.attempts.Strays[ev.Token]; a == nil && s != nil {
		if ev.Kind == run.Parking {
			s.Park = ev.Park // it counts once the stray is adopted
			return
		}
		t.recovery.strayOver(ev)
		return
	}
	if a == nil {
		t.cfg.Log.Warn("a supervisor reported on a job it does not hold", "kind", ev.Kind, "token", ev.Token, "job", ev.Job, "attempt", ev.Attempt)
		if ev.Kind.Final() {
			t.attempts.Acks = append(t.attempts.Acks, ev.Token)
		}
		return
	}
	t.attempts.Remarked(t.Now, a, ev.Record.Note)
	t.attempts.Hindrances.Note(t.Now, a, ev)
	switch ev.Kind {
	case run.Started:
		t.attempts.Holdings.SetOwners()
		t.attempts.LimitMemory(a, ev.Record.Cgroup, func(ctx context.Context, f func(now time.Time)) {
			t.door.Pass(ctx, func(t *Turn) { f(t.Now) })
		})
	case run.Ended:
		t.ends.ended(a, ev)
	case run.Parking:
		t.parker.news(a, ev.Park)
	case run.NeverRan:
		t.ends.stillborn(a)
	case run.Lost:
		t.ends.lost(a, ev.Record)
	}
}

// vouch takes in the shares that were measured, or found to take more.
func (t *Turn) vouch(measured []*running.Attempt) {
	for _, a := range measured {
		t.line.Vouch(t.attempts.Charged(a), a.Kind, t.Now.Sub(a.StartedAt))
	}
}
