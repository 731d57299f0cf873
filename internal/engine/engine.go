package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/predict"
	"berth/internal/run"
	"berth/internal/sched"
	"berth/internal/store"
)

// Store is where facts become durable.
type Store interface {
	Commit(tx store.Tx) error
	Job(id string) (*job.Job, error)
	PeakFor(command string) (mib int64, ok bool, err error)
}

// Runner holds the supervisors. A lease runs nothing until Go.
type Runner interface {
	Lease() (token string, err error)
	Release(token string)
	Go(token string, order keep.Order) error
	Stop(token string, why job.Stop, grace time.Duration) error
	Warn(token, stamp string) error
	Ack(token string)
	Identity(token string) (run.Identity, bool)
}

// Ledger is what several berths on one machine tell one another.
type Ledger interface {
	Lock(ctx context.Context) error
	Unlock()
	Others() ([]gpu.Entry, error)
	Publish(own []gpu.Entry) error
	Notes() []string // what it had to pass over since it was last asked
}

// Owners says whose a process on a card is.
type Owners interface {
	Set(holders []run.Holder)
	Owner(pid int) (key string, ok bool, known bool)
	// Local is the same for a process that berth itself knows, not the driver.
	Local(pid int) (key string, ok bool)
}

// CardOf is a card as a job is told of it: where the driver's number of it is in
// doubt, that is -1.
type CardOf func(uuid string) (gpu.Device, bool)

// Config is what does not change while an engine lives.
type Config struct {
	Rules     sched.Rules
	Host      sched.Host
	Cards     []int        // only these; nil: all the source shows
	Devices   []gpu.Device // the cards as they were found; what is free on them the engine looks up itself
	Xids      []gpu.Xid    // what was said of them meanwhile
	Poll      time.Duration
	Rest      bool // leave the cards alone when nobody has had use for them for long
	Tolerance float64
	User      string
	Limits    Limits
	HalfLife  time.Duration // of what a user had, under Rules.Fair
	KeepAll   bool          // no running job is set aside, also none that allows it
	Outer     string        // the booking of the job this berth itself runs in
	// IdleAfter is after how long a job that holds memory and does not use its
	// cards is told of, IdleCancel after how long it is cancelled; 0: never.
	IdleAfter, IdleCancel time.Duration
	// Order is how this job is started. ErrNotNow, or an error that wraps it,
	// sends the job back to the queue; any other ends it.
	Order   func(j *job.Job, card CardOf) (keep.Order, error)
	LogPath func(j *job.Job) string
	Publish func(events []job.Event) // after they are durable

	Submissions bool                 // jobs come one by one, so that the end of the queue is the next number
	TellQueued  bool                 // publish an event for each new job too
	Wanted      func(id string) bool // asked when a job comes back to the queue; nil: always
	After       func(*Turn) bool     // after each round; true ends Run
	Log         *slog.Logger

	Alive func(job.Stranger) bool // whether a process is there; nil: the kernel is asked
}

// core is the state of one queue. Only a Turn reaches it.
type core struct {
	cfg    Config
	store  Store
	runner Runner
	ledger Ledger
	owners Owners
	source gpu.Source

	nextSeq int64
	jobs    map[string]*job.Job        // all that are not over
	owned   map[string]int             // how many of them each user has
	roster  roster                     // the same in the order of submission
	queue   *sched.Queue               // those that could start now if there were room
	gates   gates                      // queued, but not before a time or another job
	active  map[string]*attempt        // running, by job id
	byToken map[string]string          // supervisor token to job id
	inLine  map[string]place           // what of the jobs in the queue is not in it
	book    *predict.Book              // what ran before
	alike   map[string]map[string]bool // jobs in the queue by what their commands have in common
	learnt  map[string]int             // how many of these have ended since such a job was queued
	autos   map[string]map[string]bool // those with vram=auto and nothing known, likewise
	review  []string                   // jobs in the queue of whose kind more is known now
	again   time.Time                  // when time alone changes what would be decided

	strangers map[string]bool // queued jobs that stand for a process: they start where it is

	meter  *gpu.Meter
	health *gpu.Health
	cards  cardBook
	early  []gpu.Xid // what was said before any card was read
	limits memoryLimits
	others []gpu.Entry
	moved  bool              // something happened since the last decision that could change it
	warned map[string]string // the last cause told, by what it keeps from happening

	outcomes map[string]verdict // of jobs that are over, as they were looked up this round

	usage      usage
	usageSince time.Time // since when it is newer than the store's

	staged    []Batch             // asked for, and waiting to be on disk
	stagedOf  map[string]int      // how many jobs of each user those are
	thens     []func(error)       // who waits for the next commit
	meta      map[string]string   // settings not yet on disk
	dirty     map[string]*job.Job // facts not yet on disk
	deleted   []string
	arrivals  []job.Event  // new jobs, told of once they are on disk
	events    []*job.Event // to be committed with them
	transient []job.Event  // shown, never stored
	acks      []string
	unbooked  bool // the ledger still shows jobs that are gone
	stops     []stopOrder
	warns     []warnOrder
	lazyDirty map[string]struct{} // grown peaks: worth storing, not worth a commit of their own
	lazySince time.Time

	admitted  bool      // this round let jobs in
	asked     bool      // someone wants to see the cards as they are now
	busyAt    time.Time // when someone last had use for a look at them
	stopping  bool
	leaving   bool // the loop is about to end: nothing is put off any more
	commitErr error
	door      door
}

