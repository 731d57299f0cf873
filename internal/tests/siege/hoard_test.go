package siege

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/tests/testkit"
)

// hoard is the group whose attacks keep GPUs and CPUs from others. They need a machine of
// their own, where nothing else runs.
const hoard = "hoard"

// TestHoard makes these attacks, one after another.
func TestHoard(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	c := pitch(t, "")
	c.ann, c.bob, c.gpus = c.enlist("pia"), c.enlist("quin"), 4
	c.prepareLedger(t)
	c.configure(t, "")
	c.up()
	defer c.endAll(t)
	for _, a := range hoardAttacks {
		t.Run(a.name, func(t *testing.T) { a.try(t, c) })
	}
}

// endAll leaves no process of a user behind.
func (c *camp) endAll(t *testing.T) {
	c.root.mustAsk(t, "POST", "/v1/jobs/act", spec{"action": "cancel", "select": spec{"all": true, "user": "*"}, "grace_s": 0})
	testkit.Eventually(t, "all jobs are over", func() bool {
		var s api.Status
		c.root.mustAsk(t, "GET", "/v1/status", nil).into(t, &s)
		return s.Counts["queued"]+s.Counts["running"] == 0
	})
}

// configure writes the config, from [limits] on. A running daemon reads it again, and has when it
// says so.
func (c *camp) configure(t *testing.T, text string) {
	t.Helper()
	testkit.Write(t, c.config, "[scheduling]\npoll = \"0.1s\"\nmin_run = \"1s\"\n[limits]\ngpus = 0\n"+text, 0o644)
	if c.daemon == nil {
		return
	}
	const read = "config read again"
	log := func() int { return strings.Count(testkit.Read(t, c.stateDir+"/berth.log"), read) }
	before := log()
	testkit.Must(t, c.daemon.cmd.Process.Signal(syscall.SIGHUP))
	testkit.Eventually(t, "the config is read again", func() bool { return log() > before })
}

// deaf is a job that ignores TERM and the warning, and says when it does.
func deaf(gpus int) spec {
	return spec{"command": "trap '' TERM USR1; echo deaf; while :; do sleep 0.1; done", "gpus": gpus}
}

func (p *person) isDeaf(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		testkit.Eventually(t, "job "+id+" ignores TERM", func() bool { return p.log(t, id).body == "deaf\n" })
	}
}

func (p *person) mustEnd(t *testing.T, id string, want job.Outcome) {
	t.Helper()
	if v := p.ended(t, id); v.Outcome == nil || *v.Outcome != want {
		t.Errorf("job %s ended %s (%s), not %s", id, text(v.Outcome), text(v.Reason), want)
	}
}

const tenYears = "3650d"

