package messages

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/queue/notify"
	"berth/internal/queue/send"
	"berth/internal/queue/store"
)

// post is a teller over a real store, whose disk and clock belong to the test.
type post struct {
	*teller
	t    *testing.T
	dir  string
	s    *store.Store
	now  time.Time
	free int64

	wishes map[int][]notify.Rule
	alive  map[notify.Whole]bool
	lost   int // messages that were given up
}

func newPost(t *testing.T) *post {
	p := &post{t: t, dir: filepath.Join(t.TempDir(), "store"), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), free: 100 << 30}
	p.open()
	t.Cleanup(func() { p.s.Close() })
	return p
}

func (p *post) open() {
	p.t.Helper()
	var err error
	if p.s, err = store.Open(p.dir); err != nil {
		p.t.Fatal(err)
	}
	p.teller, err = newTeller(teller{
		store: p.s, log: slog.New(slog.DiscardHandler), uid: 65534, admin: func() []string { return []string{"exec:tell"} },
		disk:   func() (int64, int64, error) { return p.free, 100 << 30, nil },
		rules:  func(uid int, _ string) []notify.Rule { return p.wishes[uid] },
		lives:  func(a notify.Awaited) bool { return p.alive[a.Whole] },
		gaveUp: func(notify.Entry) { p.lost++ },
	}, p.now)
	if err != nil {
		p.t.Fatal(err)
	}
}

// killed is a kill -9: nothing is written at the end.
func (p *post) killed() {
	p.t.Helper()
	if err := p.s.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.open()
}

func (p *post) commit(events ...*job.Event) {
	p.t.Helper()
	if err := p.s.Commit(store.Tx{Events: events}); err != nil {
		p.t.Fatal(err)
	}
}

// later lets time pass in steps and returns the bodies of what is sent; all of it
// arrives if arrives.
func (p *post) later(d time.Duration, arrives bool) (said []string) {
	p.t.Helper()
	for end := p.now.Add(d); ; {
		ready, again := p.step(p.now)
		for _, e := range ready {
			said = append(said, e.Message("", "box").Body)
			if arrives {
				p.sent(e, send.Result{}, p.now)
			} else {
				p.sent(e, send.Result{Error: "refused"}, p.now)
			}
		}
		if again.After(end) {
			p.now = end
			return said
		}
		p.now = again
	}
}

func card(text, by string, bad bool) *job.Event {
	gpu := 3
	return &job.Event{Kind: job.EventCard, Text: text, Card: &job.CardChange{GPU: &gpu, By: by, Bad: bad}}
}

func wantSaid(t *testing.T, said []string, parts ...string) {
	t.Helper()
	all := strings.Join(said, "\n")
	if len(parts) == 0 && all != "" {
		t.Errorf("expected nothing, found %q", all)
	}
	for _, part := range parts {
		if strings.Count(all, part) != 1 {
			t.Errorf("expected %q once in %q", part, all)
		}
	}
}

func TestAdministratorsAreToldOfABadGPU(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.later(time.Minute, true)
	p.commit(card("gpu3 is quarantined: Xid 79", "", true), card("gpu2 was paused by ann", "ann", true), card("gpu3 is healthy again", "", false),
		&job.Event{Kind: job.EventWarning, Text: "other"})
	said := p.later(time.Hour, true)
	wantSaid(t, said, "gpu3 is quarantined: Xid 79")
	if strings.Contains(strings.Join(said, ""), "ann") || strings.Contains(strings.Join(said, ""), "healthy") {
		t.Errorf("%q", said)
	}
	wantSaid(t, p.later(48*time.Hour, true))
}

func TestEventsFromBeforeAreNotTold(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.commit(card("gpu3 is quarantined", "", true))
	p.killed()
	wantSaid(t, p.later(time.Hour, true))
}

// TestAKillLosesNoMessage at any step between the event and its delivery.
// TestNewRulesAreNotForWhatHappenedBefore, even if it had not been read when they
// were set, or is read again after a kill.
func TestNewRulesAreNotForWhatHappenedBefore(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.later(time.Minute, true)
	ends := make([]*job.Event, tellEvents+1) // more than are read at a time
	for i := range ends {
		ends[i] = happened(job.EventEnded, strconv.Itoa(i+1), job.Exited(3), "")
	}
	// The last one alone would not be worth a commit.
	for _, some := range [][]*job.Event{ends, {happened(job.EventEnded, "last", job.Exited(3), "")}} {
		p.commit(some...)
		if err := p.catchUp(p.now); err != nil {
			t.Fatal(err)
		}
	}
	p.wishes = map[int][]notify.Rule{1000: rulesOf(t, "fail:exec:a")}
	p.killed()
	p.commit(happened(job.EventEnded, "after", job.Exited(3), ""))
	if said := p.later(time.Hour, true); strings.Count(strings.Join(said, "\n"), "train (") != 1 {
		t.Errorf("%q", said)
	} else {
		wantSaid(t, said, "train (after) failed")
	}
}

