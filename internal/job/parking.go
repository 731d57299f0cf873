package job

import "time"

// ParkPhase is how far berth is with parking an attempt or resuming it. It is on
// disk before the supervisor is asked.
type ParkPhase string

// The phases. A job that is parked has none: its state says so.
const (
	ParkNone ParkPhase = ""
	ParkOut  ParkPhase = "out" // it is leaving its cards
	ParkBack ParkPhase = "in"  // it has its cards again and is coming back
)

// Who asked for a job to be parked, if it was not a user. No user has such a name.
const (
	ParkedByLimit  = ":limit" // its time slice was over
	ParkedByIdling = ":idle"  // it left its cards unused
)

// Parking is what parking did to an attempt.
type Parking struct {
	Phase   ParkPhase
	By      string        // who asked for it: a user, or one of the above; empty: another job needs the cards
	CardMiB map[int]int64 // what it used on each card, and needs to come back
	Since   time.Time     // when it was last parked
	Resumed time.Time     // when it last got its cards back
	Served  time.Duration // how long it had run before that
	Sliced  time.Duration // the part of Served that no longer counts against its time limit
	Times   int
	Refused string // why it cannot be parked
}

// HostMiB is what a parked job holds of the host's memory for its cards.
func (p *Parking) HostMiB() (sum int64) {
	for _, mib := range p.CardMiB {
		sum += mib
	}
	return sum
}

// Saved takes in how much really moved to the host, which is more than what was
// last measured if the job grew after that. What is missing was on all of its cards
// alike, as far as anybody knows.
func (p *Parking) Saved(mib int64) {
	missing, cards := mib-p.HostMiB(), int64(len(p.CardMiB))
	if missing <= 0 || cards == 0 {
		return
	}
	for card := range p.CardMiB {
		p.CardMiB[card] += (missing + cards - 1) / cards
	}
}

// RunsSince is when an attempt last began to run: its start, or its last resume.
func (a *Attempt) RunsSince() time.Time {
	if a.Parking.Resumed.After(a.StartedAt) {
		return a.Parking.Resumed
	}
	return a.StartedAt
}

// Worked is how long an attempt has run, without the time for which it was
// parked.
func (j *Job) Worked(until time.Time) time.Duration {
	if j.StartedAt.IsZero() {
		return 0
	}
	if !j.EndedAt.IsZero() && j.EndedAt.Before(until) {
		until = j.EndedAt
	}
	if j.State == Parked || j.Parking.Times > 0 && j.Parking.Since.After(j.RunsSince()) {
		return j.Parking.Served // it is parked, or ended so
	}
	return j.Parking.Served + max(0, until.Sub(j.RunsSince()))
}

// Slice is how much of its time limit an attempt has used.
func (j *Job) Slice(until time.Time) time.Duration { return j.Worked(until) - j.Parking.Sliced }

// WasParked is how long an attempt has been parked, without the time since it was
// last parked if it still is.
func (j *Job) WasParked() time.Duration {
	until := j.RunsSince()
	switch {
	case j.Parking.Times == 0:
		return 0
	case j.State == Parked:
		until = j.Parking.Since
	case !j.EndedAt.IsZero():
		return max(0, j.EndedAt.Sub(j.StartedAt)-j.Worked(j.EndedAt))
	}
	return max(0, until.Sub(j.StartedAt)-j.Parking.Served)
}
