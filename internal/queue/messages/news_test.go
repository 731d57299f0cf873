package messages

import (
	"testing"

	"berth/internal/job"
)

// TestNews: the teller gets every event once, and is sent to the store wherever one
// may be missing.
func TestNews(t *testing.T) {
	numbered := func(from, to int64) (events []job.Event) {
		for seq := from; seq <= to; seq++ {
			events = append(events, job.Event{Seq: seq})
		}
		return events
	}
	var n news
	expect := func(says string, seq int64, first, count int64, known bool) {
		t.Helper()
		events, ok := n.after(seq)
		if ok != known || known && (int64(len(events)) != count || count > 0 && events[0].Seq != first) {
			t.Errorf("%s: after %d came %d events, known %v; want %d from %d on, known %v", says, seq, len(events), ok, count, first, known)
		}
	}
	expect("nothing was published", 0, 0, 0, false)
	n.add(numbered(5, 7))
	expect("events before the first are in the store", 3, 0, 0, false)
	n.add(append([]job.Event{{}}, numbered(8, 9)...))
	expect("the next ones, without those that are not stored", 7, 8, 2, true)
	expect("all were taken", 9, 0, 0, true)
	n.add(numbered(10, 11))
	expect("some of them were read in the store", 10, 11, 1, true)
	n.add(numbered(12, 12))
	n.add(numbered(13, 12+tellEvents))
	expect("too many were dropped", 11, 0, 0, false)
	expect("they were read in the store", 12+tellEvents, 0, 0, true)
}
