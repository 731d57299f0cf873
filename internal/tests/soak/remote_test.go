package soak

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// far submits a job that works and writes its log on a remote disk. The answer
// may never come while the disk hangs.
func (h *host) far(dir, command string) <-chan string {
	id := make(chan string, 1)
	go func() {
		reply, err := api.Call(h.ctx(), h.client, api.Submit, api.SubmitRequest{Dir: dir, Environ: h.environ(), Jobs: []api.Spec{
			{Command: api.Command{Shell: command}, Output: api.Text(filepath.Join(dir, "%j.log")), GPUs: "1"},
		}})
		if err != nil || len(reply.Jobs) != 1 {
			id <- ""
			return
		}
		id <- reply.Jobs[0].ID
	}()
	return id
}

// TestRemoteDiskHangs lets the disk hang on which jobs work and write their
// logs. Everybody else's jobs go on being taken, started and ended, and the
// others come to their end when the disk is back.
func TestRemoteDiskHangs(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(map[bool]string{true: "shared", false: "private"}[shared], func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 8) // one user may have half of them
			if shared {
				h.open(8)
			}
			dir := filepath.Join(h.dir, "far")
			disk := newRemoteDisk(t, dir)
			b := h.up()
			before := <-h.far(dir, `echo first words; echo ready 1 1 >> $SOAK/ledger; while ! [ -e "$SOAK/gate" ]; do sleep 0.02; done; echo last words; exit 3`)
			testkit.Eventually(t, "it runs", func() bool { return h.wrote("ready 1 1") })
			disk.is("hang")
			during := h.far(dir, "exit 4")
			for _, verb := range []string{"logs " + before, "logs -f " + before, "show " + before, "list", "why " + before} {
				c := h.begin(strings.Fields(verb)...)
				t.Cleanup(func() { c.kill() })
			}
			for n := range 5 {
				id := h.submit(line{number: 10 + n, cards: 1, kind: "plain", code: 5})[0]
				h.becomes(id, job.Failed)
				if v := h.job(id); outcome(v) != "exit:5" {
					t.Errorf("another job ended %s", outcome(v))
				}
			}
			h.openGate()
			testkit.Never(t, 500*time.Millisecond, "a job that hangs is over", func() bool { return h.job(before).State.Terminal() })
			disk.is("well")
			h.becomes(before, job.Failed)
			if v := h.job(before); outcome(v) != "exit:3" {
				t.Errorf("the job that ran ended %s", outcome(v))
			}
			if id := <-during; id != "" {
				h.becomes(id, job.Failed)
				if v := h.job(id); outcome(v) != "exit:4" {
					t.Errorf("the job that came meanwhile ended %s: %s", outcome(v), text(v.Reason))
				}
			}
			if log := testkit.Read(t, filepath.Join(dir, before+".log")); log != "first words\nlast words\n" {
				t.Errorf("its log is %q", log)
			}
			h.down(b)
			testkit.Eventually(t, "the commands that looked at the job end", func() bool { return len(h.processes()) == 0 })
			h.mustBeClean()
		})
	}
}

// TestRemoteDiskStale: a job whose files are gone for good fails with the reason,
// and nobody else notices.
func TestRemoteDiskStale(t *testing.T) {
	t.Parallel()
	h := newHost(t, 4)
	dir := filepath.Join(h.dir, "far")
	disk := newRemoteDisk(t, dir)
	b := h.up()
	before := <-h.far(dir, `echo ready 1 1 >> $SOAK/ledger; while ! [ -e "$SOAK/gate" ]; do sleep 0.02; done; echo last words || exit 3; exit 9`)
	testkit.Eventually(t, "it runs", func() bool { return h.wrote("ready 1 1") })
	disk.is("stale")
	during := <-h.far(dir, "exit 4")
	h.openGate()
	h.becomes(before, job.Failed)
	if v := h.job(before); !strings.HasPrefix(outcome(v), "exit:") {
		t.Errorf("the job that ran ended %s", outcome(v))
	}
	h.becomes(during, job.Failed)
	if v := h.job(during); outcome(v) != "launch" || !strings.Contains(text(v.Reason), "stale file handle") {
		t.Errorf("the job that came meanwhile ended %s: %s", outcome(v), text(v.Reason))
	}
	disk.is("well")
	h.down(b)
	h.mustBeClean()
}
