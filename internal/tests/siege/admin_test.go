package siege

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
)

// Administrators look after the queue. That must not make them root, or
// anybody else.
var adminAttacks = []attack{
	{"administer, which is allowed", func(t *testing.T, c *camp) {
		id := c.annSleeps(t)
		var done api.ActReply
		c.dan.mustAsk(t, "POST", "/v1/jobs/act", spec{"action": "cancel", "select": spec{"ids": []string{id}}}).into(t, &done)
		if len(done.Jobs) != 1 || !done.Jobs[0].Done {
			t.Errorf("%+v", done)
		}
		waits := c.annWaits(t, "hold", "yes")
		if r := c.dan.mustAsk(t, "PATCH", "/v1/jobs/"+waits, spec{"set": spec{"priority": "7", "timeout": "1h"}}); r.status != http.StatusOK {
			t.Errorf("priority: status %d: %s", r.status, r.body)
		}
		if c.ann.show(t, waits).Priority != 7 {
			t.Error("the priority is as it was")
		}
	}},
	{"have another's job run an administrator's command", func(t *testing.T, c *camp) {
		for _, p := range []*person{c.root, c.ann} {
			mark := filepath.Join(c.dan.home, "ran-as-"+p.name)
			id := p.submitFrom(t, map[string]any{"dir": "/", "jobs": []spec{shell("true").with("hold", "yes")}})[0]
			for _, set := range []spec{
				{"command": "id -u >" + mark}, {"setup": "id -u >" + mark}, {"env": spec{"LD_PRELOAD": "/x"}}, {"venv": c.dan.home}, {"conda": "x"},
				{"dir": c.dan.home}, {"output": "/etc/cron.d/x"}, {"priority": "1", "command": []string{"id"}},
			} {
				if r := c.dan.mustAsk(t, "PATCH", "/v1/jobs/"+id, spec{"set": set}); r.status != http.StatusForbidden || !strings.Contains(r.body, "only its owner and root") {
					t.Errorf("%s's job, %v: status %d: %.200s", p.name, set, r.status, r.body)
				}
			}
			c.mustBeDenied(t, c.dan, "edit", id)
			p.act(t, "release", map[string]any{"ids": []string{id}})
			if v := p.ended(t, id); v.Outcome == nil || *v.Outcome != job.OK {
				t.Errorf("it ended %s", text(v.Outcome))
			}
			if _, err := os.Stat(mark); err == nil {
				t.Errorf("dan's command ran as %s", p.name)
			}
		}
	}},
	{"type into another's terminal", func(t *testing.T, c *camp) {
		for _, p := range []*person{c.root, c.ann} {
			id := p.submitFrom(t, map[string]any{"dir": "/", "jobs": []spec{shell("sh").with("pty", "yes")}})[0]
			defer p.cancel(t, id)
			p.running(t, id)
			c.mustNotAttach(t, c.dan, id)
		}
	}},
	{"administer without being asked to", func(t *testing.T, c *camp) {
		r := c.bob.mustAsk(t, "GET", "/v1/status", nil)
		if strings.Contains(r.body, `"admin":true`) {
			t.Error(r.body)
		}
		// Saying so in a process of one's own changes nothing.
		out, _ := c.bob.sh("newgrp " + account(adminGroup) + " </dev/null; sg " + account(adminGroup) + " -c 'id -Gn'; true")
		if strings.Contains(out, account(adminGroup)+"\n") && !strings.Contains(out, "denied") && !strings.Contains(out, "assword") {
			t.Errorf("this host lets anybody into a group: %s", out)
		}
	}},
}