var hoardAttacks = []attack{
	{"hold reserved GPUs with a short time limit and a long grace period", func(t *testing.T, c *camp) {
		// Nobody has a history yet: it would count instead of the time limit.
		c.configure(t, "grace = \"5m\"\n")
		first := c.ann.submit(t, spec{"command": "sleep 1000", "gpus": 3, "timeout": "400s"})[0]
		c.ann.running(t, first)
		wide := c.root.submit(t, spec{"command": "true", "gpus": 4, "priority": "5"})[0] // ahead of both
		short := spec{"command": "true", "gpus": 1, "timeout": "2s"}
		stays := c.bob.submit(t, deaf(1).with("timeout", "2s").with("grace", "5m"))[0]
		c.bob.mustEnd(t, c.bob.submit(t, short.with("grace", "1s"))[0], job.OK)
		if v := c.bob.show(t, stays); v.State != job.Queued {
			t.Errorf("a job of 2 s and 5 min is %s on GPUs that are reserved", v.State)
		}
		c.bob.cancel(t, stays)
		c.ann.cancel(t, first)
		c.root.mustEnd(t, wide, job.OK)
	}},
	{"ask for a grace period of ten years", func(t *testing.T, c *camp) {
		c.configure(t, "grace = \"2s\"\n")
		refused := func(what string, r reply) {
			t.Helper()
			if r.status != http.StatusConflict && r.status != http.StatusUnprocessableEntity || !strings.Contains(r.body, "expected at most 2s") {
				t.Errorf("%s: status %d: %.300s", what, r.status, r.body)
			}
		}
		refused("submit", c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{deaf(1).with("grace", tenYears)}}))
		held := c.bob.submit(t, deaf(1).with("hold", "yes"))[0]
		refused("edit", c.bob.mustAsk(t, "PATCH", "/v1/jobs/"+held, spec{"set": spec{"grace": tenYears}}))
		refused("cancel", c.bob.mustAsk(t, "POST", "/v1/jobs/act", spec{"action": "cancel", "select": spec{"ids": []string{held}}, "grace_s": 1e8}))
		c.bob.cancel(t, held)
		late := c.bob.submit(t, deaf(1).with("timeout", "2s"))[0]
		c.bob.mustEnd(t, late, job.Timeout)
	}},
	{"sleep on GPUs without touching them", func(t *testing.T, c *camp) {
		c.configure(t, "\n[idle]\nreport_after = \"1s\"\ncancel_after = \"2s\"\n")
		small := c.bob.submit(t, shell("sleep 1000"))[0]
		c.bob.running(t, small)
		sleeps := c.ann.submit(t, spec{"command": "sleep 1000", "gpus": 3})[0]
		v := c.ann.ended(t, sleeps)
		if text(v.Outcome) != string(job.WasCancelled) || !strings.Contains(text(v.Reason), "it holds 3 GPUs and has used neither") {
			t.Errorf("it ended %s: %s", text(v.Outcome), text(v.Reason))
		}
		if v := c.bob.show(t, small); v.State != job.Running {
			t.Errorf("a job with a small part of a GPU is %s: %s", v.State, text(v.Reason))
		}
		c.bob.cancel(t, small)
	}},
	{"take every CPU and all memory, and wait for ever", func(t *testing.T, c *camp) {
		c.configure(t, "")
		cpus, memMiB := site.Host()
		if cpus < 2 {
			t.Skip("a machine with one CPU cannot be shared")
		}
		asleep := func() spec { return spec{"command": "sleep 1000000", "gpus": 0} }
		refused := func(s spec, key string) {
			t.Helper()
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{s}}); r.status < 400 || !strings.Contains(r.body, key) {
				t.Errorf("%v: status %d: %.300s", s, r.status, r.body)
			}
		}
		refused(asleep().with("cpus", cpus), "limits.cpus")
		refused(asleep().with("mem", fmt.Sprint(memMiB*3/4, "M")), "limits.memory")
		var sleepers []spec
		for range cpus {
			sleepers = append(sleepers, asleep())
		}
		greedy := c.bob.submit(t, sleepers...)
		c.bob.running(t, greedy[0])
		c.ann.mustEnd(t, c.ann.submit(t, spec{"command": "true", "gpus": 0})[0], job.OK)
		if v := c.bob.show(t, greedy[cpus-1]); v.State != job.Queued || !strings.Contains(text(v.Reason), "limits.cpus") {
			t.Errorf("the last of %d jobs is %s: %s", cpus, v.State, text(v.Reason))
		}
		c.bob.cancel(t, greedy...)
		third := fmt.Sprint(memMiB/3, "M") // of jobs that take no CPU beside their GPU
		large := c.bob.submit(t, shell("sleep 1000000").with("mem", third), shell("sleep 1000000").with("mem", third))
		c.bob.running(t, large[0])
		c.ann.mustEnd(t, c.ann.submit(t, shell("true").with("mem", third))[0], job.OK)
		if v := c.bob.show(t, large[1]); v.State != job.Queued || !strings.Contains(text(v.Reason), "limits.memory_total") {
			t.Errorf("the second job is %s: %s", v.State, text(v.Reason))
		}
		c.bob.cancel(t, large...)
	}},
	{"sleep on CPUs", func(t *testing.T, c *camp) {
		c.configure(t, "\n[idle]\nreport_after = \"1s\"\ncancel_after = \"4s\"\n")
		busy := c.ann.submit(t, spec{"command": "while :; do :; done", "gpus": 0})[0]
		c.ann.running(t, busy)
		v := c.bob.ended(t, c.bob.submit(t, spec{"command": "sleep 1000000", "gpus": 0})[0])
		if text(v.Outcome) != string(job.WasCancelled) || !strings.Contains(text(v.Reason), "it holds 1 CPU and has used almost no CPU time") {
			t.Errorf("it ended %s: %s", text(v.Outcome), text(v.Reason))
		}
		if v := c.ann.show(t, busy); v.State != job.Running {
			t.Errorf("a job that computes is %s: %s", v.State, text(v.Reason))
		}
		c.ann.cancel(t, busy)
	}},
	{"outlive a limit, a cancel and a preemption with an older grace period", func(t *testing.T, c *camp) {
		c.configure(t, "grace = 0\n")
		old := func(s spec) string { return c.bob.submit(t, s.with("grace", tenYears))[0] }
		late, cancelled := old(deaf(1).with("timeout", "5s")), old(deaf(1))
		victim := old(deaf(2).with("preemptible", "requeue").with("signal", "USR1@86400"))
		c.bob.isDeaf(t, late, cancelled, victim)
		c.root.act(t, "cancel", map[string]any{"ids": []string{cancelled}})
		c.configure(t, "grace = \"2s\"\n")
		c.bob.mustEnd(t, late, job.Timeout)
		c.bob.mustEnd(t, cancelled, job.WasCancelled)
		urgent := c.root.submit(t, spec{"command": "true", "gpus": 4, "priority": "5"})[0]
		c.root.mustEnd(t, urgent, job.OK)
		c.bob.cancel(t, victim)
	}},
}
