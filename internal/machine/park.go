package machine

import (
	"time"

	"berth/internal/engine"
	"berth/internal/site"
)

// parkPatience is how long a running kernel is waited for when a job is parked.
const parkPatience = time.Minute

// parkFloorMiB of the host's memory is never given to parked jobs.
const parkFloorMiB = 1 << 10

// parking is how this machine parks jobs. Simulated cards have no memory to move.
func (m *Machine) parking() engine.Parking {
	p := engine.Parking{Cannot: m.CannotPark, Patience: parkPatience}
	if m.SimDir == "" {
		p.RoomMiB = func() int64 { return parkRoom(site.FreeMiB(m.Runner.Cgroup())) }
	}
	return p
}

// parkRoom is how much host memory parked jobs may still take: half of what is
// free now.
func parkRoom(free int64) int64 {
	return max(0, min(free/2, free-parkFloorMiB))
}
