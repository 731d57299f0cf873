package daemon

import (
	"sync"

	"berth/internal/api"
	"berth/internal/run"
)

// enforced is what jobs are held to here. It is looked at once: who asks for
// the daemon's status asks often, and each look makes a cgroup.
type enforced struct {
	once sync.Once
	what api.Enforced
}

func (e *enforced) get(facts func() run.Facts) *api.Enforced {
	e.once.Do(func() {
		f := facts()
		e.what = api.Enforced{Cgroup: f.Path, CPUs: f.CPU, Mem: f.Memory, Devices: f.Devices, Missing: f.Why}
	})
	what := e.what
	return &what
}
