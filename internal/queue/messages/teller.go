package messages

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/queue/notify"
	"berth/internal/queue/send"
	"berth/internal/queue/store"
	"berth/internal/text"
)

const (
	// runningKey is set while a daemon runs: one that finds it was not stopped.
	runningKey = "notify.running"
	// originKey is the beginning of every message's id: two stores number theirs
	// alike.
	originKey = "notify.origin"

	tellEvents   = 1000                   // events read at a time
	tellBehind   = 500                    // events without a message that a restart may read again
	tellAgain    = 5 * time.Second        // between tries to write
	tellTogether = 200 * time.Millisecond // between two readings of events
	tellIdle     = time.Minute            // the longest pause: the disk is looked at
	tellSending  = 8                      // messages on their way at a time, without slow ones
	tellOfUser   = 2                      // of all of them one user's
	tellLimit    = 45 * time.Second       // of one delivery, which has a shorter limit of its own

	lowDiskShare = 20      // a disk with less than 1/20 free
	lowDiskBytes = 5 << 30 // and less than this is nearly full
)

// letters is the part of the store that a teller uses.
type letters interface {
	EventsAfter(seq int64, limit int) ([]job.Event, error)
	LastEvent() (int64, error)
	Outbox() ([]store.Letter, int64, error)
	Taken() (int64, bool, error)
	Meta(key string) (string, error)
	Commit(tx store.Tx) error
}

// teller turns events into messages and has them sent. Only its own goroutine
// uses it. Nothing is sent before it is on disk, so while the disk is full no
// message leaves, and none is lost.
type teller struct {
	store  letters
	news   *news // nil: all is in the store
	log    *slog.Logger
	admin  func() []string                          // targets of the administrators, as configured
	rules  func(uid int, user string) []notify.Rule // of a user, for jobs without their own
	lives  func(notify.Awaited) bool                // some of its jobs have not ended
	gaveUp func(e notify.Entry)                     // its message will not be delivered
	send   func(ctx context.Context, e notify.Entry) send.Result
	uid    int  // whom administrators' messages are sent as
	own    bool // an own queue has no administrators, who would want to know of a crash
	disk   func() (free, total int64, err error)
	box    *notify.Outbox
	origin string
	taken  int64 // the last event read
	stored int64 // the last event that is on disk as read

	unwritten map[int64]store.Letter // changes not yet on disk
	marks     map[string]string      // likewise
	sending   map[int64]time.Time    // since when
	ending    map[notify.Whole]bool  // of which a job ended
	closedAt  time.Time              // when all that messages wait for was looked at
	asks      chan func()            // questions of others, answered between two steps
	hurried   chan struct{}          // closed once every message was tried; nil: there is no hurry
	diskLow   bool
	stuck     bool // the last write failed, and the log says so
}

// newTeller restores the outbox. The events before the first start of a daemon
// that knows of messages are nobody's.
func newTeller(t teller, now time.Time) (*teller, error) {
	t.ending, t.asks = map[notify.Whole]bool{}, make(chan func())
	t.unwritten, t.sending, t.marks = map[int64]store.Letter{}, map[int64]time.Time{}, map[string]string{}
	if !t.own {
		t.marks[runningKey] = "yes"
	}
	stored, last, err := t.store.Outbox()
	if err != nil {
		return nil, err
	}
	var entries []notify.Entry
	for _, l := range stored {
		var e notify.Entry
		if err := json.Unmarshal(l.Data, &e); err != nil || e.ID != l.ID {
			// It must not hold up all others, and with them old events.
			t.log.Error("a message cannot be read and is dropped", "message", l.ID, "err", err)
			t.unwritten[l.ID] = store.Letter{ID: l.ID}
			continue
		}
		entries = append(entries, e)
	}
	t.box = notify.Restore(entries, last)
	taken, ever, err := t.store.Taken()
	if err == nil && !ever {
		taken, err = t.store.LastEvent()
	}
	if err != nil {
		return nil, err
	}
	t.taken, t.stored = taken, -1
	if t.origin, err = t.store.Meta(originKey); err != nil {
		return nil, err
	}
	if t.origin == "" {
		t.origin = strings.ToLower(rand.Text()[:10])
		t.marks[originKey] = t.origin
	}
	running, err := t.store.Meta(runningKey)
	if running == "yes" && !t.own {
		t.alert(now, "berth started again after it ended without being stopped (a crash, a kill or a power cut)")
	}
	return &t, err
}

