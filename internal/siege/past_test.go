package siege

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/testkit"
)

// TestNobodyErasesThePastOfOthers fills the history with arrays that are
// submitted held and cancelled. What others did is all there afterwards: their
// jobs, logs and events.
func TestNobodyErasesThePastOfOthers(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	const kept = 60
	c := pitch(t, fmt.Sprintf("[retention]\nhistory_jobs = %d\nevents = %d\n[scheduling]\npoll = \"0.2s\"\n", kept, 3*kept))
	gus, hal := c.enlist("gus"), c.enlist("hal")
	c.up()
	var own []string
	for i := range kept / 3 {
		own = append(own, gus.submit(t, shell(fmt.Sprintf("echo number %d", i)))[0])
	}
	for _, id := range own {
		gus.ended(t, id)
	}
	if r := c.root.mustAsk(t, "POST", "/v1/gpus/0/pause", nil); r.status != http.StatusOK {
		t.Fatalf("pausing a GPU: status %d: %s", r.status, r.body)
	}
	before := c.events(t)
	ran := hal.submit(t, shell("echo ran"))[0]
	hal.ended(t, ran)
	for range 10 {
		hal.submit(t, shell("true").with("array", fmt.Sprintf("1-%d", kept)).with("hold", "yes"))
		hal.act(t, "cancel", map[string]any{"all": true})
	}
	testkit.Must(t, c.daemon.cmd.Process.Signal(syscall.SIGHUP))
	testkit.Eventually(t, "old data is deleted", func() bool {
		return strings.Contains(testkit.Read(t, filepath.Join(c.stateDir, "berth.log")), "msg=tidied")
	})

	for i, id := range own {
		if v := gus.show(t, id); v.Outcome == nil || *v.Outcome != job.OK {
			t.Errorf("job %s ended %s", id, text(v.Outcome))
		}
		if log := gus.log(t, id); log.body != fmt.Sprintf("number %d\n", i) {
			t.Errorf("the log of job %s is %q", id, log.body)
		}
	}
	if log := hal.log(t, ran); log.body != "ran\n" { // before those that never did
		t.Errorf("hal's log is %q", log.body)
	}
	after := map[int64]bool{}
	for _, ev := range c.events(t) {
		after[ev.Seq] = true
	}
	for _, ev := range before {
		if !after[ev.Seq] {
			t.Errorf("event %d (%s) is gone", ev.Seq, ev.Kind)
		}
	}
	if len(after) > 3*kept {
		t.Errorf("%d events are left", len(after))
	}
}

// events are those that the daemon has stored.
func (c *camp) events(t *testing.T) []api.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://berth/v1/events?since=0&gpus=1", nil)
	testkit.Must(t, err)
	answer, err := c.root.http.Do(r)
	testkit.Must(t, err)
	defer answer.Body.Close()
	var all []api.Event
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		var ev api.Event
		testkit.Must(t, json.Unmarshal([]byte(data), &ev))
		if ev.Kind == job.EventGPUs { // told after all that are stored
			break
		}
		all = append(all, ev)
	}
	return all
}
