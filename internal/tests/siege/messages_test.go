package siege

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// postbox is a file in a directory of everybody's, where commands and mail end up.
func (c *camp) postbox(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(c.dir, "post-"+name)
	testkit.Must(t, os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777))
	return filepath.Join(dir, "box")
}

// arrives waits for a text in a postbox.
func arrives(t *testing.T, box, what string) string {
	t.Helper()
	said := ""
	testkit.Eventually(t, "a message with "+what, func() bool {
		data, _ := os.ReadFile(box)
		said = string(data)
		return strings.Contains(said, what)
	})
	return said
}

// send asks for a test message and returns what came of it.
func (p *person) send(t *testing.T, request spec) (answer reply, results []api.NotifyResult) {
	t.Helper()
	r := p.mustAsk(t, "POST", "/v1/notify/send", request)
	if r.status == http.StatusOK {
		r.into(t, &results)
	}
	return r, results
}

var messageAttacks = []attack{
	{"have a message sent as root", func(t *testing.T, c *camp) {
		const who = `exec:echo uid $(id -u) $(id -G) $(grep CapEff /proc/self/status) "env $(env)" fds $(ls /proc/self/fd | tr '\n' ' ') end >>`
		for _, p := range []*person{c.bob, c.root} {
			box := c.postbox(t, "as-"+p.name)
			id := p.submit(t, shell("true").with("notify", "end:"+who+box))[0]
			p.ended(t, id)
			said := arrives(t, box, "end\n")
			want := "uid 65534 65534 "
			if p != c.root {
				groups, _ := p.sh("id -G")
				uid, _ := p.sh("id -u")
				want = "uid " + strings.TrimSpace(uid) + " " + strings.TrimSpace(groups) + " "
			}
			if !strings.HasPrefix(said, want) || !strings.Contains(said, "CapEff: 0000000000000000") || strings.Contains(said, rootCanary) {
				t.Errorf("%s: %s; expected %s", p.name, said, want)
			}
			if _, fds, _ := strings.Cut(said, "fds "); len(strings.Fields(fds)) > 7 {
				t.Errorf("%s: its command has these descriptors: %s", p.name, fds)
			}
		}
	}},
	{"be told by a command what only root can read", func(t *testing.T, c *camp) {
		_, results := c.bob.send(t, spec{"target": "exec:cat " + filepath.Join(c.stateDir, "audit.jsonl")})
		if len(results) != 1 || !strings.Contains(results[0].Error, "denied") {
			t.Errorf("%+v", results)
		}
	}},
	{"have a command for messages that is limited less than a job", func(t *testing.T, c *camp) {
		// Under a service manager the daemon is limited in another way than its users.
		pid, was := c.daemon.cmd.Process.Pid, unix.Rlimit{}
		adjust := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
		testkit.Must(t, unix.Prlimit(pid, unix.RLIMIT_MSGQUEUE, nil, &was))
		testkit.Must(t, unix.Prlimit(pid, unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: 12345, Max: was.Max}, nil), os.WriteFile(adjust, []byte("123"), 0))
		defer os.WriteFile(adjust, []byte("0"), 0)               // it may be gone
		defer unix.Prlimit(pid, unix.RLIMIT_MSGQUEUE, &was, nil) // likewise
		const look = "grep -v files /proc/self/limits; cat /proc/self/oom_score_adj; nice"
		want := c.bob.does(t, look)
		for _, p := range []*person{c.bob, c.root} {
			box := c.postbox(t, "limits-"+p.name)
			if _, results := p.send(t, spec{"target": "exec:(" + look + ") >" + box + "; cat /proc/self/cgroup >" + box + ".cgroup"}); len(results) != 1 || results[0].Error != "" {
				t.Fatalf("%+v", results)
			}
			if said := testkit.Read(t, box); said != want {
				t.Errorf("%s: a message's command has\n%s\na job has\n%s", p.name, said, want)
			}
			ours, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
			if theirs := testkit.Read(t, box+".cgroup"); theirs == string(ours) {
				t.Errorf("%s: it is in the daemon's cgroups: %s", p.name, theirs)
			}
		}
	}},
	{"live on after a command for messages", func(t *testing.T, c *camp) {
		for _, p := range []*person{c.bob, c.root} {
			mark := newMark()
			_, results := p.send(t, spec{"target": "exec:setsid sleep " + mark + " & (setsid sh -c 'setsid sleep " + mark + " & sleep " + mark + "' &); while [ $(pgrep -cf 'sleep " + mark + "') -lt 3 ]; do sleep 0.1; done"})
			if len(results) != 1 || results[0].Error != "" {
				t.Errorf("%+v", results)
			}
			noneLeft(t, "sleep\x00"+mark)
		}
	}},
	{"leave the daemon thousands of ended processes", func(t *testing.T, c *camp) {
		// Whether the command comes to its end in time does not matter.
		c.bob.send(t, spec{"target": "exec:i=0; while [ $i -lt 3000 ]; do (setsid /bin/true &); i=$((i+1)); done"})
		testkit.Eventually(t, "none is left", func() bool {
			zombies := 0
			for _, pid := range processes() {
				if strings.Contains(procFile(pid, "stat"), fmt.Sprintf(") Z %d ", c.daemon.cmd.Process.Pid)) {
					zombies++
				}
			}
			return zombies < 50 // other attacks have theirs, for a moment
		})
	}},
	{"learn where another's messages go", func(t *testing.T, c *camp) {
		const canary = "canary-of-messages"
		target := "webhook:http://127.0.0.1:1/" + canary
		c.ann.mustAsk(t, "PATCH", "/v1/notify", spec{"rules": []string{"start,end:" + target}, "new_key": true})
		t.Cleanup(func() { c.ann.mustAsk(t, "PATCH", "/v1/notify", spec{"rules": []string{}}) })
		id := c.ann.submit(t, shell("true").with("notify", "start,end:"+target))[0]
		c.ann.ended(t, id)
		if r := c.ann.mustAsk(t, "GET", "/v1/jobs/"+id, nil); !strings.Contains(r.body, canary) {
			t.Errorf("the owner sees %s", r.body)
		}
		testkit.Eventually(t, "a message that waits", func() bool {
			r := c.ann.mustAsk(t, "GET", "/v1/notify?secrets=true", nil)
			return strings.Contains(r.body, canary) && strings.Contains(r.body, "refused")
		})
		if r := c.ann.mustAsk(t, "GET", "/v1/notify", nil); strings.Contains(r.body, canary) {
			t.Errorf("a list that was not asked for secrets: %s", r.body)
		}
		c.mustTellNothing(t, id, canary)
		for _, p := range []*person{c.bob, c.dan} {
			for _, path := range []string{"/v1/notify", "/v1/notify?secrets=true", "/v1/jobs/" + id, "/v1/jobs?all=1&over=1"} {
				if r := p.mustAsk(t, "GET", path, nil); strings.Contains(r.body, canary) {
					t.Errorf("%s asks %s: %s", p.name, path, around(r.body, canary))
				}
			}
		}
		for _, file := range []string{"audit.jsonl", "berth.log"} {
			if text := testkit.Read(t, filepath.Join(c.stateDir, file)); strings.Contains(text, canary) {
				t.Errorf("%s: %s", file, around(text, canary))
			}
		}
	}},
	{"read another's target from a process list", func(t *testing.T, c *camp) {
		box := c.postbox(t, "list")
		const canary = "canary-of-a-target"
		id := c.ann.submit(t, shell("true").with("notify", "end:exec:echo runs >"+box+"; sleep 20; : "+canary))[0]
		c.ann.ended(t, id)
		arrives(t, box, "runs")
		seen, _ := c.bob.sh("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
		if strings.Contains(seen, canary) || !strings.Contains(seen, "/dev/fd/3") {
			t.Errorf("%s", around(seen, canary))
		}
	}},
	{"change where another's messages go", func(t *testing.T, c *camp) {
		id := c.annWaits(t, "hold", "yes")
		for _, p := range []*person{c.bob, c.dan} {
			if r := p.mustAsk(t, "PATCH", "/v1/jobs/"+id, spec{"set": spec{"notify": "end:exec:id"}}); r.status != http.StatusForbidden {
				t.Errorf("%s: status %d: %s", p.name, r.status, r.body)
			}
			if r := p.mustAsk(t, "PATCH", "/v1/jobs/"+id, spec{"unset": []string{"notify"}}); r.status != http.StatusForbidden {
				t.Errorf("%s: status %d: %s", p.name, r.status, r.body)
			}
			c.mustBeDenied(t, p, "edit", id)
		}
	}},
	{"have more of another's job told than anybody sees", func(t *testing.T, c *camp) {
		id := c.ann.submit(t, shell("true").with("dir", filepath.Join(c.ann.home, "canary-of-a-launch")))[0]
		c.ann.ended(t, id)
		box := c.postbox(t, "launch")
		if r, _ := c.bob.send(t, spec{"target": "exec:cat >>" + box, "jobs": []string{id}}); r.status != http.StatusOK {
			t.Fatalf("status %d: %s", r.status, r.body)
		}
		if said := arrives(t, box, "could not be started"); strings.Contains(said, "canary-of-a-launch") {
			t.Errorf("%s", said)
		}
	}},
	{"write a header into a mail", func(t *testing.T, c *camp) {
		for _, target := range []string{"mailto:a@b.c\r\nBcc: eve@example.org", "mailto:a@b.c\nBcc: eve@example.org", "mailto:-oQ/tmp@b.c", "mailto:a@b.c,eve@example.org", "mailto:<a@b.c> x@y.z"} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true").with("notify", target)}}); r.status != http.StatusBadRequest {
				t.Errorf("%q: status %d: %s", target, r.status, r.body)
			}
		}
		for i, name := range []string{"x\u2028Bcc: eve@example.org", "x\u0085Bcc: eve@example.org", "=?utf-8?q?x=0d=0aBcc:_eve@example.org?=", "x%0d%0aBcc: eve@example.org", "\u202ex"} {
			r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"dir": c.bob.home, "jobs": []spec{shell("true").with("name", name).with("notify", "mailto:bob"+string(rune('a'+i))+"@example.org")}})
			if r.status != http.StatusOK {
				continue // the name is refused
			}
			said := arrives(t, c.mails, "To: bob"+string(rune('a'+i))+"@example.org")
			for line := range strings.Lines(said) {
				if strings.HasPrefix(strings.ToLower(line), "bcc:") {
					t.Errorf("%q: %s", name, said)
				}
			}
		}
	}},
	{"have the daemon asked by its own messages", func(t *testing.T, c *camp) {
		for _, url := range []string{"http://" + c.tcp + "/v1/backup", "http://" + c.tcp + "/v1/jobs", "http://" + c.scrapes + "/v1/reload"} {
			_, results := c.bob.send(t, spec{"target": "webhook:" + url})
			if len(results) != 1 || !strings.Contains(results[0].Error, "answered 4") {
				t.Errorf("%s: %+v", url, results)
			}
		}
	}},
	{"ask for messages without bounds", func(t *testing.T, c *camp) {
		long := "webhook:https://example.org/" + strings.Repeat("x", 5000)
		many := make([]string, 9)
		for i := range many {
			many[i] = "exec:" + strings.Repeat("x", i+1)
		}
		for _, bad := range []spec{{"rules": []string{long}}, {"rules": many}, {"rules": []string{"end:exec:a\x00b"}}, {"rules": []string{"end:exec:a\nb"}}} {
			if r := c.cat.mustAsk(t, "PATCH", "/v1/notify", bad); r.status != http.StatusBadRequest {
				t.Errorf("%.100v: status %d: %.200s", bad, r.status, r.body)
			}
		}
		var ids []string
		for range 20_000 {
			ids = append(ids, "1")
		}
		if r, _ := c.cat.send(t, spec{"target": "exec:true", "jobs": ids}); r.status < 400 || r.status >= 500 {
			t.Errorf("status %d: %.200s", r.status, r.body)
		}
	}},
}
