package siege

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// What bob wants of ann's jobs.
var othersAttacks = []attack{
	{"cancel another's running job", func(t *testing.T, c *camp) {
		id := c.annSleeps(t)
		c.mustRefuseTo(t, "cancel", id)
		if c.ann.show(t, id).State != job.Running {
			t.Error("it does not run any more")
		}
	}},
	{"hold another's queued job", func(t *testing.T, c *camp) {
		c.mustRefuseTo(t, "hold", c.annWaits(t, "begin", "now+9h"))
	}},
	{"release another's held job", func(t *testing.T, c *camp) {
		id := c.annWaits(t, "hold", "yes")
		c.mustRefuseTo(t, "release", id)
		if !c.ann.show(t, id).Held {
			t.Error("it is not held any more")
		}
	}},
	{"requeue another's job, running and over", func(t *testing.T, c *camp) {
		id := c.annSleeps(t)
		c.mustRefuseTo(t, "requeue", id)
		over := c.ann.submit(t, shell("true"))[0]
		c.ann.ended(t, over)
		c.mustRefuseTo(t, "requeue", over)
		if d := c.ann.show(t, over); d.Attempt != 1 || d.State != job.Finished {
			t.Errorf("attempt %d, %s", d.Attempt, d.State)
		}
	}},
	{"edit what another's job runs", func(t *testing.T, c *camp) {
		id := c.annWaits(t, "hold", "yes")
		for _, set := range []spec{{"command": "id >/tmp/x"}, {"priority": "9"}, {"env": spec{"A": "B"}}, {"output": "/tmp/x"}, {"setup": "id"}} {
			if r := c.bob.mustAsk(t, "PATCH", "/v1/jobs/"+id, spec{"set": set}); r.status != http.StatusForbidden {
				t.Errorf("%v: status %d: %s", set, r.status, r.body)
			}
		}
		c.mustBeDenied(t, c.bob, "edit", id)
	}},
	{"read and follow another's log", func(t *testing.T, c *camp) {
		id := c.annSleeps(t)
		for _, query := range []string{"", "?follow=1", "?attempt=1", "?offset=-10", "?lines=5"} {
			if r := c.bob.mustAsk(t, "GET", "/v1/jobs/"+id+"/log"+query, nil); r.status != http.StatusForbidden {
				t.Errorf("%s: status %d: %s", query, r.status, r.body)
			}
		}
		c.mustBeDenied(t, c.bob, "logs", id)
	}},
	{"read what another's job used over time", func(t *testing.T, c *camp) {
		id := c.annSleeps(t)
		for _, query := range []string{"", "?step=1", "?from=2026-03-01T00:00:00Z"} {
			path := "/v1/jobs/" + id + "/samples" + query
			if r := c.bob.mustAsk(t, "GET", path, nil); r.status != http.StatusForbidden {
				t.Errorf("%s: status %d: %s", query, r.status, r.body)
			}
			if r := c.ann.mustAsk(t, "GET", path, nil); r.status != http.StatusOK {
				t.Errorf("%s: ann gets status %d: %s", query, r.status, r.body)
			}
		}
		dir := filepath.Join(c.stateDir, "samples")
		testkit.Eventually(t, "samples are on disk", func() bool { files, _ := os.ReadDir(dir); return len(files) > 0 })
		files, err := os.ReadDir(dir)
		testkit.Must(t, err)
		for _, path := range []string{dir, filepath.Join(dir, files[0].Name())} {
			err := c.bob.as(func() error {
				file, err := os.Open(path)
				if err == nil {
					file.Close()
				}
				return err
			})
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("bob opens %s: %v", path, err)
			}
		}
	}},
	{"attach to another's terminal", func(t *testing.T, c *camp) {
		id := c.ann.submit(t, shell("sleep 1000").with("pty", "yes"))[0]
		defer c.ann.cancel(t, id)
		c.ann.running(t, id)
		c.mustNotAttach(t, c.bob, id)
	}},
	{"learn from any answer what another runs", hidesEverywhere},
	{"learn from a launch that failed where another's files are", func(t *testing.T, c *camp) {
		secret := filepath.Join(c.ann.home, "canary-of-ann-that-is-not-there")
		id := c.ann.submit(t, shell("true").with("dir", secret))[0]
		if v := c.ann.ended(t, id); !strings.Contains(text(v.Reason), secret) {
			t.Fatalf("the owner is told %s", text(v.Reason))
		}
		c.mustTellNothing(t, id, "canary-of-ann")
	}},
	{"cancel ranges of ids, however wide", func(t *testing.T, c *camp) {
		id := c.annSleeps(t)
		for _, ids := range [][]string{{"0-999999999999999"}, {"1-" + id}, {id + "_0-9999"}, {id, id, id}} {
			c.cat.act(t, "cancel", map[string]any{"ids": ids}) // who has no job that the others need
			c.stillRuns(t, id)
		}
	}},
	{"cancel all, as everyone and in another's name", func(t *testing.T, c *camp) {
		id := c.annSleeps(t)
		for _, selection := range []map[string]any{
			{"all": true, "user": c.ann.name}, {"all": true, "user": "*"}, {"user": c.ann.name}, {"user": "*", "states": []string{"running"}},
			{"ids": []string{"all"}, "user": "*"}, {"ids": []string{"ALL"}, "user": c.ann.name},
		} {
			// Of cat again.
			for _, acted := range c.cat.act(t, "cancel", selection).Jobs {
				if acted.Done && c.root.show(t, acted.ID).User != c.cat.name {
					t.Errorf("%v: cancelled %+v", selection, acted)
				}
			}
			c.stillRuns(t, id)
		}
		c.mustBeDenied(t, c.cat, "cancel", id)
	}},
	{"cancel by another's job's name and state", func(t *testing.T, c *camp) {
		id := c.ann.submit(t, shell("sleep 1000").with("name", "annual"))[0]
		defer c.ann.cancel(t, id)
		c.ann.running(t, id)
		c.bobCancels(t, map[string]any{"name": "annual", "user": "*"})
		c.bobCancels(t, map[string]any{"name": "annual", "user": c.ann.name, "states": []string{"running"}})
		c.stillRuns(t, id)
	}},
	{"cancel another's array, whole and by task", func(t *testing.T, c *camp) {
		id := c.ann.submit(t, shell("sleep 1000").with("array", "0-3").with("hold", "yes"))[0]
		defer c.ann.cancel(t, id)
		for _, word := range []string{id, id + "_0", id + "_0-3"} {
			for _, acted := range c.bobCancels(t, map[string]any{"ids": []string{word}}) {
				if acted.Done {
					t.Errorf("%s: %+v", word, acted)
				}
			}
		}
		c.mustBeDenied(t, c.bob, "cancel", id+"_0")
	}},
	{"ask --dedup whether another runs a command", func(t *testing.T, c *camp) {
		job := shell("sleep 0 # canary").with("dedup", "yes").with("dir", "/")
		id := c.ann.submit(t, job)[0]
		c.ann.ended(t, id)
		if r := c.ann.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{job}}); r.status != http.StatusConflict {
			t.Fatalf("the owner is told %d: %s", r.status, r.body)
		}
		if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{job}}); r.status != http.StatusOK {
			t.Errorf("another is told %d: %s", r.status, r.body)
		}
	}},
	{"wait behind another's job to learn more than its end", func(t *testing.T, c *camp) {
		victim := c.ann.submit(t, shell("sleep 1000 # canary-of-ann").with("hold", "yes"))[0]
		id := c.bob.submit(t, shell("true").with("after", victim+":any"))[0]
		for _, r := range []reply{c.bob.mustAsk(t, "GET", "/v1/jobs/"+id, nil), c.bob.mustAsk(t, "GET", "/v1/jobs/"+id+"/why", nil)} {
			if strings.Contains(r.body, "canary-of-ann") {
				t.Error(r.body)
			}
		}
		c.ann.cancel(t, victim)
		if v := c.bob.ended(t, id); v.Outcome == nil || *v.Outcome != job.OK {
			t.Errorf("it ended %s", text(v.Outcome))
		}
	}},
	{"learn from the command line what another runs", func(t *testing.T, c *camp) {
		id := c.annCanary(t)
		array := c.ann.submit(t, shell("sleep 1000 # canary-of-ann").with("array", "0-1").with("hold", "yes").with("env", spec{"A": "canary-of-ann"}))[0]
		defer c.ann.cancel(t, array)
		for _, args := range [][]string{
			{"show", array}, {"show", "--json", array}, {"why", array}, {"logs", array}, {"list", "--tasks"}, {"list", "--format", "csv"}, {"list", "--format", "{{json .}}"},
			{"list", "--all"}, {"list", "--json", "--all"}, {"show", id}, {"show", "--json", id}, {"why", id}, {"history"}, {"history", "--json"},
			{"stats"}, {"gpus"}, {"gpus", "--json"}, {"logs", id}, {"cancel", id}, {"edit", id, "--priority", "1"}, {"attach", id}, {"wait", "--timeout", "1", id},
		} {
			if out, _ := c.bob.berth(args...); strings.Contains(out, "canary-of-ann") {
				t.Errorf("berth %s: %s", strings.Join(args, " "), out)
			}
		}
		c.stillRuns(t, id)
	}},
	{"pause or quarantine a card, let go of the driver, copy the store, see and revoke another's token", func(t *testing.T, c *camp) {
		var token api.Token
		c.ann.mustAsk(t, "POST", "/v1/tokens", spec{"name": "canary-of-ann"}).into(t, &token)
		for _, path := range []string{"/v1/gpus/0/pause", "/v1/gpus/0/resume", "/v1/backup"} {
			if r := c.bob.mustAsk(t, "POST", path, nil); r.status != http.StatusForbidden || len(r.body) > 1000 {
				t.Errorf("%s: status %d: %.200s", path, r.status, r.body)
			}
		}
		for path, body := range map[string]spec{"/v1/gpus/0/health": {"health": "quarantined", "reason": "mine"}, "/v1/gpus/release": {"for_s": 60, "force": true}} {
			if r := c.bob.mustAsk(t, "POST", path, body); r.status != http.StatusForbidden {
				t.Errorf("%s: status %d: %.200s", path, r.status, r.body)
			}
		}
		if r := c.bob.mustAsk(t, "GET", "/v1/tokens", nil); strings.Contains(r.body, token.ID) || strings.Contains(r.body, "canary-of-ann") {
			t.Errorf("tokens: %s", r.body)
		}
		if r := c.bob.mustAsk(t, "DELETE", "/v1/tokens/"+token.ID, nil); r.status != http.StatusNotFound {
			t.Errorf("revoke: status %d: %s", r.status, r.body)
		}
		if r := c.ann.mustAsk(t, "GET", "/v1/tokens", nil); !strings.Contains(r.body, token.ID) {
			t.Errorf("the owner's token is gone: %s", r.body)
		}
		for _, action := range []string{"gpu pause", "gpu resume", "gpu quarantine", "gpu release", "backup", "token revoke"} {
			c.mustBeDenied(t, c.bob, action, "")
		}
	}},
}