// alert tells the administrators.
func (t *teller) alert(now time.Time, what string) {
	for _, target := range t.admin() {
		t.add(t.uid, "", target, notify.Fact{At: now, Detail: what}, now)
	}
}

// add puts a fact into the outbox. A user with too many messages loses the oldest,
// which the log says.
func (t *teller) add(uid int, user, target string, f notify.Fact, now time.Time) {
	changes := t.box.Add(uid, user, target, f, now)
	for _, c := range changes {
		if c.Delete && c.Entry.Stage != notify.GivenUp {
			t.log.Warn("dropped a message: its user has too many", "user", user, "about", c.Entry.Message("", "").Title)
			t.gaveUp(c.Entry)
		}
	}
	t.change(changes)
}

func (t *teller) change(changes []notify.Change) {
	for _, c := range changes {
		l := store.Letter{ID: c.Entry.ID}
		if !c.Delete {
			l.Data = text.MustJSON(c.Entry)
		}
		t.unwritten[l.ID] = l
	}
}

// step does what is due: it reads events, writes what changed, and returns the
// messages to send and when to come back.
func (t *teller) step(now time.Time) (ready []notify.Entry, again time.Time) {
	t.lookAtDisk(now)
	more, err := t.readEvents(now)
	if err == nil {
		if !more {
			t.closeWholes(now)
			t.hurryUp(now)
		}
		t.change(t.box.Tick(now))
		err = t.write()
	}
	if err != nil {
		if !t.stuck {
			t.log.Warn("messages wait until they can be stored", "err", err)
		}
		t.stuck = true
		return nil, now.Add(tellAgain)
	}
	t.stuck = false
	ready = t.box.Ready(now, t.sending, tellSending, tellOfUser)
	for _, e := range ready {
		t.sending[e.ID] = now
	}
	again = now.Add(tellIdle)
	if due, any := t.box.Due(t.sending); any && due.Before(again) {
		again = due
	}
	if more {
		again = now
	}
	// What is due and not sent waits for one of those on their way.
	if !again.After(now) && !more {
		again = now.Add(time.Second)
	}
	return ready, again
}

// readEvents makes messages of the next events; more: there may be others.
func (t *teller) readEvents(now time.Time) (more bool, err error) {
	var events []job.Event
	known := false
	if t.news != nil {
		events, known = t.news.after(t.taken)
	}
	if !known {
		if events, err = t.store.EventsAfter(t.taken, tellEvents); err != nil {
			return false, err
		}
	}
	for _, ev := range events {
		t.tell(ev, now)
		t.taken = ev.Seq
	}
	return len(events) == tellEvents, nil
}

// catchUp makes messages of all events so far, and records that it did. So rules
// that are set next are not applied to earlier events, not even after a crash.
func (t *teller) catchUp(now time.Time) error {
	for more := true; more; {
		var err error
		if more, err = t.readEvents(now); err != nil {
			return err
		}
	}
	t.stored = -1
	return t.write()
}

// write makes all changes durable, and how far the events were read with them.
// Events without a message do not need a commit of their own each time.
func (t *teller) write() error {
	if len(t.unwritten) == 0 && len(t.marks) == 0 && t.stored >= 0 && t.taken-t.stored < tellBehind {
		return nil
	}
	tx := store.Tx{Taken: &t.taken, Meta: t.marks}
	for _, l := range t.unwritten {
		tx.Outbox = append(tx.Outbox, l)
		// A delivery that is not recorded would be repeated after a restart. New
		// messages can wait for room: their events are on disk.
		tx.Reserved = tx.Reserved || l.Data == nil
	}
	if err := t.store.Commit(tx); err != nil {
		return err
	}
	clear(t.unwritten)
	t.marks, t.stored = nil, t.taken
	return nil
}

