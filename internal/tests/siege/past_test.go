package siege

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestNobodyErasesThePastOfOthers fills the history with arrays that are
// submitted held and cancelled. What others did is all there afterwards: their
// jobs, logs and events.
func TestNobodyErasesThePastOfOthers(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	const kept = 60
	c := pitch(t, fmt.Sprintf("[retention]\nhistory_jobs = %d\nevents = %d\n[scheduling]\npoll = \"0.2s\"\n", kept, 3*kept))
	lea, moe := c.enlist("lea"), c.enlist("moe")
	c.up()
	var own []string
	for i := range kept / 3 {
		own = append(own, lea.submit(t, shell(fmt.Sprintf("echo number %d", i)))[0])
	}
	for _, id := range own {
		lea.ended(t, id)
	}
	if r := c.root.mustAsk(t, "POST", "/v1/gpus/0/pause", nil); r.status != http.StatusOK {
		t.Fatalf("pausing a GPU: status %d: %s", r.status, r.body)
	}
	before := c.events(t)
	ran := moe.submit(t, shell("echo ran"))[0]
	moe.ended(t, ran)
	for range 10 {
		moe.submit(t, shell("true").with("array", fmt.Sprintf("1-%d", kept)).with("hold", "yes"))
		moe.act(t, "cancel", map[string]any{"all": true})
	}
	testkit.Must(t, c.daemon.cmd.Process.Signal(syscall.SIGHUP))
	testkit.Eventually(t, "old data is deleted", func() bool {
		return strings.Contains(testkit.Read(t, filepath.Join(c.stateDir, "berth.log")), "msg=tidied")
	})

	for i, id := range own {
		if v := lea.show(t, id); v.Outcome == nil || *v.Outcome != job.OK {
			t.Errorf("job %s ended %s", id, text(v.Outcome))
		}
		if log := lea.log(t, id); log.body != fmt.Sprintf("number %d\n", i) {
			t.Errorf("the log of job %s is %q", id, log.body)
		}
	}
	if log := moe.log(t, ran); log.body != "ran\n" { // before those that never did
		t.Errorf("moe's log is %q", log.body)
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

// TestNobodyFillsTheDiskWithTheirPast submits large jobs held and cancels them,
// again and again. The store stays small, the text of others' jobs is all there,
// and so is every job.
func TestNobodyFillsTheDiskWithTheirPast(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	c := pitch(t, "[retention]\nhistory_text = \"4M\"\n[limits]\ntext = \"16M\"\n[scheduling]\npoll = \"0.2s\"\n")
	nia, olaf := c.enlist("nia"), c.enlist("olaf")
	c.up()
	long := "true " + strings.Repeat("x", 100_000)
	own := []string{nia.submit(t, shell(long))[0], nia.submit(t, shell(long+"y").with("hold", "yes"))[0]}
	nia.cancel(t, own[1])
	nia.ended(t, own[0])
	const jobs, rounds = 16, 10
	var flood []string
	for round := range rounds {
		for i := range jobs {
			flood = append(flood, olaf.submit(t, large(round*jobs+i))[0])
		}
		olaf.act(t, "cancel", map[string]any{"all": true})
	}
	kept := func() (bytes int) {
		for _, id := range flood {
			if v := olaf.show(t, id); v.Command != nil {
				bytes += len(*v.Command)
			}
		}
		return bytes
	}
	testkit.Eventually(t, "what is too much is dropped", func() bool { return kept() <= 4<<20+jobs*rounds*2<<10 })
	if size := c.stored(t); size > 80<<20 {
		t.Errorf("%d MiB of text made a store of %d MiB", jobs*rounds*largeBytes>>20, size>>20)
	}
	if info, err := os.Stat(filepath.Join(c.stateDir, "store", "berth.db-wal")); err != nil || info.Size() > 32<<20 {
		t.Errorf("the store's log has %d MiB: %v", info.Size()>>20, err)
	}
	for i, id := range own {
		if v := nia.show(t, id); v.TextDropped || v.Command == nil || len(*v.Command) != len(long)+i {
			t.Errorf("nia's job %s lost its text", id)
		}
	}
}

// TestNobodyCrowdsTheAudit asks for what is refused, and does what is allowed,
// thousands of times. The audit has a line of what others did, and counts the
// rest.
func TestNobodyCrowdsTheAudit(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	c := pitch(t, "")
	ivy, jan := c.enlist("ivy"), c.enlist("jan")
	c.up()
	const first, tasks = 900_001, 92 // long ids
	id := ivy.submit(t, shell("true").with("array", fmt.Sprintf("%d-%d", first, first+tasks-1)).with("hold", "yes"))[0]
	one, asked := fmt.Sprintf("%s_%d", id, first), 0
	cancel := func(ids []string) {
		jan.act(t, "cancel", map[string]any{"ids": ids})
		asked++
	}
	for range 300 { // the same again and again
		cancel([]string{one})
	}
	c.mustBeDenied(t, jan, "cancel", one)
	for i := range tasks { // each time other jobs, and many
		for k := range i {
			var ids []string
			for n := range tasks {
				if n != i && n != k {
					ids = append(ids, fmt.Sprintf("%s_%d", id, first+n))
				}
			}
			cancel(ids)
		}
	}
	own := jan.submit(t, shell("true").with("hold", "yes").with("begin", "now+10d"))[0]
	asked++
	for i := range 300 { // and what is allowed
		jan.act(t, []string{"release", "hold"}[i%2], map[string]any{"ids": []string{own}})
		asked++
	}
	c.daemon.stop()
	told, lines, summaries := 0, 0, 0
	for _, e := range c.audit(t) {
		if e.UID == jan.uid {
			told += max(e.Requests, 1)
			lines++
		}
		if e.Result == "summarised" {
			summaries++
		}
	}
	t.Logf("%d requests have %d lines", asked, lines)
	if told != asked || summaries == 0 {
		t.Errorf("the audit counts %d requests of %d, some of them in %d summaries", told, asked, summaries)
	}
	if info, err := os.Stat(filepath.Join(c.stateDir, "audit.jsonl")); err != nil || info.Size() > 4<<20+64<<10 {
		t.Errorf("the audit has %d KiB: %v", info.Size()>>10, err)
	}
	if !slices.ContainsFunc(c.audit(t), func(e entry) bool { return e.UID == ivy.uid && slices.Contains(e.Jobs, id) }) {
		t.Error("the audit does not tell what ivy did")
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
