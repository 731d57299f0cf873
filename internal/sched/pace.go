package sched

import "time"

// Pace is how fast the memory of parked jobs moves, in MiB per second.
type Pace struct {
	Out  float64 `json:"out"`  // to the host
	Back float64 `json:"back"` // to the cards
}

// FirstPace is what was measured on an H200 with a driver of version 580: the pace
// of a machine on which no job was parked yet.
var FirstPace = Pace{Out: 1700, Back: 4700}

// parkExtra is the time around the move.
const parkExtra = 100 * time.Millisecond

// Park is what it costs to park a job that uses this much memory.
func (p *Pace) Park(mib int64) Preempt {
	return Preempt{Mode: Park, StopTime: moving(mib, p.Out), ResumeTime: moving(mib, p.Back), MemMiB: mib}
}

func moving(mib int64, rate float64) time.Duration {
	return parkExtra + time.Duration(float64(mib)/rate*float64(time.Second))
}
