package journal

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/queue/store"
	"berth/internal/text"
)

// Journal is what has happened and is not on disk yet, and who is to be told
// once it is. It knows no queue, no card and no supervisor.
type Journal struct {
	Store Store
	Now   time.Time // of the turn: everything in it happens at that time
	log   *slog.Logger

	Rows    map[string]*job.Job // jobs whose row on disk is out of date
	deleted []string
	Meta    map[string]string // settings
	Blobs   map[string][]byte // what they refer to, by its name in the store

	Staged   []Batch        // new jobs, which exist once they are on disk
	StagedOf map[string]int // how many of them each user has
	// StagedText is how many bytes of text they have, by user.
	StagedText map[string]int

	events    []*job.Event // committed with them
	arrivals  []job.Event  // new jobs, published once they are on disk
	transient []job.Event  // shown, never stored
	thens     []func(error)

	Failed error             // why the last commit failed
	Warned map[string]string // the last cause reported, by warning
}

// Batch is jobs that are accepted together or not at all.
type Batch struct {
	Jobs  []*job.Job        // numbered, and otherwise as for waiting.Queue.Submit
	Text  int               // waiting.TextOf them; all are of one user
	Blobs map[string][]byte // shared data, by its name in the store
	Done  func(error)       // called in the engine's goroutine
}

// Decision is a job as it will be once that is on disk, and its event. Until
// then the old one counts.
type Decision struct {
	Job  *job.Job
	Kind job.EventKind
	Text string
}

func New(s Store, log *slog.Logger) *Journal {
	return &Journal{Store: s, log: log, Rows: map[string]*job.Job{}, Meta: map[string]string{}, Blobs: map[string][]byte{}, Warned: map[string]string{}, StagedOf: map[string]int{}, StagedText: map[string]int{}}
}

// Fact marks a job whose row on disk is out of date.
func (c *Journal) Fact(j *job.Job) { c.Rows[j.ID] = j }

// Blob stores shared data with the rows that name it, if they name any.
func (c *Journal) Blob(name string, data []byte) {
	if name != "" {
		c.Blobs[name] = data
	}
}

// Forget deletes a job from disk.
func (c *Journal) Forget(id string) {
	delete(c.Rows, id)
	c.deleted = append(c.deleted, id)
}

// Tell records an event, which is committed with the facts and then published.
func (c *Journal) Tell(now time.Time, kind job.EventKind, j *job.Job, text string) {
	ev := newEvent(now, kind, j, text)
	c.events = append(c.events, &ev)
}

// TellCard is Tell for what happened to a card, alone or for a job on it.
func (c *Journal) TellCard(now time.Time, card job.CardChange, j *job.Job, text string) {
	ev := newEvent(now, job.EventCard, j, text)
	ev.Card = &card
	c.events = append(c.events, &ev)
}

// Show publishes an event without storing it.
func (c *Journal) Show(now time.Time, kind job.EventKind, j *job.Job, text string) {
	c.transient = append(c.transient, newEvent(now, kind, j, text))
}

func newEvent(now time.Time, kind job.EventKind, j *job.Job, text string) job.Event {
	ev := job.Event{At: now, Kind: kind, Text: text}
	if j != nil {
		ev.Job = j.Clone()
	}
	return ev
}

// Arrive publishes a new job, which does not change any more, once it is on disk. The
// event is not stored, because a queue may be long: the rows are the record.
func (c *Journal) Arrive(now time.Time, j *job.Job) {
	c.arrivals = append(c.arrivals, job.Event{At: now, Kind: job.EventQueued, Job: j})
}

