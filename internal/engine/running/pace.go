package running

import (
	"encoding/json"
	"time"

	"berth/internal/sched"
)

// Pace is how fast the memory of parked jobs moves, in MiB per second. It begins
// with what was measured on an H200 with a driver of version 580, and follows what
// this machine does.
type Pace struct {
	Out  float64 `json:"out"`  // to the host
	Back float64 `json:"back"` // to the cards
}

var firstPace = Pace{Out: 1700, Back: 4700}

const (
	// parkExtra is the time around the move.
	parkExtra = 100 * time.Millisecond
	// paceLeastMiB is the least that says how fast memory moves: for less, the time
	// around it counts more.
	paceLeastMiB = 1 << 10
	// paceWeight is how much one measurement counts against those before.
	paceWeight = 0.25
	// paceLow and paceHigh bound what is believed: beyond them, planning would
	// park nothing any more, or count parking as free.
	PaceLow, paceHigh = 10, 200_000

	PaceKey = "parking/pace"
)

// Learn takes in how long a job took to leave its cards (Out) or to come back.
func Learn(rate *float64, mib int64, took time.Duration) bool {
	if mib < paceLeastMiB || took <= 0 {
		return false
	}
	seen := min(max(float64(mib)/took.Seconds(), PaceLow), paceHigh)
	*rate += paceWeight * (seen - *rate)
	return true
}

func (p *Pace) out(mib int64) time.Duration { return moving(mib, p.Out) }

func (p *Pace) back(mib int64) time.Duration { return moving(mib, p.Back) }

func moving(mib int64, rate float64) time.Duration {
	return parkExtra + time.Duration(float64(mib)/rate*float64(time.Second))
}

// preempt is what it costs to park a job that uses this much memory.
func (p *Pace) preempt(mib int64) sched.Preempt {
	return sched.Preempt{Mode: sched.Park, Out: p.out(mib), Back: p.back(mib), MemMiB: mib}
}

// LearnPace takes in one move, and adds the pace to the next commit.
func (p *Parking) LearnPace(rate *float64, mib int64, took time.Duration) {
	if !Learn(rate, mib, took) {
		return
	}
	data, err := json.Marshal(p.Pace)
	if err != nil {
		panic("bug: " + err.Error())
	}
	p.set.changes.Meta[PaceKey] = string(data)
}

// ParkState is whether jobs can be parked now, at what pace, and what is parked.
type ParkState struct {
	Cannot    string  // why not; empty: they can be
	Out, Back float64 // MiB per second
	HeldMiB   int64   // of the host's memory, by parked jobs
	RoomMiB   int64   // for more of them; -1: not known
}
