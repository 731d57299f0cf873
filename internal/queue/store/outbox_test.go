package store

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
)

func letter(id int64, text string) Letter { return Letter{ID: id, Data: []byte(text)} }

func taken(event int64) *int64 { return &event }

// wantOutbox compares the outbox: its entries, its highest number and how far the
// events were read (-1: never).
func wantOutbox(t *testing.T, s *Store, last, event int64, want ...Letter) {
	t.Helper()
	letters, gotLast, err := s.Outbox()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, letters); diff != "" || gotLast != last {
		t.Errorf("highest number %d, expected %d:\n%s", gotLast, last, diff)
	}
	got, ever, err := s.Taken()
	if err != nil {
		t.Fatal(err)
	}
	if !ever {
		got = -1
	}
	if got != event {
		t.Errorf("events were read up to %d, expected %d", got, event)
	}
}

func TestTheOutboxIsThereAfterReopening(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	wantOutbox(t, s, 0, -1)
	commit(t, s, Tx{Outbox: []Letter{letter(1, `{"a":1}`), letter(2, `{}`), letter(5, `{}`)}, Taken: taken(7)})
	commit(t, s, Tx{Outbox: []Letter{letter(1, `{"a":2}`), {ID: 5}, {ID: 4}}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir)
	wantOutbox(t, s, 5, 7, letter(1, `{"a":2}`), letter(2, `{}`)) // 5 is not given out again
	commit(t, s, Tx{Outbox: []Letter{{ID: 1}, {ID: 2}}, Taken: taken(0)})
	wantOutbox(t, s, 5, 0)
}

// TestAMessageAndTheEventsReadAreOneCommit: if one is not written, neither is the
// other, so that no message is lost or made twice.
func TestAMessageAndTheEventsReadAreOneCommit(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	commit(t, s, Tx{Outbox: []Letter{letter(1, `{}`)}, Taken: taken(3)})
	if _, err := s.conn.ExecContext(t.Context(), "CREATE TRIGGER no BEFORE INSERT ON meta BEGIN SELECT RAISE(ABORT, 'no'); END"); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(Tx{Outbox: []Letter{letter(2, `{}`), {ID: 1}}, Taken: taken(9), Meta: map[string]string{"a": "b"}}); err == nil {
		t.Fatal("the commit should have failed")
	}
	wantOutbox(t, s, 1, 3, letter(1, `{}`))
}

// TestEventsWaitForTheOutbox: an event that no message was made of yet is not
// deleted, however many there are.
func TestEventsWaitForTheOutbox(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	var events []*job.Event
	for i := range 100 {
		events = append(events, &job.Event{Kind: job.EventWarning, Text: fmt.Sprint(i)})
	}
	commit(t, s, Tx{Events: events, Taken: taken(40)})
	left := func() (first, count int) {
		t.Helper()
		if err := s.KeepEvents(10); err != nil {
			t.Fatal(err)
		}
		list, err := s.EventsAfter(0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return int(list[0].Seq), len(list)
	}
	for range 2 {
		if first, count := left(); first != 41 || count != 60 {
			t.Errorf("%d events from %d, expected 60 from 41", count, first)
		}
		if err := s.TrimEvents(90); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, s, Tx{Taken: taken(100)})
	if first, count := left(); first != 91 || count != 10 {
		t.Errorf("%d events from %d, expected 10 from 91", count, first)
	}
}