// Warn reports a problem once until its cause changes. The text may differ each
// time, for example by a file name.
func (c *Journal) Warn(now time.Time, what string, err error) {
	why := cause(err).Error()
	if c.Warned[what] == why {
		return
	}
	c.Warned[what] = why
	c.log.Warn(what, "err", err)
	c.Show(now, job.EventWarning, nil, fmt.Sprintf("%s: %v", what, err))
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

// Written reports whether everything that happened so far is on disk and
// published.
func (c *Journal) Written() bool {
	return len(c.Rows)+len(c.deleted)+len(c.events)+len(c.arrivals)+len(c.Staged)+len(c.thens)+len(c.Meta) == 0
}

// EachStaged visits the jobs waiting to be written.
func (c *Journal) EachStaged(fn func(*job.Job)) {
	for _, b := range c.Staged {
		for _, j := range b.Jobs {
			fn(j)
		}
	}
}

// Stage adds new jobs to the next commit.
func (c *Journal) Stage(b Batch) {
	c.Staged = append(c.Staged, b)
	for _, j := range b.Jobs {
		c.StagedOf[j.User]++
	}
	if b.Text > 0 {
		c.StagedText[b.Jobs[0].User] += b.Text
	}
}

func (c *Journal) unstage() []Batch {
	staged := c.Staged
	c.Staged = nil
	clear(c.StagedOf)
	clear(c.StagedText)
	return staged
}

// transaction is everything that must be on disk before it is acted on.
func (c *Journal) transaction(now time.Time, decided []Decision) store.Tx {
	tx := store.Tx{Delete: c.deleted, Events: slices.Clone(c.events), Meta: c.Meta, Blobs: maps.Clone(c.Blobs)}
	isDecided := make(map[string]bool, len(decided))
	for _, d := range decided {
		isDecided[d.Job.ID] = true
		tx.Put = append(tx.Put, d.Job)
		ev := newEvent(now, d.Kind, d.Job, d.Text)
		tx.Events = append(tx.Events, &ev)
	}
	for id, j := range c.Rows {
		if !isDecided[id] {
			tx.Put = append(tx.Put, j)
		}
	}
	for _, b := range c.Staged {
		tx.Put = append(tx.Put, b.Jobs...)
		maps.Copy(tx.Blobs, b.Blobs)
	}
	slices.SortFunc(tx.Put, func(a, b *job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	return tx
}

// Commit writes decisions and facts. If new jobs cannot be written, they are
// refused and the rest is tried without them: a queue too long for the disk must
// not block everything else. If that does not fit either, the decisions are
// dropped, and the facts written into room that the store keeps for them. kept
// reports that the decisions are on disk.
func (c *Journal) Commit(now time.Time, decided []Decision) (tx store.Tx, kept bool, err error) {
	tx = c.transaction(now, decided)
	if err = c.write(now, tx); err == nil {
		return tx, true, nil
	}
	if c.refuseStaged(err) {
		tx = c.transaction(now, decided)
		if isEmpty(tx) {
			c.Failed = nil // no facts are waiting for room
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
	return facts, len(decided) == 0, c.Store.Commit(facts)
}

func isEmpty(tx store.Tx) bool {
	return len(tx.Put)+len(tx.Delete)+len(tx.Events)+len(tx.Meta) == 0
}

// write commits, and remembers whether it failed. After a failure it also commits
// nothing, to find out whether there is room again.
func (c *Journal) write(now time.Time, tx store.Tx) error {
	if isEmpty(tx) && c.Failed == nil {
		return nil
	}
	err := c.Store.Commit(tx)
	if err != nil {
		err = fmt.Errorf("save %s: %w", text.Count(len(tx.Put), "change"), err)
	}
	if err == nil && c.Failed != nil {
		c.Show(now, job.EventNotice, nil, "the store can be written again")
	}
	if err != nil && c.Failed == nil && store.MayPass(err) {
		c.Show(now, job.EventWarning, nil, err.Error()+"; running jobs continue, and nothing starts until it can be saved")
		c.log.Error("commit", "err", err)
	}
	c.Failed = err
	return err
}

// refuseStaged refuses the new jobs. It reports whether the rest may fit without
// them.
func (c *Journal) refuseStaged(err error) bool {
	staged := c.unstage()
	for _, b := range staged {
		b.Done(err)
	}
	return len(staged) > 0 && errors.Is(err, store.ErrFull)
}

// Settle clears what is on disk now and returns the new jobs among it.
func (c *Journal) Settle() []Batch {
	clear(c.Rows)
	clear(c.Blobs)
	c.Meta = map[string]string{}
	c.deleted, c.events = nil, nil
	return c.unstage()
}

// Take is what may be published now: new jobs, what is on disk, and transient
// events.
func (c *Journal) Take(durable []*job.Event) []job.Event {
	events := make([]job.Event, 0, len(c.arrivals)+len(durable)+len(c.transient))
	events = append(events, c.arrivals...)
	for _, ev := range durable {
		events = append(events, *ev)
	}
	events = append(events, c.transient...)
	c.arrivals, c.transient = nil, nil
	return events
}

// Shown is what may be published while nothing can be written.
func (c *Journal) Shown() []job.Event {
	events := c.transient
	c.transient = nil
	return events
}

// Then calls f once everything that was requested so far is on disk, or could not
// be written.
func (c *Journal) Then(f func(error)) { c.thens = append(c.thens, f) }

// Answer reports to waiting requests.
func (c *Journal) Answer(err error) {
	thens := c.thens
	c.thens = nil
	for _, f := range thens {
		f(err)
	}
}

// Store makes facts durable.
type Store interface {
	Commit(tx store.Tx) error
	Job(id string) (*job.Job, error)
	PeakFor(user, command string) (mib int64, runs int, err error)
	Present() error // an error if the store was removed, or taken over
}
