package siege

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

func init() { hoardAttacks = append(hoardAttacks, ruleAttacks...) }

// Getting around rules by way of what was allowed before.
var ruleAttacks = []attack{
	{"run an old job again under the limits of the past", func(t *testing.T, c *camp) {
		c.configure(t, "max_priority = 100\n")
		id := c.bob.submit(t, spec{"command": "true", "gpus": 1, "priority": 90})[0]
		c.bob.mustEnd(t, id, job.OK)
		c.configure(t, "max_priority = 0\njob_time = \"1h\"\n")
		if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{{"command": "true", "gpus": 1, "priority": 90}}}); r.status < 400 {
			t.Fatalf("a new one: status %d: %s", r.status, r.body)
		}
		full := c.ann.submit(t, spec{"command": "sleep 1000", "gpus": 4})[0]
		defer c.ann.cancel(t, full)
		c.ann.running(t, full)
		c.bob.act(t, "requeue", map[string]any{"ids": []string{id}})
		if d := c.bob.show(t, id); d.Priority > 0 || d.TimeLimitS == 0 || d.TimeLimitS > 3600 {
			t.Errorf("it is %s again with priority %d and a time limit of %g s", d.State, d.Priority, d.TimeLimitS)
		}
		c.bob.cancel(t, id)
	}},
	{"cancel every job before it is accounted for", func(t *testing.T, c *camp) {
		used := func() float64 {
			var s api.Stats
			c.root.mustAsk(t, "GET", "/v1/stats?user="+c.bob.name, nil).into(t, &s)
			sum := 0.0
			for _, u := range s.Users {
				sum += u.GPUHours
			}
			return sum
		}
		before := used()
		for range 3 {
			id := c.bob.submit(t, spec{"command": "sleep 1000", "gpus": 4})[0]
			c.bob.running(t, id)
			c.bob.cancel(t, id)
			c.bob.ended(t, id)
		}
		if after := used(); after <= before {
			t.Errorf("%g GPU-hours before and %g after", before, after)
		}
	}},
	{"have root's lost job never end, with its token in processes of one's own", func(t *testing.T, c *camp) {
		mark := newMark()
		id := c.root.submitFrom(t, map[string]any{"dir": "/", "jobs": []spec{{"command": "exec sleep " + mark, "gpus": 1}}})[0]
		testkit.Eventually(t, "it runs", func() bool { return len(marked("sleep\x00"+mark)) == 1 })
		token := c.tokenOf(t, id)
		// It takes no secret to start processes with that token without end.
		attacker := c.bob.command("/bin/sh", "-c", "while :; do sleep 0.02; done")
		attacker.Env = append(attacker.Env, fmt.Sprintf("BERTH_TOKEN=%s:%s:1", token, id))
		testkit.Must(t, attacker.Start())
		defer func() { _ = attacker.Process.Kill(); _ = attacker.Wait() }()
		for _, pid := range processes() {
			if words := strings.Split(procFile(pid, "cmdline"), "\x00"); len(words) > 1 && strings.HasSuffix(words[0], "berth-keep") && words[1] == token {
				testkit.Must(t, kill(pid))
			}
		}
		c.root.mustEnd(t, id, job.Lost)
		if !alive(attacker.Process.Pid) {
			t.Error("a process of bob's was taken for root's")
		}
		noneLeft(t, "sleep\x00"+mark)
	}},
	{"hold on to a log that is to be deleted", func(t *testing.T, c *camp) {
		c.configure(t, "")
		id := c.bob.submit(t, spec{"command": "echo mine", "gpus": 0})[0]
		c.bob.mustEnd(t, id, job.OK)
		dir := filepath.Join(c.stateDir, "jobs", id)
		holder := c.bob.command("/bin/sh", "-c", "cd "+dir+" && exec 9<>1.log && ln 1.log ../../../home/quin/second; flock 9 2>/dev/null; exec sleep 600")
		testkit.Must(t, holder.Start())
		defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
		for range 4 {
			c.bob.mustEnd(t, c.bob.submit(t, spec{"command": "echo more", "gpus": 0})[0], job.OK)
		}
		c.configure(t, "\n[retention]\nhistory_jobs = 2\nlogs = 0\n")
		testkit.Eventually(t, "its directory is gone", func() bool {
			_, err := os.Stat(dir)
			return os.IsNotExist(err)
		})
		if r := c.bob.mustAsk(t, "GET", "/v1/jobs/"+id+"/log", nil); r.status != http.StatusNotFound {
			t.Errorf("status %d: %s", r.status, r.body)
		}
		c.ann.does(t, "true")
	}},
}

func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