// annSleeps is a job of ann's that runs until the test is over.
func (c *camp) annSleeps(t *testing.T) string {
	t.Helper()
	id := c.ann.submit(t, shell("sleep 1000"))[0]
	t.Cleanup(func() { c.ann.cancel(t, id) })
	c.ann.running(t, id)
	return id
}

func (c *camp) annWaits(t *testing.T, key, value string) string {
	t.Helper()
	id := c.ann.submit(t, shell("true").with(key, value))[0]
	t.Cleanup(func() { c.ann.cancel(t, id) })
	return id
}

// annCanary is a job of ann's with a canary in everything that is hers to
// know.
func (c *camp) annCanary(t *testing.T) string {
	t.Helper()
	const canary = "canary-of-ann"
	dir := filepath.Join(c.ann.home, canary)
	testkit.Must(t, c.ann.as(func() error { return os.MkdirAll(dir, 0o700) }))
	id := c.ann.submitFrom(t, map[string]any{
		"dir": dir, "environ": []string{"CAPTURED=" + canary, "PATH=/usr/bin:/bin"},
		"jobs": []spec{shell("echo "+canary+"; sleep 1000").with("env", spec{"GIVEN": canary}).with("setup", "true "+canary).with("output", canary+"-%j.log").with("name", "plain").with("notify", "start:webhook:http://127.0.0.1:1/"+canary)},
	})[0]
	t.Cleanup(func() { c.ann.cancel(t, id) })
	c.ann.running(t, id)
	return id
}

