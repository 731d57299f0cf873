package daemon

import (
	"sync"

	"berth/internal/api"
	"berth/internal/machine/run"
)

// enforced is which limits this machine enforces. It is found out once, because
// that creates a cgroup and the status is asked for often.
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