// attempt is a running job as the engine sees it.
type attempt struct {
	job       *job.Job
	token     string
	startedAt time.Time
	warned    bool
	shownMiB  int64
	storedMiB int64
	bookedMiB int64      // the highest peak the other berths were told of
	run       sched.Span // how long it is expected to run
	kind      string     // what its command has in common with others

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

// New builds an engine. lastSeq is the highest number any job ever had.
func New(cfg Config, s Store, r Runner, src gpu.Source, l Ledger, o Owners, lastSeq int64) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &core{
		cfg: cfg, store: s, runner: r, source: src, ledger: l, owners: o, limits: memoryLimits{},
		nextSeq: lastSeq + 1,
		jobs:    map[string]*job.Job{}, owned: map[string]int{}, meta: map[string]string{}, queue: sched.NewQueue(), gates: newGates(), strangers: map[string]bool{},
		active: map[string]*attempt{}, byToken: map[string]string{}, inLine: map[string]place{},
		book: predict.NewBook(), alike: map[string]map[string]bool{}, learnt: map[string]int{}, autos: map[string]map[string]bool{},
		meter: gpu.NewMeter(cfg.Rules.SpikeBuffer), health: gpu.NewHealth(), early: cfg.Xids,
		dirty: map[string]*job.Job{}, lazyDirty: map[string]struct{}{},
		warned: map[string]string{}, outcomes: map[string]verdict{}, stagedOf: map[string]int{},
		door: make(door, 16),
	}
	c.cards = newCardBook(cfg.Cards, c.health)
	c.cards.know(cfg.Devices)
	c.queue.SetRules(cfg.Rules)
	return &Engine{core: c}
}

// Number gives new jobs their ids, so that they can name one another before
// they are submitted.
func (t *Turn) Number(jobs []*job.Job) {
	for _, j := range jobs {
		j.Seq = t.nextSeq
		t.nextSeq++
		j.ID = strconv.FormatInt(j.Seq, 10)
	}
}

// Submit takes numbered jobs. Spec, Key, Rank and User are the caller's; the
// rest is filled in. They are on disk, and announced, after the next round.
func (t *Turn) Submit(jobs []*job.Job) {
	for _, j := range jobs {
		j.Submitted(t.Now)
		if j.User == "" {
			j.User = t.cfg.User
		}
		j.VRAMMiB = j.Spec.VRAMMiB
		t.know(j)
		t.fact(j)
		if t.cfg.TellQueued {
			// Told of without being copied or journalled, as a queue may be
			// long: the rows themselves are the record.
			t.arrivals = append(t.arrivals, job.Event{At: t.Now, Kind: job.EventQueued, Job: j})
		}
	}
	// Dependencies may point forward, so all are known before any is queued.
	for _, j := range jobs {
		t.enqueue(j)
	}
}

// Again puts jobs that are over back into the queue, because a person asked.
func (t *Turn) Again(jobs []*job.Job) {
	for _, j := range jobs {
		j.MustTo(job.Queued)
		j.Attempt = j.Attempt.None()
		j.Outcome, j.Detail, j.AsideFor = "", "", ""
		j.NotBefore, j.WaitsSince = time.Time{}, t.Now
		j.RetriesUsed, j.Requeues, j.Preemptions = 0, 0, 0
		t.know(j)
		t.fact(j)
		t.tell(job.EventRequeued, j, "run again as asked")
	}
	// They may wait for one another, so all are live before any is queued.
	for _, j := range jobs {
		t.enqueue(j)
	}
}