func TestAKillLosesNoMessage(t *testing.T) {
	t.Parallel()
	const crash = "ended without being stopped"
	t.Run("before the event was read", func(t *testing.T) {
		p := newPost(t)
		p.later(time.Second, true)
		p.commit(card("gpu3 is quarantined", "", true))
		p.killed()
		wantSaid(t, p.later(time.Hour, true), "gpu3 is quarantined", crash)
	})
	t.Run("while it gathered", func(t *testing.T) {
		p := newPost(t)
		p.later(time.Second, true)
		p.commit(card("gpu3 is quarantined", "", true))
		p.step(p.now)
		p.killed()
		wantSaid(t, p.later(time.Hour, true), "gpu3 is quarantined", crash)
	})
	t.Run("between two tries", func(t *testing.T) {
		p := newPost(t)
		p.later(time.Second, true)
		p.commit(card("gpu3 is quarantined", "", true))
		if said := p.later(10*time.Minute, false); len(said) < 3 {
			t.Errorf("tried %d times", len(said))
		}
		p.killed()
		wantSaid(t, p.later(time.Hour, true), "gpu3 is quarantined", crash)
	})
	t.Run("after its delivery was recorded", func(t *testing.T) {
		p := newPost(t)
		p.later(time.Second, true)
		p.commit(card("gpu3 is quarantined", "", true))
		wantSaid(t, p.later(time.Hour, true), "gpu3 is quarantined")
		p.killed()
		if said := p.later(time.Hour, true); strings.Contains(strings.Join(said, ""), "gpu3") {
			t.Errorf("it was repeated: %q", said)
		}
	})
}

// full is a store on a full disk.
type full struct{ letters }

func (full) Commit(store.Tx) error { return store.ErrFull }

func TestNothingIsSentThatIsNotOnDisk(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.later(time.Second, true)
	p.commit(card("gpu3 is quarantined", "", true))
	p.store = full{p.s}
	var log strings.Builder
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	wantSaid(t, p.later(time.Hour, true))
	if strings.Count(log.String(), "messages wait") != 1 {
		t.Errorf("the log says it again and again: %.400s", log.String())
	}
	p.store = p.s
	wantSaid(t, p.later(time.Hour, true), "gpu3 is quarantined")
}

func TestADiskThatFillsUpIsToldOnce(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	wantSaid(t, p.later(time.Hour, true))
	p.free = 1 << 30
	wantSaid(t, p.later(time.Hour, true), "nearly full: 1024 of 102400 MiB")
	p.free = 5<<30 + 1 // hardly more than the bound
	wantSaid(t, p.later(time.Hour, true))
	p.free = 1 << 30
	wantSaid(t, p.later(time.Hour, true))
	p.free = 50 << 30
	wantSaid(t, p.later(time.Hour, true))
	p.free = 1 << 30
	wantSaid(t, p.later(time.Hour, true), "nearly full")
}

func TestAStopIsNotACrash(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	p.run(ctx, nil)
	p.killed()
	wantSaid(t, p.later(time.Hour, true))
}

func TestABrokenAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.later(time.Second, true)
	p.commit(card("gpu3 is quarantined", "", true))
	p.now = p.now.Add(time.Second)
	p.step(p.now)
	ready, _ := p.step(p.now.Add(time.Minute))
	if len(ready) != 1 {
		t.Fatal(errors.New("nothing is ready"))
	}
	p.sent(ready[0], send.Result{Error: "404", Final: true}, p.now)
	if left := p.box.All(); len(left) != 1 || left[0].Stage != notify.GivenUp {
		t.Errorf("%+v", left)
	}
}

func TestADamagedMessageHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.later(time.Second, true)
	p.commit(card("gpu3 is quarantined", "", true))
	if err := p.s.Commit(store.Tx{Outbox: []store.Letter{{ID: 7, Data: []byte("{")}}}); err != nil {
		t.Fatal(err)
	}
	p.killed()
	wantSaid(t, p.later(time.Hour, true), "gpu3 is quarantined")
	if left, last, err := p.s.Outbox(); len(left) != 0 || last < 8 || err != nil {
		t.Errorf("%v, %d, %v", left, last, err)
	}
}
