package siege

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// simjobOf is a job that holds this much of a simulated GPU.
func simjobOf(mib int) string {
	return fmt.Sprintf("%s simjob --hold 600 --vram %d", filepath.Join(programs, "berth"), mib)
}

// TestAFirstWaveOfSmallDeclarations: bob asks for next to nothing on every GPU at
// once, and then takes all of them.
func TestAFirstWaveOfSmallDeclarations(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	const config = "[limits]\ngpus = 2\n[scheduling]\npoll = \"0.2s\"\n"
	c := pitch(t, config)
	c.gpus = 4
	ann, bob := c.enlist("mia"), c.enlist("ned")
	c.up()
	defer c.endAll(t)
	var wave []spec
	for i := range c.gpus {
		wave = append(wave, spec{"command": simjobOf(20000), "gpus": "0.01", "allow": fmt.Sprint(i)})
	}
	greedy := bob.submit(t, wave...)
	// Two start, as many as the limit has GPUs. When they are measured a third may on
	// its word, and then bob is over the limit.
	for _, id := range greedy[:3] {
		testkit.Eventually(t, "job "+id+" is charged for its memory", func() bool {
			d := bob.show(t, id)
			return d.ChargedGPUs != nil && *d.ChargedGPUs > 0.8
		})
	}
	last := greedy[3]
	if d := bob.show(t, last); d.State != job.Queued || !strings.Contains(text(d.Reason), "limits.gpus") {
		t.Fatalf("the fourth job is %s: %s", d.State, text(d.Reason))
	}
	ann.does(t, "true")
	whole := ann.submit(t, spec{"command": simjobOf(100), "gpus": 1})[0]
	ann.running(t, whole)
	// As bob is over the limit, what he took beyond his word ends.
	for _, id := range greedy[:3] {
		testkit.Eventually(t, "it is said when job "+id+" will end", func() bool {
			return strings.Contains(text(bob.show(t, id).Reason), "it will be ended at ")
		})
	}
	testkit.Write(t, c.config, config+"[overuse]\ncancel_after = \"1s\"\n", 0o644)
	testkit.Must(t, c.daemon.cmd.Process.Signal(syscall.SIGHUP))
	ended := 0
	testkit.Eventually(t, "jobs end until bob is within the limit", func() bool {
		ended = 0
		for _, id := range greedy[:3] {
			if text(bob.show(t, id).Outcome) == string(job.Overuse) {
				ended++
			}
		}
		return ended > 0
	})
	if d := ann.show(t, whole); d.State != job.Running {
		t.Errorf("ann's job is %s", d.State)
	}
}

// TestParkingWithoutEnd: bob parks one job after another, to fill the host's memory
// and to come back when he likes.
func TestParkingWithoutEnd(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	c := pitch(t, "[limits]\ngpus = 0\nrunning_jobs = 3\n[scheduling]\npoll = \"0.2s\"\n")
	ann, bob := c.enlist("ora"), c.enlist("pat")
	c.up()
	defer c.endAll(t)
	uses := func(p *person, mib int64) string {
		t.Helper()
		id := p.submit(t, spec{"command": simjobOf(int(mib)), "gpus": 1})[0]
		testkit.Eventually(t, "job "+id+" uses its GPU", func() bool {
			d := p.show(t, id)
			return d.PeakVRAMMiB[fmt.Sprint(first(d.GPUIDs))] >= mib
		})
		return id
	}
	park := func(p *person, id string, more spec) (reply, string) {
		t.Helper()
		request := spec{"action": "park", "select": spec{"ids": []string{id}}}
		for key, value := range more {
			request[key] = value
		}
		r, err := p.ask("POST", "/v1/jobs/act", request)
		testkit.Must(t, err)
		if r.status != http.StatusOK {
			return r, r.body
		}
		var acted api.ActReply
		r.into(t, &acted)
		return r, acted.Jobs[0].What
	}
	parked := func(p *person, id string) {
		t.Helper()
		testkit.Eventually(t, "job "+id+" is parked", func() bool { return p.show(t, id).State == job.Parked })
	}
	// The host of two simulated GPUs has 96 GiB: 48 for parked jobs, 24 for bob's.
	one := uses(bob, 10000)
	if r, what := park(bob, one, spec{"until": "9999-12-31T00:00:00Z"}); r.status == http.StatusOK || !strings.Contains(what, "limits.parked_time") {
		t.Errorf("parked until the end of time: %d %s", r.status, what)
	}
	if _, what := park(bob, one, nil); !strings.Contains(what, "limits.parked_time") {
		t.Errorf("parked without a bound: %s", what)
	}
	parked(bob, one)
	if d := bob.show(t, one); !strings.Contains(text(d.Reason), "until 2") {
		t.Errorf("it is not said until when: %s", text(d.Reason))
	}
	two := uses(bob, 10000)
	if a, b := bob.show(t, one).GPUIDs, bob.show(t, two).GPUIDs; first(a) == first(b) {
		t.Errorf("both have to come back to gpu%d", first(a))
	}
	park(bob, two, nil)
	parked(bob, two)
	three := uses(bob, 10000)
	if _, what := park(bob, three, nil); !strings.Contains(what, "limits.parked_memory") {
		t.Errorf("bob parks more than his part: %s", what)
	}
	four := bob.submit(t, spec{"command": "true", "gpus": 0})[0]
	testkit.Eventually(t, "the fourth job waits", func() bool {
		return strings.Contains(text(bob.show(t, four).Reason), "3 jobs, 2 of them parked")
	})
	// Others can still park theirs.
	hers := uses(ann, 10000)
	park(ann, hers, nil)
	parked(ann, hers)
}

func first(list []int) int {
	if len(list) == 0 {
		return -1
	}
	return list[0]
}
