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
func (x *Explain) Census() Census {
	queued, held := x.Live()
	c := Census{
		Queued: queued, Running: held - len(x.attempts.Parked), Parked: len(x.attempts.Parked),
		Room: x.line.Queue.Len(), Held: len(x.line.Gates.Held), Later: len(x.line.Gates.Until.At), Dependent: len(x.line.Gates.Waiting),
		Oldest: x.line.Queue.OldestSince(), Users: x.line.Roster.Users(),
	}
	for _, a := range x.attempts.Parked {
		c.HostMiB += a.Job.Parking.HostMiB()
	}
	return c
}
