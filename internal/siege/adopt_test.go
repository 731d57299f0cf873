package siege

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/testkit"
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
		pid := c.ann.sleeps(t)
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