func (c *camp) stillRuns(t *testing.T, id string) {
	t.Helper()
	if d := c.ann.show(t, id); d.State != job.Running || d.Stopping != "" {
		t.Errorf("job %s is %s %s", id, d.State, d.Stopping)
	}
}

func (c *camp) bobCancels(t *testing.T, selection map[string]any) []api.Acted {
	t.Helper()
	return c.bob.act(t, "cancel", selection).Jobs
}

// mustRefuseTo checks that bob cannot do it, and that the audit says he tried.
func (c *camp) mustRefuseTo(t *testing.T, action, id string) {
	t.Helper()
	for _, acted := range c.bob.act(t, action, map[string]any{"ids": []string{id}}).Jobs {
		if acted.Done {
			t.Errorf("%s: %+v", action, acted)
		}
	}
	c.mustBeDenied(t, c.bob, action, id)
}

// hidesEverywhere looks at a job through every answer there is, while it runs
// and when it is over.
func hidesEverywhere(t *testing.T, c *camp) {
	id := c.annCanary(t)
	if r := c.ann.mustAsk(t, "GET", "/v1/jobs/"+id, nil); strings.Count(r.body, "canary-of-ann") < 5 {
		t.Fatalf("the owner sees %s", r.body)
	}
	c.mustTellNothing(t, id, "canary-of-ann")
	c.ann.cancel(t, id)
	c.ann.ended(t, id)
	c.mustTellNothing(t, id, "canary-of-ann")
}

