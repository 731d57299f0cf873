package engine

import (
	"context"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/engine/remote"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/waiting"
	"berth/internal/queue/fair"
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
	observer *observer
	requests *Requests
	health   *Health
	set      *Settings
	door     door
}

func newTurn(p *parts) *Turn {
	t := &Turn{parts: p, explain: &Explain{p}, door: fair.NewDoor[func(*Turn)]()}
	t.ends = &ends{p, t.explain}
	t.parker = &Parker{p, t.explain}
	t.recovery = &Recovery{p, t.ends, t.parker}
	t.round = &round{p, t.explain, t.ends, t.parker, t.recovery}
	t.observer = &observer{p, t.explain, t.ends, t.parker, t.recovery, t.round, func(ctx context.Context, f func(now time.Time)) {
		t.door.Pass(ctx, func(t *Turn) { f(t.Now) })
	}}
	t.requests, t.health, t.set = &Requests{p}, &Health{p}, &Settings{p, t.parker}
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

// Requests is what users ask of jobs, wherever these are.
func (t *Turn) Requests() *Requests { return t.requests }

// Health is what users say about cards.
func (t *Turn) Health() *Health { return t.health }

// Starting reports whether jobs may start at all: berth is not stopping, and its
// store is there.
func (t *Turn) Starting() bool { return !t.stopping && t.removed == nil }

// Present looks whether the store is still where another berth would look for it.
// If not, nothing starts: another berth may have begun there anew. Running jobs
// are seen to their end, because nobody else can find them.
func (t *Turn) Present() error { return present(t.parts) }

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

// Warn records a warning about a job, or about berth itself.
func (t *Turn) Warn(j *job.Job, text string) { t.queue.Tell(job.EventWarning, j, text) }

// See takes in a reading of the cards, where no loop does.
func (t *Turn) See(s gpu.Sample) { t.observer.observe(s, nil) }

// Supervised counts the jobs that supervisors hold on this machine.
func (t *Turn) Supervised() int { return len(t.attempts.Active) + len(t.attempts.Parked) }

// Written reports whether everything that happened so far is on disk and
// published.
func (t *Turn) Written() bool { return t.changes.Written() }

// Stopping reports whether berth was told to stop.
func (t *Turn) Stopping() bool { return t.stopping && !t.closed }

// Shows reports whether the last reading is recent enough to show and newer than
// the last end of a job.
func (t *Turn) Shows(youngest time.Duration) bool {
	return t.cards.Book.Err == nil && !t.cards.Book.WantsLook(t.Now, youngest)
}

// Ready reports whether the last reading is recent enough to place jobs.
func (t *Turn) Ready() bool { return !t.cards.Book.WantsLook(t.Now, t.cards.FreshFor()) }

// Resting reports whether the cards are not polled because they have been idle
// for long. The first reading after that may be slow.
func (t *Turn) Resting() bool { return t.cards.Resting(t.Now, t.observer.work()) }
