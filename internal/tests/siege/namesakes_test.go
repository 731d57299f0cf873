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

func init() {
	othersAttacks = append(othersAttacks, namesakeAttacks...)
	limitAttacks = append(limitAttacks, patternAttacks...)
}

// Names are free for everybody to choose.
var namesakeAttacks = []attack{
	{"be taken for another's job of the same name", func(t *testing.T, c *camp) {
		name := "twin-" + newMark()
		own := c.ann.submit(t, shell("echo of-ann; sleep 1000").with("name", name))[0]
		defer c.ann.cancel(t, own)
		c.ann.running(t, own)
		other := c.bob.submit(t, shell("echo of-bob; sleep 1000").with("name", name))[0] // the newest
		defer c.bob.cancel(t, other)
		c.bob.running(t, other)
		if r := c.ann.mustAsk(t, "GET", "/v1/jobs/"+name, nil); r.status != http.StatusOK || !strings.Contains(r.body, fmt.Sprintf(`"id":%q`, own)) {
			t.Errorf("show: status %d: %.300s", r.status, r.body)
		}
		testkit.Eventually(t, "ann reads a log by its name", func() bool {
			r := c.ann.mustAsk(t, "GET", "/v1/jobs/"+name+"/log", nil)
			if r.status != http.StatusOK || strings.Contains(r.body, "of-bob") {
				t.Fatalf("status %d: %s", r.status, r.body)
			}
			return r.body == "of-ann\n"
		})
		next := c.ann.submit(t, shell("true").with("after", name+":any"))[0]
		defer c.ann.cancel(t, next)
		if d := c.ann.show(t, next); !strings.Contains(text(d.Reason), "job "+own+" ") {
			t.Errorf("it waits: %s", text(d.Reason))
		}
		for _, acted := range c.ann.act(t, "cancel", map[string]any{"ids": []string{name}}).Jobs {
			if acted.ID != own {
				t.Errorf("cancelled with it: %+v", acted)
			}
		}
		c.ann.mustEnd(t, own, job.WasCancelled)
		c.ann.mustEnd(t, next, job.OK)
		if d := c.bob.show(t, other); d.State != job.Running {
			t.Errorf("bob's is %s", d.State)
		}
	}},
	{"have a name that means other jobs", func(t *testing.T, c *camp) {
		own := c.cat.submit(t, shell("true").with("hold", "yes"))[0]
		defer c.cat.cancel(t, own)
		for _, name := range []string{own, own + "_0", "1-" + own, "all", "ALL", "@", "@~1", "*", "?", "held", "-", "--all", "~", own + "," + own} {
			r := c.dan.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true").with("hold", "yes").with("name", name)}})
			if r.status == http.StatusOK {
				var s api.SubmitReply
				r.into(t, &s)
				defer c.dan.cancel(t, s.Jobs[0].ID)
			}
		}
		// cat, who has no job that the others need, means her own.
		if d := c.cat.show(t, own); d.ID != own || d.User != c.cat.name {
			t.Errorf("job %s is %s of %s", own, d.ID, d.User)
		}
		for _, word := range []string{own, "*", "?", "1-" + own} {
			for _, acted := range c.cat.act(t, "hold", map[string]any{"ids": []string{word}}).Jobs {
				if acted.Done && c.root.show(t, acted.ID).User != c.cat.name {
					t.Errorf("%s: %+v", word, acted)
				}
			}
		}
	}},
	{"change another's ended job and run it again", func(t *testing.T, c *camp) {
		id := c.ann.submitFrom(t, map[string]any{"dir": "/", "jobs": []spec{shell("echo first")}})[0]
		c.ann.mustEnd(t, id, job.OK)
		for _, p := range []*person{c.bob, c.dan} {
			mark := filepath.Join(p.home, "ran-as-ann")
			testkit.Must(t, os.Chmod(p.home, 0o777))
			for _, set := range []spec{
				{"command": "id >" + mark}, {"setup": "id >" + mark}, {"env": spec{"LD_PRELOAD": "/x"}}, {"output": mark}, {"dir": p.home}, {"venv": p.home},
				{"priority": "1", "command": []string{"/usr/bin/touch", mark}},
			} {
				r := p.mustAsk(t, "POST", "/v1/jobs/act", spec{"action": "requeue", "select": spec{"ids": []string{id}}, "changes": spec{"set": set}})
				if strings.Contains(r.body, `"done":true`) {
					t.Errorf("%s, %v: %s", p.name, set, r.body)
				}
			}
			r := p.mustAsk(t, "POST", "/v1/jobs/act", spec{"action": "requeue", "select": spec{"ids": []string{id}}, "changes": spec{"unset": []string{"command", "dir", "env"}}})
			if strings.Contains(r.body, `"done":true`) {
				t.Errorf("%s unsets: %s", p.name, r.body)
			}
			testkit.Must(t, os.Chmod(p.home, 0o700))
			if _, err := os.Stat(mark); err == nil {
				t.Errorf("%s's command ran as ann", p.name)
			}
		}
		if d := c.ann.show(t, id); d.Attempt != 1 || d.State != job.Finished {
			t.Errorf("it is %s, attempt %d", d.State, d.Attempt)
		}
	}},
}

var patternAttacks = []attack{
	{"select names with patterns that take long to match", func(t *testing.T, c *camp) {
		long := strings.Repeat("a", 128)
		jobs := make([]spec, 100)
		for i := range jobs {
			jobs[i] = shell("true").with("name", long).with("hold", "yes")
		}
		ids := c.bob.submit(t, jobs...)
		over := ids[:50]
		c.bob.cancel(t, over...)
		defer c.bob.cancel(t, ids...)
		patterns := []string{strings.Repeat("*a", 60) + "*b", strings.Repeat("*?", 60) + "b", strings.Repeat("a*", 60) + "b", strings.Repeat("*", 120) + "b", strings.Repeat("[", 100) + "*"}
		for _, pattern := range patterns {
			r, err := c.bob.askWith("GET", "/v1/jobs", nil, func(r *http.Request) {
				q := r.URL.Query()
				q.Set("name", pattern)
				q.Set("over", "1")
				r.URL.RawQuery = q.Encode()
			})
			testkit.Must(t, err)
			var page struct{ Total int }
			r.into(t, &page)
			if page.Total != 0 {
				t.Errorf("%.20s selects %d jobs", pattern, page.Total)
			}
		}
		// As many as one request takes.
		c.bob.mustAsk(t, "POST", "/v1/jobs/act", spec{"action": "release", "select": spec{"ids": slices.Repeat(patterns[:4], 25)}})
		c.ann.does(t, "true")
	}},
}
