package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/store"
	"berth/internal/text"
)

// changes is what has happened and is not on disk yet, and who is to be told
// once it is. It knows no queue, no card and no supervisor.
type changes struct {
	store Store
	now   time.Time // of the turn: everything in it happens at that time
	log   *slog.Logger

	rows    map[string]*job.Job // jobs whose row on disk is out of date
	deleted []string
	meta    map[string]string // settings

	staged   []Batch        // new jobs, which exist once they are on disk
	stagedOf map[string]int // how many of them each user has
	// stagedText is how many bytes of text they have, by user.
	stagedText map[string]int

	events    []*job.Event // committed with them
	arrivals  []job.Event  // new jobs, published once they are on disk
	transient []job.Event  // shown, never stored
	thens     []func(error)

	failed error             // why the last commit failed
	warned map[string]string // the last cause reported, by warning
}

// Batch is jobs that are accepted together or not at all.
type Batch struct {
	Jobs  []*job.Job        // numbered, and otherwise as for Submit
	Text  int               // TextOf them; all are of one user
	Blobs map[string][]byte // shared data, by its name in the store
	Done  func(error)       // called in the engine's goroutine
}

// decision is a job as it will be once that is on disk, and its event. Until
// then the old one counts.
type decision struct {
	job  *job.Job
	kind job.EventKind
	text string
}

func newChanges(s Store, log *slog.Logger) *changes {
	return &changes{store: s, log: log, rows: map[string]*job.Job{}, meta: map[string]string{}, warned: map[string]string{}, stagedOf: map[string]int{}, stagedText: map[string]int{}}
}

// fact marks a job whose row on disk is out of date.
func (c *changes) fact(j *job.Job) { c.rows[j.ID] = j }

// forget deletes a job from disk.
func (c *changes) forget(id string) {
	delete(c.rows, id)
	c.deleted = append(c.deleted, id)
}

// tell records an event, which is committed with the facts and then published.
func (c *changes) tell(now time.Time, kind job.EventKind, j *job.Job, text string) {
	ev := newEvent(now, kind, j, text)
	c.events = append(c.events, &ev)
}

// tellCard is tell for what happened to a card, alone or for a job on it.
func (c *changes) tellCard(now time.Time, card job.CardChange, j *job.Job, text string) {
	ev := newEvent(now, job.EventCard, j, text)
	ev.Card = &card
	c.events = append(c.events, &ev)
}

// show publishes an event without storing it.
func (c *changes) show(now time.Time, kind job.EventKind, j *job.Job, text string) {
	c.transient = append(c.transient, newEvent(now, kind, j, text))
}

func newEvent(now time.Time, kind job.EventKind, j *job.Job, text string) job.Event {
	ev := job.Event{At: now, Kind: kind, Text: text}
	if j != nil {
		ev.Job = j.Clone()
	}
	return ev
}

// arrive publishes a new job once it is on disk. The event is not stored,
// because a queue may be long: the rows are the record.
func (c *changes) arrive(now time.Time, j *job.Job) {
	c.arrivals = append(c.arrivals, job.Event{At: now, Kind: job.EventQueued, Job: j})
}

// warn reports a problem once until its cause changes. The text may differ each
// time, for example by a file name.
func (c *changes) warn(now time.Time, what string, err error) {
	why := cause(err).Error()
	if c.warned[what] == why {
		return
	}
	c.warned[what] = why
	c.log.Warn(what, "err", err)
	c.show(now, job.EventWarning, nil, fmt.Sprintf("%s: %v", what, err))
}

// cause is the innermost error.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// written reports whether everything that happened so far is on disk and
// published.
func (c *changes) written() bool {
	return len(c.rows)+len(c.deleted)+len(c.events)+len(c.arrivals)+len(c.staged)+len(c.thens)+len(c.meta) == 0
}

// eachStaged visits the jobs waiting to be written.
func (c *changes) eachStaged(fn func(*job.Job)) {
	for _, b := range c.staged {
		for _, j := range b.Jobs {
			fn(j)
		}
	}
}

// stage adds new jobs to the next commit.
func (c *changes) stage(b Batch) {
	c.staged = append(c.staged, b)
	for _, j := range b.Jobs {
		c.stagedOf[j.User]++
	}
	if b.Text > 0 {
		c.stagedText[b.Jobs[0].User] += b.Text
	}
}

func (c *changes) unstage() []Batch {
	staged := c.staged
	c.staged = nil
	clear(c.stagedOf)
	clear(c.stagedText)
	return staged
}