// lookAtDisk tells once that the disk is nearly full, until it is not any more.
func (t *teller) lookAtDisk(now time.Time) {
	free, total, err := t.disk()
	if err != nil || total <= 0 {
		return
	}
	low := free < total/lowDiskShare && free < lowDiskBytes
	if low && !t.diskLow {
		t.alert(now, fmt.Sprintf("the disk of berth's state directory is nearly full: %d of %d MiB are free", free>>20, total>>20))
	}
	// A little more must be free again, so that a disk at the bound makes one message.
	t.diskLow = low || t.diskLow && free < min(total/lowDiskShare, lowDiskBytes)*11/10
}

// sent takes in what came of a message.
func (t *teller) sent(e notify.Entry, r send.Result, now time.Time) {
	delete(t.sending, e.ID)
	if r.Error == "" {
		t.change(t.box.Delivered(e.ID, now))
		return
	}
	again := time.Duration(r.AgainS) * time.Second
	changes, gaveUp := t.box.Failed(e.ID, r.Error, r.Final, again, now)
	t.change(changes)
	shown := "a target"
	if target, err := notify.ParseTarget(e.Target); err == nil {
		shown = target.Shown()
	}
	if gaveUp {
		t.log.Warn("gave up on a message", "to", shown, "user", e.User, "about", e.Message("", "").Title, "err", r.Error)
		t.gaveUp(e)
	} else {
		t.log.Info("a message waits for another try", "to", shown, "user", e.User, "err", r.Error)
	}
}

// do runs f between two steps.
func (t *teller) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case t.asks <- func() { f(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hurry tells what there is to tell, and returns once every message was tried.
func (t *teller) hurry(ctx context.Context) error {
	tried := make(chan struct{})
	err := t.do(ctx, func() {
		t.hurried = tried
		t.change(t.box.Hurry(true, time.Now()))
	})
	if err != nil {
		return err
	}
	select {
	case <-tried:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hurryUp ends the gathering of messages, and the hurry once there is no need.
func (t *teller) hurryUp(now time.Time) {
	if t.hurried == nil {
		return
	}
	t.change(t.box.Hurry(false, now))
	if !t.box.Pending(now) && len(t.sending) == 0 {
		close(t.hurried)
		t.hurried = nil
	}
}

// run tells until the daemon stops. What is on its way then is sent again by the
// next daemon if it did not arrive.
func (t *teller) run(ctx context.Context, woken <-chan struct{}) {
	type outcome struct {
		entry  notify.Entry
		result send.Result
	}
	results := make(chan outcome, tellSending)
	for {
		stepped := time.Now()
		ready, again := t.step(stepped)
		for _, e := range ready {
			go func() {
				bounded, cancel := context.WithTimeout(ctx, tellLimit)
				defer cancel()
				results <- outcome{e, t.send(bounded, e)}
			}()
		}
		timer := time.NewTimer(time.Until(again))
		select {
		case <-woken:
			// Messages gather for seconds, so the events of short jobs are read together.
			select {
			case <-time.After(time.Until(stepped.Add(tellTogether))):
			case ask := <-t.asks:
				ask()
			case <-ctx.Done():
			}
		case ask := <-t.asks:
			ask()
		case <-timer.C:
		case o := <-results:
			t.sent(o.entry, o.result, time.Now())
		case <-ctx.Done():
			timer.Stop()
			for range t.sending { // each ends with ctx
				o := <-results
				if o.result.Error == "" {
					t.sent(o.entry, o.result, time.Now())
				}
			}
			if !t.own {
				t.marks = map[string]string{runningKey: "no"}
			}
			if err := t.write(); err != nil {
				t.log.Warn("messages are sent again after the next start", "err", err)
			}
			return
		}
		timer.Stop()
	}
}
