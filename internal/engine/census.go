package engine

import "time"

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
		Queued: queued, Running: held - len(t.attempts.Parked), Parked: len(t.attempts.Parked),
		Room: t.line.Queue.Len(), Held: len(t.line.Gates.Held), Later: len(t.line.Gates.Until.At), Dependent: len(t.line.Gates.Waiting),
		Oldest: t.line.Queue.OldestSince(), Users: t.line.Roster.Users(),
	}
	for _, a := range t.attempts.Parked {
		c.HostMiB += a.Job.Parking.HostMiB()
	}
	return c
}
