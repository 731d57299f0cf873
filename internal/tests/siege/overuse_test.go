package siege

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestOveruse: bob asks for next to nothing and takes most of the machine.
func TestOveruse(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	const config = "[limits]\ngpus = 1.5\n[scheduling]\npoll = \"0.2s\"\n"
	c := pitch(t, config)
	ann, bob := c.enlist("kim"), c.enlist("lou")
	c.up()
	simjob := filepath.Join(programs, "berth") + " simjob --hold 600 --vram 5000"
	var greedy []string
	for i := range 8 {
		greedy = append(greedy, bob.submit(t, spec{"command": simjob, "gpus": "0.01", "ids": fmt.Sprint(i % 2)})...)
	}
	charged := 0.0
	for _, id := range greedy {
		testkit.Eventually(t, "job "+id+" is charged for its memory", func() bool {
			d := bob.show(t, id)
			return d.ChargedGPUs != nil && math.Abs(*d.ChargedGPUs-5000.0/24576) < 0.001
		})
		if d := bob.show(t, id); d.Reason == nil || !strings.Contains(*d.Reason, "5000 MiB used, 245 MiB declared") {
			t.Errorf("job %s is not reported: %s", id, text(d.Reason))
		}
		charged += *bob.show(t, id).ChargedGPUs
	}
	if charged < 1.5 {
		t.Fatalf("the attack takes only %g GPUs", charged)
	}
	// Nothing more starts for bob, and ann is not held up.
	next := bob.submit(t, spec{"command": "true", "gpus": "0.01"})[0]
	ann.does(t, "true")
	if d := bob.show(t, next); d.State != job.Queued || d.Reason == nil || !strings.Contains(*d.Reason, "limit") {
		t.Errorf("bob's next job is %s: %s", d.State, text(d.Reason))
	}
	// Where that is the policy, they end for what they did.
	testkit.Write(t, c.config, config+"[overuse]\ncancel_after = \"1s\"\n", 0o644)
	testkit.Must(t, c.daemon.cmd.Process.Signal(syscall.SIGHUP))
	for _, id := range greedy {
		if v := bob.ended(t, id); text(v.Outcome) != string(job.Overuse) || !strings.Contains(text(v.Reason), "ended by the administrator's policy") {
			t.Errorf("job %s ended %s: %s", id, text(v.Outcome), text(v.Reason))
		}
	}
	if v := bob.ended(t, next); text(v.Outcome) != string(job.OK) {
		t.Errorf("bob's next job ended %s: %s", text(v.Outcome), text(v.Reason))
	}
}