// transaction is everything that must be on disk before it is acted on.
func (c *changes) transaction(now time.Time, decided []decision) store.Tx {
	tx := store.Tx{Delete: c.deleted, Events: slices.Clone(c.events), Meta: c.meta}
	isDecided := make(map[string]bool, len(decided))
	for _, d := range decided {
		isDecided[d.job.ID] = true
		tx.Put = append(tx.Put, d.job)
		ev := newEvent(now, d.kind, d.job, d.text)
		tx.Events = append(tx.Events, &ev)
	}
	for id, j := range c.rows {
		if !isDecided[id] {
			tx.Put = append(tx.Put, j)
		}
	}
	for _, b := range c.staged {
		tx.Put = append(tx.Put, b.Jobs...)
		if tx.Blobs == nil && len(b.Blobs) > 0 {
			tx.Blobs = map[string][]byte{}
		}
		maps.Copy(tx.Blobs, b.Blobs)
	}
	slices.SortFunc(tx.Put, func(a, b *job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	return tx
}

// commit writes decisions and facts. If new jobs cannot be written, they are
// refused and the rest is tried without them: a queue too long for the disk must
// not block everything else. If that does not fit either, the decisions are
// dropped, and the facts written into room that the store keeps for them. kept
// reports that the decisions are on disk.
func (c *changes) commit(now time.Time, decided []decision) (tx store.Tx, kept bool, err error) {
	tx = c.transaction(now, decided)
	if err = c.write(now, tx); err == nil {
		return tx, true, nil
	}
	if c.refuseStaged(err) {
		tx = c.transaction(now, decided)
		if isEmpty(tx) {
			c.failed = nil // no facts are waiting for room
			return tx, true, nil
		}
		if err = c.write(now, tx); err == nil {
			return tx, true, nil
		}
	}
	facts := c.transaction(now, nil)
	if !errors.Is(err, store.ErrFull) || isEmpty(facts) {
		return tx, false, err
	}
	facts.Reserved = true
	return facts, len(decided) == 0, c.store.Commit(facts)
}

func isEmpty(tx store.Tx) bool {
	return len(tx.Put)+len(tx.Delete)+len(tx.Events)+len(tx.Meta) == 0
}

// write commits, and remembers whether it failed. After a failure it also commits
// nothing, to find out whether there is room again.
func (c *changes) write(now time.Time, tx store.Tx) error {
	if isEmpty(tx) && c.failed == nil {
		return nil
	}
	err := c.store.Commit(tx)
	if err != nil {
		err = fmt.Errorf("save %s: %w", text.Count(len(tx.Put), "change"), err)
	}
	if err == nil && c.failed != nil {
		c.show(now, job.EventNotice, nil, "the store can be written again")
	}
	if err != nil && c.failed == nil && store.MayPass(err) {
		c.show(now, job.EventWarning, nil, err.Error()+"; running jobs continue, and nothing starts until it can be saved")
		c.log.Error("commit", "err", err)
	}
	c.failed = err
	return err
}

// refuseStaged refuses the new jobs. It reports whether the rest may fit without
// them.
func (c *changes) refuseStaged(err error) bool {
	staged := c.unstage()
	for _, b := range staged {
		b.Done(err)
	}
	return len(staged) > 0 && errors.Is(err, store.ErrFull)
}

// settle clears what is on disk now and returns the new jobs among it.
func (c *changes) settle() []Batch {
	clear(c.rows)
	c.meta = map[string]string{}
	c.deleted, c.events = nil, nil
	return c.unstage()
}

// take is what may be published now: new jobs, what is on disk, and transient
// events.
func (c *changes) take(durable []*job.Event) []job.Event {
	events := make([]job.Event, 0, len(c.arrivals)+len(durable)+len(c.transient))
	events = append(events, c.arrivals...)
	for _, ev := range durable {
		events = append(events, *ev)
	}
	events = append(events, c.transient...)
	c.arrivals, c.transient = nil, nil
	return events
}

// shown is what may be published while nothing can be written.
func (c *changes) shown() []job.Event {
	events := c.transient
	c.transient = nil
	return events
}

// then calls f once everything that was requested so far is on disk, or could not
// be written.
func (c *changes) then(f func(error)) { c.thens = append(c.thens, f) }

// answer reports to waiting requests.
func (c *changes) answer(err error) {
	thens := c.thens
	c.thens = nil
	for _, f := range thens {
		f(err)
	}
}
