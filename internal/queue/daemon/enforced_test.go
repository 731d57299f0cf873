package daemon

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/queue/config"
)

func TestTheDaemonSaysWhatItEnforces(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	status, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	if err != nil {
		t.Fatal(err)
	}
	f := l.d.svc.queue.Runner.Cgroups.Facts()
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

func TestTheMostHostMemoryOfOneJob(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.Memory = config.Portion{Amount: 512} }))
	_, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", "mem", "1G")}})
	if err == nil || !strings.Contains(err.Error(), "mem: expected at most 512 MiB, found 1024 MiB") {
		t.Errorf("more than allowed: %v", err)
	}
	id := l.one(sh("true", "hold", "yes", "mem", "512M"))
	if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: api.Spec{Mem: "513M"}}); err == nil {
		t.Error("an edit may ask for more")
	}
	enforced := l.d.admin.enforced.get(l.d.svc.queue.Runner.Cgroups.Facts).Mem != ""
	for asked, want := range map[int64]int64{0: 512, 100: 100, 4096: 512} {
		j := &job.Job{ID: "1", Spec: job.Spec{Argv: []string{"true"}, MemMiB: asked}, Umask: -1}
		if !enforced {
			want = asked // nothing is promised that the host does not keep
		}
		if o, err := l.d.order(j, nil); err != nil || o.MemMiB != want {
			t.Errorf("a job that asks for %d MiB is held to %d, want %d: %v", asked, o.MemMiB, want, err)
		}
	}
}
