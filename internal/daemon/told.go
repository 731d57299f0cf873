package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/notify"
	"berth/internal/send"
	"berth/internal/site"
	"berth/internal/store"
)

const (
	// runningKey is set while a daemon runs: one that finds it was not stopped.
	runningKey = "notify.running"
	// originKey is the beginning of every message's id: two stores number theirs
	// alike.
	originKey = "notify.origin"

	tellEvents  = 1000             // events read at a time
	tellBehind  = 500              // events without a message that a restart may read again
	tellAgain   = 5 * time.Second  // between tries to write
	tellIdle    = time.Minute      // the longest pause: the disk is looked at
	tellSending = 8                // messages on their way at a time
	tellOfUser  = 2                // of them one user's
	tellLimit   = 45 * time.Second // of one delivery, which has a shorter limit of its own

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
	log    *slog.Logger
	admin  func() []string // targets of the administrators, as configured
	send   func(ctx context.Context, e notify.Entry) send.Result
	uid    int // whom administrators' messages are sent as
	disk   func() (free, total int64, err error)
	box    *notify.Outbox
	origin string
	taken  int64 // the last event read
	stored int64 // the last event that is on disk as read

	unwritten map[int64]store.Letter // changes not yet on disk
	marks     map[string]string      // likewise
	sending   map[int64]bool
	diskLow   bool
	stuck     bool // the last write failed, and the log says so
}

// newTeller restores the outbox. The events before the first start of a daemon
// that knows of messages are nobody's.
func newTeller(t teller, now time.Time) (*teller, error) {
	t.unwritten, t.sending, t.marks = map[int64]store.Letter{}, map[int64]bool{}, map[string]string{runningKey: "yes"}
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
	if running == "yes" {
		t.alert(now, "berth started again after it ended without being stopped (a crash, a kill or a power cut)")
	}
	return &t, err
}

// alert tells the administrators.
func (t *teller) alert(now time.Time, what string) {
	for _, target := range t.admin() {
		t.change(t.box.Add(t.uid, "", target, notify.Fact{At: now, Detail: what}, now))
	}
}

func (t *teller) change(changes []notify.Change) {
	for _, c := range changes {
		l := store.Letter{ID: c.Entry.ID}
		if !c.Delete {
			data, err := json.Marshal(c.Entry)
			if err != nil {
				panic("bug: " + err.Error())
			}
			l.Data = data
		}
		t.unwritten[l.ID] = l
	}
}

// step does what is due: it reads events, writes what changed, and returns the
// messages to send and when to come back.
func (t *teller) step(now time.Time) (ready []notify.Entry, again time.Time) {
	t.lookAtDisk(now)
	more, err := t.take(now)
	if err == nil {
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
		t.sending[e.ID] = true
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

// take makes messages of the next events; more: there may be others.
func (t *teller) take(now time.Time) (more bool, err error) {
	events, err := t.store.EventsAfter(t.taken, tellEvents)
	if err != nil {
		return false, err
	}
	for _, ev := range events {
		if c := ev.Card; ev.Kind == job.EventCard && ev.Job == nil && c != nil && c.Bad && c.By == "" {
			t.alert(now, ev.Text)
		}
		t.taken = ev.Seq
	}
	return len(events) == tellEvents, nil
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
	changes, gaveUp := t.box.Failed(e.ID, r.Error, r.Final, now)
	t.change(changes)
	shown := "a target"
	if target, err := notify.ParseTarget(e.Target); err == nil {
		shown = target.Shown()
	}
	if gaveUp {
		t.log.Warn("gave up on a message", "to", shown, "user", e.User, "about", e.Message("", "").Title, "err", r.Error)
	} else {
		t.log.Info("a message waits for another try", "to", shown, "user", e.User, "err", r.Error)
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
		ready, again := t.step(time.Now())
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
			t.marks = map[string]string{runningKey: "no"}
			if err := t.write(); err != nil {
				t.log.Warn("messages are sent again after the next start", "err", err)
			}
			return
		}
		timer.Stop()
	}
}

// nobody is whom a shared daemon sends administrators' messages as: they need no
// rights, and root's least of all.
var nobody = site.User{Name: "nobody", UID: 65534, GID: 65534, Groups: []int{65534}, Home: "/"}

// startTelling connects a teller to this daemon. One that cannot be read must not
// keep jobs from running.
func (d *Daemon) startTelling(ctx context.Context) {
	sender := site.User{Name: d.userName(d.uid), UID: d.uid, GID: os.Getegid(), Home: d.home(d.uid)}
	if d.opt.Places.Shared {
		sender = nobody
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	var t *teller
	t, err = newTeller(teller{
		store: d.store, log: d.log, uid: sender.UID,
		admin: func() []string { return d.config().NotifyAdmin },
		disk: func() (free, total int64, err error) {
			var disk unix.Statfs_t
			err = unix.Statfs(d.opt.Places.StateDir, &disk)
			return int64(disk.Bavail) * disk.Bsize, int64(disk.Blocks) * disk.Bsize, err
		},
		send: func(ctx context.Context, e notify.Entry) send.Result {
			mail := d.config().Mail
			mail.From = cmp.Or(mail.From, "berth@"+host)
			return deliverAs(ctx, sender, send.Request{
				Target: e.Target, Message: e.Message(t.origin, host), Mail: mail,
				Environ: []string{"HOME=" + sender.Home, "USER=" + sender.Name, "PATH=/usr/local/bin:/usr/bin:/bin"},
			})
		},
	}, time.Now())
	if err != nil {
		d.log.Error("no messages are sent", "err", err)
		return
	}
	d.wait.Go(func() { t.run(ctx, d.happened) })
}

// deliverAs sends a message with a user's rights.
func deliverAs(ctx context.Context, u site.User, r send.Request) (result send.Result) {
	input, err := json.Marshal(r)
	if err != nil {
		panic("bug: " + err.Error())
	}
	out, err := site.AskAs(ctx, u, send.Word, input)
	if err == nil {
		err = json.Unmarshal(out, &result)
	}
	if err != nil {
		return send.Result{Error: err.Error()}
	}
	return result
}