// Edit applies a changed spec or place in line to a queued job.
func (t *Turn) Edit(id string, spec job.Spec, rank int64) {
	j := t.jobs[id]
	if j == nil || j.State != job.Queued {
		return
	}
	if j.Requeues > 0 && !t.cfg.Submissions {
		// A job that was sent to the end of the queue stays behind the lines
		// that were there before it.
		rank += requeueOffset * int64(j.Requeues)
	}
	changed := !sameSpec(j.Spec, spec)
	if !changed && j.Rank == rank {
		return
	}
	if changed {
		if spec.VRAMMiB != j.Spec.VRAMMiB || spec.VRAMAuto != j.Spec.VRAMAuto {
			j.VRAMMiB = spec.VRAMMiB
		}
		j.Spec = spec
		t.fact(j)
	}
	j.Rank = rank
	t.enqueue(j)
}

// toTheEnd moves a job behind everything that is queued now.
func (t *Turn) toTheEnd(j *job.Job) {
	if t.cfg.Submissions {
		j.Rank = t.nextSeq
		return
	}
	j.Rank += requeueOffset
}

// requeueOffset is more than the lines a jobs file may have.
const requeueOffset = int64(1) << 32

// Withdraw forgets a queued job as if it had never been asked for.
func (t *Turn) Withdraw(id string) bool {
	j := t.jobs[id]
	if j == nil || j.State != job.Queued {
		return false
	}
	t.unqueue(id)
	t.forgetJob(j)
	delete(t.dirty, id)
	t.deleted = append(t.deleted, id)
	t.tell(job.EventDequeued, j, "")
	return true
}

// Cancel ends a job: a queued one at once, a running one through its
// supervisor after the intent is on disk.
func (t *Turn) Cancel(id, detail string) bool {
	j := t.jobs[id]
	if j == nil {
		return false
	}
	if j.State == job.Queued {
		t.finish(j, job.WasCancelled, detail)
		return true
	}
	t.stop(j, job.StopCancel, j.Spec.Grace)
	return true
}

// CancelBy is Cancel for a person, whose name the job will carry, with that
// much time between TERM and KILL.
func (t *Turn) CancelBy(id, by string, grace time.Duration) bool {
	j := t.jobs[id]
	if j == nil || j.State == job.Queued {
		return t.Cancel(id, "cancelled by "+by)
	}
	if j.Stop != job.StopCancel {
		j.Detail = "cancelled by " + by + " while it ran"
		if j.Spec.Adopt != nil {
			j.Detail = "cancelled by " + by + ": " + GoesOn(j)
		}
	}
	t.stop(j, job.StopCancel, grace)
	return true
}

// Interrupt stops everything that runs and starts nothing more; the jobs go
// back to the queue. A second call with grace 0 does not wait.
func (t *Turn) Interrupt(immediately bool) {
	t.stopping = true
	for _, a := range t.active {
		grace := a.job.Spec.Grace
		if immediately {
			grace = 0
		}
		t.stop(a.job, job.StopInterrupt, grace)
	}
}

// stop asks a job's supervisor to end it, once the reason is on disk. The
// first reason counts, but for a job that is given up while it is on its way
// back to the queue, and for one that would only have made room for another.
func (t *Turn) stop(j *job.Job, why job.Stop, grace time.Duration) {
	if j.Stop == job.NoStop || j.Stop == job.StopAside || why == job.StopCancel && j.Stop != job.StopCancel {
		if j.Stop == job.StopAside && j.Detail == leavingText(j.AsideFor) {
			j.Detail = "" // that is not what ends it now
		}
		j.Stop = why
		t.fact(j)
		t.tell(job.EventStopping, j, string(why))
		// What was asked for before and could not be written yet is asked for
		// this reason now.
		for i := range t.stops {
			if t.stops[i].token == j.Keep {
				t.stops[i].why = why
			}
		}
	}
	t.stops = append(t.stops, stopOrder{j.Keep, j.Stop, grace})
}

// fact marks a job whose row on disk is behind.
func (t *Turn) fact(j *job.Job) { t.dirty[j.ID] = j }

