package job

import "time"

// EventKind names what happened.
type EventKind string

// The kinds of event. They are a stable contract: docs/reference/json.md.
const (
	EventQueued    EventKind = "queued"
	EventDequeued  EventKind = "dequeued" // its line was deleted before it ran
	EventStarted   EventKind = "started"
	EventAdopted   EventKind = "adopted" // found running after berth itself was restarted
	EventExceeds   EventKind = "exceeds" // uses more memory than it declared
	EventOveruse   EventKind = "overuse" // uses far more, and will be ended
	EventUsage     EventKind = "usage"
	EventRetry     EventKind = "retry"
	EventRequeued  EventKind = "requeued"
	EventPreempted EventKind = "set_aside" // it was preempted for another job, and waits again
	EventParked    EventKind = "parked"    // its memory is on the host, and its cards are free
	EventResumed   EventKind = "resumed"   // it runs again where it was
	EventStopping  EventKind = "stopping"
	EventHeld      EventKind = "held"
	EventReleased  EventKind = "released"
	EventEdited    EventKind = "edited"
	EventEnded     EventKind = "ended"
	EventWarning   EventKind = "warning" // about berth, a card, or something a job lacks
	EventNotice    EventKind = "notice"  // the same, when nothing is wrong
	EventGPUsLost  EventKind = "gpus_unreadable"
	EventGPUsFound EventKind = "gpus_readable"
	EventCard      EventKind = "card" // the health of a card changed, or a user changed it
	EventIdle      EventKind = "idle" // a job has not used its cards for long
	EventGPUs      EventKind = "gpus" // the state of the cards; never stored
)

// OutOfMemory begins the text of an EventRetry after an attempt that ran out of
// GPU memory.
const OutOfMemory = "out of GPU memory"

// Event is one thing that happened, in the order it was committed. The job is a
// copy from that moment; nil for events about berth itself.
type Event struct {
	Seq  int64
	At   time.Time
	Kind EventKind
	Job  *Job
	Text string
	Card *CardChange // for EventCard: which card, and who did it
}

// CardChange is what happened to a card, as values.
type CardChange struct {
	GPU *int   `json:"gpu,omitempty"` // nil: all cards
	By  string `json:"by,omitempty"`  // the user who did it; empty: berth found it
	Bad bool   `json:"bad,omitempty"` // it accepts no jobs now
}

// Verdict compares a declaration with what was measured.
type Verdict string

// The verdicts; empty if nothing was declared or measured.
const (
	VerdictWithin Verdict = "within"
	VerdictUnder  Verdict = "under-declared"
	VerdictOver   Verdict = "over-declared"
)

// Judge compares the declared MiB with the highest peak per GPU. The percentage
// is how far the peak is from the declaration.
func Judge(declaredMiB int64, peaks map[int]int64, tolerance float64) (verdict Verdict, percent float64) {
	if declaredMiB <= 0 || len(peaks) == 0 {
		return "", 0
	}
	var peak int64
	for _, p := range peaks {
		peak = max(peak, p)
	}
	off := float64(peak-declaredMiB) / float64(declaredMiB)
	switch {
	case off > tolerance:
		return VerdictUnder, off * 100
	case off < -tolerance:
		return VerdictOver, off * 100
	}
	return VerdictWithin, off * 100
}
