package siege

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

func init() { othersAttacks = append(othersAttacks, adoptAttacks...) }

// What bob wants of processes that berth did not start.
var adoptAttacks = []attack{
	{"adopt another's process, the daemon, and what is not his", func(t *testing.T, c *camp) {
		pid := c.ann.sleeps(t)
		daemon := c.daemon.cmd.Process.Pid
		for _, victim := range []int{pid, daemon, 1, os.Getpid()} {
			if r := c.bob.mustAsk(t, "POST", "/v1/adopt", spec{"pid": victim, "gpus": []int{0}}); r.status != http.StatusForbidden {
				t.Errorf("process %d: status %d: %s", victim, r.status, r.body)
			}
		}
		c.mustBeDenied(t, c.bob, "adopt", "")
		if r := c.root.mustAsk(t, "POST", "/v1/adopt", spec{"pid": daemon, "gpus": []int{0}}); r.status != http.StatusConflict {
			t.Errorf("root adopts the daemon itself: status %d: %s", r.status, r.body)
		}
		if !alive(pid) {
			t.Error("it did not live through it")
		}
	}},
	{"end another's process by adopting and cancelling it", func(t *testing.T, c *camp) {
		pid := c.ann.simulates(t, c, 300, 0)
		d := c.ann.adopts(t, pid)
		if d.User != c.ann.name || d.State != job.Running {
			t.Errorf("it is %s's and %s", d.User, d.State)
		}
		if r := c.bob.mustAsk(t, "POST", "/v1/jobs/act", spec{"action": "cancel", "select": spec{"ids": []string{d.ID}}}); strings.Contains(r.body, `"done":true`) {
			t.Errorf("it is cancelled: %s", r.body)
		}
		if seen := c.bob.show(t, d.ID); seen.Command != nil {
			t.Errorf("what it runs is shown: %s", *seen.Command)
		}
		c.ann.cancel(t, d.ID)
		if v := c.ann.ended(t, d.ID); text(v.Outcome) != string(job.WasCancelled) {
			t.Errorf("it ended %s: %s", text(v.Outcome), text(v.Reason))
		}
		if !alive(pid) {
			t.Error("the process ended with its job")
		}
	}},
	{"make another answer for a process, as an administrator may only for its owner", func(t *testing.T, c *camp) {
		pid := c.bob.sleeps(t)
		d := c.dan.adopts(t, pid)
		if d.User != c.bob.name {
			t.Errorf("it is %s's", d.User)
		}
		// What watches it is its owner's, and nobody else's.
		watcher := 0
		testkit.Eventually(t, "something watches it", func() bool {
			for _, other := range processes() {
				if line := procFile(other, "cmdline"); strings.Contains(line, fmt.Sprintf("__watch\x00%d\x00", pid)) {
					watcher = other
				}
			}
			return watcher > 0
		})
		testkit.Eventually(t, "it has become its owner", func() bool { return owner(watcher) == c.bob.uid })
		c.dan.cancel(t, d.ID)
		c.dan.ended(t, d.ID)
		if !alive(pid) {
			t.Error("the process ended with its job")
		}
	}},
	{"reserve every card by adopting a process that uses none", func(t *testing.T, c *camp) {
		pid := c.bob.sleeps(t)
		for _, request := range []spec{
			{"gpus": []int{0, 1}, "vram": "24000"}, {"gpus": []int{0, 1}}, {"gpus": []int{1}, "vram": "1"}, {},
		} {
			if r := c.bob.mustAsk(t, "POST", "/v1/adopt", request.with("pid", pid)); r.status != http.StatusConflict {
				t.Errorf("%v: status %d: %s", request, r.status, r.body)
			}
		}
		c.mustBeDenied(t, c.bob, "adopt", "")
		// With memory on one card it is that card, and no more than that memory.
		pid = c.bob.simulates(t, c, 300, 1)
		for _, request := range []spec{{"gpus": []int{0, 1}}, {"vram": "24000"}, {"vram": "331"}} {
			if r := c.bob.mustAsk(t, "POST", "/v1/adopt", request.with("pid", pid)); r.status != http.StatusConflict {
				t.Errorf("%v: status %d: %s", request, r.status, r.body)
			}
		}
		var d api.Detail
		c.bob.mustAsk(t, "POST", "/v1/adopt", spec{"pid": pid}).into(t, &d)
		defer c.bob.cancel(t, d.ID)
		if !slices.Equal(d.GPUIDs, []int{1}) || d.BudgetMiB != 300 {
			t.Errorf("it holds %d MiB on GPU %v", d.BudgetMiB, d.GPUIDs)
		}
	}},
}

// simulates starts a process of the user's that holds memory on a card, and that
// berth did not start.
func (p *person) simulates(t *testing.T, c *camp, mib int64, card int) int {
	t.Helper()
	cmd := p.command(filepath.Join(programs, "berth"), "simjob", "--hold", "600", "--vram", fmt.Sprint(mib), "--gpu", fmt.Sprint(card))
	cmd.Env = append(cmd.Env, "BERTH_SIM_DIR="+filepath.Join(c.stateDir, "sim"))
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testkit.Eventually(t, "its memory is seen", func() bool {
		var seen []api.GPU
		c.root.mustAsk(t, "GET", "/v1/gpus", nil).into(t, &seen)
		return slices.ContainsFunc(seen[card].Processes, func(on api.GPUProcess) bool { return on.PID == cmd.Process.Pid })
	})
	return cmd.Process.Pid
}

// sleeps starts a process of the user's that berth knows nothing of.
func (p *person) sleeps(t *testing.T) int {
	t.Helper()
	cmd := p.command("/bin/sleep", "600")
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func (p *person) adopts(t *testing.T, pid int) api.Detail {
	t.Helper()
	var d api.Detail
	p.mustAsk(t, "POST", "/v1/adopt", spec{"pid": pid, "gpus": []int{0}}).into(t, &d)
	return d
}