func (c *camp) mustTellNothing(t *testing.T, id, canary string) {
	t.Helper()
	for _, path := range []string{
		"/v1/status", "/v1/jobs?all=1&over=1&reasons=1&limit=10000", "/v1/jobs?id=" + id, "/v1/jobs?newest=1&over=1&user=" + c.ann.name,
		"/v1/jobs/" + id, "/v1/jobs/" + id + "/why", "/v1/gpus", "/v1/stats", "/v1/stats?user=" + c.ann.name, "/v1/replay", "/v1/tokens", "/v1/notify?secrets=true", "/openapi.json",
	} {
		if r := c.bob.mustAsk(t, "GET", path, nil); r.status != http.StatusOK || strings.Contains(r.body, canary) {
			t.Errorf("%s: status %d, %s", path, r.status, around(r.body, canary))
		}
	}
	r := c.bob.mustAsk(t, "POST", "/v1/jobs/wait", spec{"select": spec{"ids": []string{id}}, "timeout_s": 0.1})
	if r.status != http.StatusOK || strings.Contains(r.body, canary) {
		t.Errorf("wait: status %d, %s", r.status, around(r.body, canary))
	}
	for _, query := range []string{"?since=0&gpus=1", "?since=0&job=" + id, "?since=0&user=" + c.ann.name} {
		if said := c.bob.events(t, query, id); strings.Contains(said, canary) {
			t.Errorf("events%s: %s", query, around(said, canary))
		}
	}
}

func around(text, word string) string {
	at := strings.Index(text, word)
	return text[max(0, at-300):min(len(text), max(0, at)+100)]
}

// events reads the stream from its beginning until it has reported a job, and
// a little longer.
func (p *person) events(t *testing.T, query, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://berth/v1/events"+query, nil)
	testkit.Must(t, err)
	answer, err := p.http.Do(r)
	testkit.Must(t, err)
	defer answer.Body.Close()
	var said strings.Builder
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), fmt.Sprintf(`"id":%q`, id)) {
			time.AfterFunc(300*time.Millisecond, cancel)
		}
	}
	if !strings.Contains(said.String(), fmt.Sprintf(`"id":%q`, id)) {
		t.Errorf("the events never tell of job %s", id)
	}
	return said.String()
}
