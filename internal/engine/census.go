package engine

import (
	"maps"
	"time"
)

// Census is the unfinished jobs, counted. It costs as much for a long queue as for
// a short one.
type Census struct {
	Queued, Running, Parked int

	// What queued and parked jobs wait for: room on the cards, their release, a
	// time, or other jobs. A job that is being placed waits for nothing.
	Room, Held, Later, Dependent int

	// Oldest is since when the job that was submitted first waits for room; zero:
	// none does.
	Oldest time.Time

	Users   map[string]int // all of a user's
	HostMiB int64          // what parked jobs hold of the host's memory
}

// Census counts the unfinished jobs.
func (t *Turn) Census() Census {
	queued, held := t.Live()
	c := Census{
		Queued: queued, Running: held - len(t.attempts.parked), Parked: len(t.attempts.parked),
		Room: t.line.queue.Len(), Held: len(t.line.gates.held), Later: len(t.line.gates.until.at), Dependent: len(t.line.gates.waiting),
		Oldest: t.line.queue.OldestSince(), Users: maps.Clone(t.line.roster.owned),
	}
	for _, a := range t.attempts.parked {
		c.HostMiB += a.job.Parking.HostMiB()
	}
	return c
}
