package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"berth/internal/sched"
)

// pace is how fast the memory of parked jobs moves, in MiB per second. It begins
// with what was measured on an H200 with a driver of version 580, and follows what
// this machine does.
type pace struct {
	Out  float64 `json:"out"`  // to the host
	Back float64 `json:"back"` // to the cards
}

var firstPace = pace{Out: 1700, Back: 4700}

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
	paceLow, paceHigh = 10, 200_000

	paceKey = "parking/pace"
)

// learn takes in how long a job took to leave its cards (Out) or to come back.
func learn(rate *float64, mib int64, took time.Duration) bool {
	if mib < paceLeastMiB || took <= 0 {
		return false
	}
	seen := min(max(float64(mib)/took.Seconds(), paceLow), paceHigh)
	*rate += paceWeight * (seen - *rate)
	return true
}

func (p *pace) out(mib int64) time.Duration  { return moving(mib, p.Out) }
func (p *pace) back(mib int64) time.Duration { return moving(mib, p.Back) }

func moving(mib int64, rate float64) time.Duration {
	return parkExtra + time.Duration(float64(mib)/rate*float64(time.Second))
}

// preempt is what it costs to park a job that uses this much memory.
func (p *pace) preempt(mib int64) sched.Preempt {
	return sched.Preempt{Mode: sched.Park, Out: p.out(mib), Back: p.back(mib), MemMiB: mib}
}

// learnPace takes in one move, and adds the pace to the next commit.
func (p *parking) learnPace(rate *float64, mib int64, took time.Duration) {
	if !learn(rate, mib, took) {
		return
	}
	data, err := json.Marshal(p.pace)
	if err != nil {
		panic("bug: " + err.Error())
	}
	p.set.changes.meta[paceKey] = string(data)
}

// ParkState is whether jobs can be parked now, at what pace, and what is parked.
type ParkState struct {
	Cannot    string  // why not; empty: they can be
	Out, Back float64 // MiB per second
	HeldMiB   int64   // of the host's memory, by parked jobs
	RoomMiB   int64   // for more of them; -1: not known
}

// ParkState is the present state of parking.
func (t *Turn) ParkState() ParkState {
	s := ParkState{Cannot: t.cfg.Parking.Cannot, Out: t.attempts.parking.pace.Out, Back: t.attempts.parking.pace.Back, RoomMiB: -1}
	for _, a := range t.attempts.parked {
		s.HeldMiB += a.job.Parking.HostMiB()
	}
	if room, known := t.attempts.parking.room(); known {
		s.RoomMiB = room.allMiB
	}
	return s
}

// RestorePace takes over what an earlier berth measured.
func (t *Turn) RestorePace(meta func(key string) (string, error)) error {
	value, err := meta(paceKey)
	if err != nil || value == "" {
		return err
	}
	var p pace
	if err := json.Unmarshal([]byte(value), &p); err != nil || p.Out < paceLow || p.Back < paceLow {
		return fmt.Errorf("read how fast jobs are parked: expected two speeds, found %q", value)
	}
	t.attempts.parking.pace = p
	return nil
}