func (t *Turn) tell(kind job.EventKind, j *job.Job, text string) {
	ev := &job.Event{At: t.Now, Kind: kind, Text: text}
	if j != nil {
		ev.Job = j.Clone()
	}
	t.events = append(t.events, ev)
}

// show is tell for what is not worth keeping.
func (t *Turn) show(kind job.EventKind, j *job.Job, text string) {
	ev := job.Event{At: t.Now, Kind: kind, Text: text}
	if j != nil {
		ev.Job = j.Clone()
	}
	t.transient = append(t.transient, ev)
}

// finish ends a job that is not running any more, or never was.
func (t *Turn) finish(j *job.Job, outcome job.Outcome, detail string) {
	t.finishAt(j, outcome, detail, t.Now)
}

func (t *Turn) finishAt(j *job.Job, outcome job.Outcome, detail string, at time.Time) {
	t.unqueue(j.ID)
	if j.State == job.Queued && t.cfg.TellQueued {
		// Its arrival may not have been told yet, and is told as it was then.
		j = j.Clone()
	}
	j.MustTo(outcome.State())
	j.Outcome, j.Detail = outcome, detail
	j.EndedAt = notBefore(at, j.StartedAt)
	t.forgetJob(j)
	delete(t.outcomes, j.ID)
	t.fact(j)
	t.tell(job.EventEnded, j, detail)
	t.learn(j)
	t.settleDependents(j)
}

// Live reports how many jobs are queued and running.
func (t *Turn) Live() (queued, running int) {
	return len(t.jobs) - len(t.active), len(t.active)
}

// Written reports whether everything that happened so far is on disk, and
// told. Until then an end has not been seen by anyone.
func (t *Turn) Written() bool {
	return len(t.dirty)+len(t.deleted)+len(t.events)+len(t.arrivals)+len(t.staged)+len(t.thens)+len(t.meta) == 0
}

// Job is a job that is not over.
func (t *Turn) Job(id string) (*job.Job, bool) {
	j, ok := t.jobs[id]
	return j, ok
}

// Running is a job on its cards, with what is known of its use right now.
type Running struct {
	Job     *job.Job
	NowMiB  int64 // on the card where it uses most; -1: not known
	PeakMiB int64
}

// Running lists what runs, oldest first.
func (t *Turn) Running() []Running {
	list := make([]Running, 0, len(t.active))
	for id, a := range t.active {
		r := Running{Job: a.job, NowMiB: -1}
		if card, now := highest(t.meter.Now(id)); card >= 0 {
			r.NowMiB = now
		}
		_, r.PeakMiB = highest(t.meter.Peak(id))
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Running) int {
		return cmp.Or(a.Job.StartedAt.Compare(b.Job.StartedAt), cmp.Compare(a.Job.Seq, b.Job.Seq))
	})
	return list
}

// Next lists the first n queued jobs: those that wait for room in order, then
// those behind a gate.
func (t *Turn) Next(n int) []*job.Job {
	list := make([]*job.Job, 0, n)
	for _, p := range sched.Order(t.state(), n) {
		list = append(list, t.jobs[p.Job])
	}
	for _, id := range t.gates.first(n-len(list), t.jobs) {
		list = append(list, t.jobs[id])
	}
	return list
}

// Cards is the last reading of each card.
func (t *Turn) Cards() []sched.Card { return t.cards.list() }

// Blocked says why nothing at all can start now; empty if something could.
func (t *Turn) Blocked() string {
	switch {
	case t.stopping:
		return "berth is stopping"
	case t.cards.err != nil:
		return "the GPUs cannot be read: " + t.cards.err.Error()
	case t.commitErr != nil:
		return t.commitErr.Error()
	}
	return ""
}

// Why says in a sentence what a queued job waits for.
func (t *Turn) Why(id string) string {
	if text := t.Gate(id); text != "" {
		return text
	}
	if _, queued := t.queue.Get(id); !queued {
		return ""
	}
	if t.stopping {
		return "berth is stopping"
	}
	return setAside(t.jobs[id], sched.Explain(t.state(), id).String())
}

// Gate says what keeps a queued job out of the line however much room there
// is; empty: nothing does.
func (t *Turn) Gate(id string) string {
	return setAside(t.jobs[id], t.gates.why(id, t.jobs, t.Now))
}
