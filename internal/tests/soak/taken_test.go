package soak

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// takes are files of the state directory that somebody removes or damages under
// running jobs, and what the next daemon must make of each job.
var takes = []struct {
	name string
	take func(h *host, token string) // of one supervisor
	want string                      // the outcome after a restart
}{
	{"its directory", func(h *host, token string) { h.remove("keep", token) }, "lost"},
	{"the directory of all supervisors", func(h *host, _ string) { h.remove("keep") }, "lost"},
	{"everything in its directory", func(h *host, token string) {
		h.remove("keep", token)
		testkit.Must(h.t, os.Mkdir(filepath.Join(h.logDir, "keep", token), 0o700))
	}, "lost"},
	{"its record", func(h *host, token string) { h.remove("keep", token, "record") }, "exit:3"},
	{"its lock and its record", func(h *host, token string) {
		h.remove("keep", token, "record")
		h.remove("keep", token, "lock")
	}, "lost"},
	{"its lock", func(h *host, token string) { h.remove("keep", token, "lock") }, "lost"},
	{"its socket", func(h *host, token string) { h.remove("keep", token, "sock") }, "exit:3"},
	{"its copy of the job", func(h *host, token string) { h.remove("keep", token, "job") }, "exit:3"},
	{"half of its record", func(h *host, token string) {
		testkit.Must(h.t, os.Truncate(filepath.Join(h.logDir, "keep", token, "record"), 2048))
	}, "exit:3"},
	{"the sense of its record", func(h *host, token string) {
		path := filepath.Join(h.logDir, "keep", token, "record")
		testkit.Must(h.t, os.WriteFile(path, []byte(strings.Repeat("garbage\n", 1024)), 0o600))
	}, "exit:3"},
}

func (h *host) remove(names ...string) {
	h.t.Helper()
	testkit.Must(h.t, os.RemoveAll(filepath.Join(append([]string{h.logDir}, names...)...)))
}

// TestSupervisorFilesTaken removes or damages files of a supervisor under its
// job. While the daemon lives the job ends as if nothing had happened. A daemon
// that finds it so later may not know how it ended, but then nothing of it is
// left before its card goes to another.
func TestSupervisorFilesTaken(t *testing.T) {
	for _, c := range takes {
		t.Run(c.name+", the daemon lives", func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 1)
			b := h.up()
			lines := []line{{number: 1, cards: 1, alone: true, kind: "gated", code: 3}, {number: 2, cards: 1, alone: true, kind: "until", code: 5}}
			ids := h.submit(lines...)
			testkit.Eventually(t, "it runs", func() bool { return h.wrote("ready 1 1") })
			c.take(h, h.onlyKeep())
			h.openGate()
			testkit.Eventually(t, "the next one runs", func() bool { return h.wrote("ready 2 1") })
			b.kill() // the next one is under a supervisor that a later daemon finds
			b = h.up()
			h.letGo("all end", func() bool { return h.live() == 0 })
			h.mustEndAs(ids, lines)
			h.mustBeSound(lines)
			h.down(b)
			h.mustBeClean()
		})
		t.Run(c.name+", the daemon is killed", func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 1)
			b := h.up()
			lines := []line{{number: 1, cards: 1, alone: true, kind: "gated", code: 3}, {number: 2, cards: 1, alone: true, kind: "plain", code: 5}}
			ids := h.submit(lines...)
			testkit.Eventually(t, "it runs", func() bool { return h.wrote("ready 1 1") })
			b.kill()
			c.take(h, h.onlyKeep())
			b = h.up()
			if c.want != "lost" {
				h.openGate()
			}
			h.drain()
			if v := h.job(ids[0]); outcome(v) != c.want || v.Attempt != 1 {
				t.Errorf("it ended %q in attempt %d, want %s", outcome(v), v.Attempt, c.want)
			}
			if v := h.job(ids[1]); outcome(v) != "exit:5" || v.State != job.Failed {
				t.Errorf("the next one ended %q", outcome(v))
			}
			h.mustBeSound(lines)
			h.down(b)
			h.mustBeClean()
		})
	}
}

// onlyKeep is the token of the supervisor that holds a job.
func (h *host) onlyKeep() string {
	h.t.Helper()
	for _, p := range h.jobProcesses("") {
		token, _, _ := strings.Cut(p.token, ":")
		return token
	}
	h.t.Fatal("no job runs")
	return ""
}
