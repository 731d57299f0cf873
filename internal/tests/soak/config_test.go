package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// TestConfigDamaged replaces the config file by half of one, by something else
// and by nothing while the daemon reads it again. It says what is wrong and goes
// on with what it has; the next daemon says it too, and does not start.
func TestConfigDamaged(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	file := filepath.Join(h.dir, "berth", "config.toml")
	testkit.Write(t, file, "[limits]\nrunning_jobs = 7\n")
	b := h.up()
	for _, text := range []string{"[limits\nrunn", "\x00\xff\xfe", strings.Repeat("# x\n", 1<<20), "[limits]\nrunning_jobs = \"x\"\n"} {
		testkit.Write(t, file, text)
		if _, said, status := h.cli("config", "reload"); status == 0 || !strings.Contains(said, file) || !strings.Contains(said, "hint: ") {
			t.Errorf("reload with %.20q ended with %d: %s", text, status, said)
		}
	}
	l := line{number: 1, cards: 1, alone: true, kind: "plain", code: 5}
	ids := h.submit(l)
	h.drain()
	h.mustEndAs(ids, []line{l})
	b.kill()
	second := h.serve()
	if second.wait() == 0 || !strings.Contains(second.stderr.String(), file) {
		t.Errorf("the next daemon said %q", second.stderr.String())
	}
	testkit.Must(t, os.Remove(file))
	b = h.up()
	h.mustEndAs(ids, []line{l})
	h.down(b)
	h.mustBeClean()
}

// TestNoInodesForLogs: a job whose log cannot be made says so, whether or not its
// supervisor has had a job before. Others run.
func TestNoInodesForLogs(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	logs := filepath.Join(h.dir, "small")
	h.small(logs, "size=1m,nr_inodes=10")
	for i := range 20 {
		_ = os.WriteFile(filepath.Join(logs, fmt.Sprint(i)), nil, 0o600) // until there are none
	}
	b := h.up()
	for range 2 {
		reply, err := api.Call(h.ctx(), h.client, api.Submit, api.SubmitRequest{Dir: h.dir, Environ: h.environ(), Jobs: []api.Spec{
			{Command: api.Command{Shell: "exit 4"}, Output: api.Text(logs + "/%j.log"), GPUs: "0"},
			{Command: api.Command{Shell: "exit 4"}, GPUs: "0"},
		}})
		testkit.Must(t, err)
		h.drain()
		if v := h.job(reply.Jobs[0].ID); outcome(v) != "launch" || !strings.Contains(text(v.Reason), "no space left on device") {
			t.Errorf("it ended %s: %s", outcome(v), text(v.Reason))
		}
		if v := h.job(reply.Jobs[1].ID); outcome(v) != "exit:4" {
			t.Errorf("another job ended %s", outcome(v))
		}
	}
	h.down(b)
	h.mustBeClean()
}
