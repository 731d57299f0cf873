package daemon

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/api"
	"berth/internal/machine/run"
)

func TestTheDaemonSaysWhatItEnforces(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	status, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	if err != nil {
		t.Fatal(err)
	}
	f := l.d.machine.Runner.Facts()
	want := &api.Enforced{Cgroup: f.Path, CPUs: f.CPU, Mem: f.Memory, Devices: f.Devices, Missing: f.Why}
	if diff := cmp.Diff(want, status.Enforced); diff != "" {
		t.Errorf("(-what its supervisors use +what it says)\n%s", diff)
	}
	var e enforced
	looks := 0
	for range 3 {
		e.get(func() run.Facts { looks++; return run.Facts{CPU: "v2"} })
	}
	if looks != 1 {
		t.Errorf("it looked %d times", looks)
	}
}
