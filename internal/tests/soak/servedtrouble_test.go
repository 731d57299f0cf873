package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// small mounts a file system that is soon full.
func (h *host) small(dir, options string) {
	h.t.Helper()
	if os.Getuid() != 0 {
		h.t.Skip("mounting a small file system needs root")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := syscall.Mount("soak", dir, "tmpfs", 0, options+",mode=0755"); err != nil {
		h.t.Skipf("cannot mount a small file system: %v", err)
	}
	h.t.Cleanup(func() {
		h.sweep()
		syscall.Unmount(dir, syscall.MNT_DETACH)
	})
}

// TestStateDiskFull fills the disk under the daemon's state. Running jobs go
// on and their ends are kept, new ones are refused at once with a reason, and
// all is well again when there is room.
func TestStateDiskFull(t *testing.T) {
	h := newHost(t, 2)
	h.small(h.logDir, "size=8m")
	b := h.up()
	running := []line{tenthUntil(1, 0), tenthUntil(2, 7)}
	stopped := line{number: 3, block: "gpus=0.1 grace=0.2s", cards: 1, kind: "stubborn", hold: forever, ends: "cancelled"}
	queued := line{number: 4, block: "gpus=2", cards: 2, alone: true, kind: "plain", code: 3}
	lines := append(running, stopped, queued)
	ids := h.submit(lines...)
	testkit.Eventually(t, "three run", func() bool { return h.count("ready") == 3 })
	h.fillDisk()

	taken, refusal := h.submitUntilRefused()
	if !strings.Contains(refusal.Error(), "full") {
		t.Errorf("it was refused with %v", refusal)
	}
	h.settingsAreRefused()
	h.letGo("both did their work", func() bool { return h.wrote("end 1 1 0") && h.wrote("end 2 1 7") })
	testkit.Never(t, 500*time.Millisecond, "a job starts or the daemon gives up", func() bool {
		return h.wrote("start 4") || !b.running()
	})
	status, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
	if err != nil || !strings.Contains(status.Blocked, "full") {
		t.Errorf("the daemon should say what is wrong; status says %q: %v", status.Blocked, err)
	}
	// There is room for ends and cancellations.
	testkit.Eventually(t, "both ends are recorded", func() bool {
		return outcome(h.job(ids[0])) == "ok" && outcome(h.job(ids[1])) == "exit:7"
	})
	if _, err := api.Call(h.ctx(), h.client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: ids[2:3]}}); err != nil {
		t.Errorf("a cancel on a full disk is answered %v", err)
	}
	testkit.Eventually(t, "the cancelled job is gone", func() bool { return outcome(h.job(ids[2])) == "cancelled" })

	begun := time.Now()
	if err := os.Remove(filepath.Join(h.logDir, "ballast")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it takes jobs again", func() bool {
		reply, err := api.Call(h.ctx(), h.client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{{Command: api.Command{Shell: "exit 5"}, GPUs: "0"}}, Dir: "/"})
		if err == nil {
			taken = append(taken, reply.Jobs[0].ID)
		}
		return err == nil
	})
	t.Logf("healed within %s", since(begun))
	h.drain()
	h.mustEndAs(append(ids[:2:2], ids[3]), append(running[:2:2], queued))
	if v := h.job(ids[2]); outcome(v) != "cancelled" {
		t.Errorf("the cancelled job ended %q", outcome(v))
	}
	h.mustHaveTaken(taken, 5+len(ids))
	h.mustBeSound(lines)
	h.down(b)
	h.mustBeClean()
}

// settingsAreRefused changes a user's settings until the disk is too full for that,
// which the answer says.
func (h *host) settingsAreRefused() {
	h.t.Helper()
	var err error
	for i := 0; err == nil && i < 2000; i++ {
		rules := []string{fmt.Sprintf("end:webhook:http://127.0.0.1:1/%d%s", i, strings.Repeat("x", 500))}
		_, err = api.Call(h.ctx(), h.client, api.SetNotify, api.NotifyRequest{Rules: &rules})
	}
	if err == nil || !strings.Contains(err.Error(), "full") {
		h.t.Errorf("rules for messages are refused with %v", err)
	}
	if _, err := api.Call(h.ctx(), h.client, api.NewToken, api.TokenRequest{}); err != nil && !strings.Contains(err.Error(), "full") {
		h.t.Errorf("a token is refused with %v", err)
	}
}

func isUnable(err error) bool { return problem.KindOf(err) == problem.Unable }

// submitUntilRefused submits until the disk is too full for one more. Nobody
// makes room meanwhile, so that an answer that waited for it would not come.
func (h *host) submitUntilRefused() (taken []string, refusal error) {
	h.t.Helper()
	for i := range 2000 {
		request := api.SubmitRequest{Dir: "/", Environ: []string{fmt.Sprintf("LARGE=%d%s", i, strings.Repeat("x", 64<<10))}}
		request.Jobs = []api.Spec{{Command: api.Command{Shell: "exit 5"}, GPUs: "0", Hold: "true"}}
		reply, err := api.Call(h.ctx(), h.client, api.Submit, request)
		if err != nil {
			if !isUnable(err) {
				h.t.Errorf("refused with %v", err)
			}
			return taken, err
		}
		taken = append(taken, reply.Jobs[0].ID)
	}
	h.t.Fatal("a full disk takes any number of jobs")
	return nil, nil
}

// mustHaveTaken checks that what was acknowledged is there, and what was
// refused is not.
func (h *host) mustHaveTaken(taken []string, most int) {
	h.t.Helper()
	jobs := h.all()
	for _, id := range taken {
		if _, there := jobs[id]; !there {
			h.t.Errorf("job %s was acknowledged and is lost", id)
		}
	}
	if len(jobs) > len(taken)+most {
		h.t.Errorf("%d jobs are there, %d were acknowledged", len(jobs), len(taken)+most)
	}
}

// TestLogDiskFull: a job that cannot write its log is that job's problem.
func TestLogDiskFull(t *testing.T) {
	h := newHost(t, 1)
	logs := filepath.Join(h.dir, "small")
	h.small(logs, "size=64k")
	b := h.up()
	reply, err := api.Call(h.ctx(), h.client, api.Submit, api.SubmitRequest{Dir: h.dir, Environ: h.environ(), Jobs: []api.Spec{
		{Command: api.Command{Shell: "head -c 1000000 /dev/zero || exit 9"}, Output: api.Text(logs + "/%j.log"), GPUs: "0"},
		{Command: api.Command{Shell: "exit 4"}, GPUs: "0"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.drain()
	for i, want := range []string{"exit:9", "exit:4"} {
		if v := h.job(reply.Jobs[i].ID); outcome(v) != want {
			t.Errorf("job %s ended %q, want %s", v.ID, outcome(v), want)
		}
	}
	h.down(b)
	h.mustBeClean()
}

// TestNoInodesLeft: where no more files can be made, nothing new starts until
// they can.
func TestNoInodesLeft(t *testing.T) {
	h := newHost(t, 2)
	h.small(h.logDir, "size=64m,nr_inodes=120")
	b := h.up()
	ids := h.submit(tenthUntil(1, 7))
	testkit.Eventually(t, "it runs", func() bool { return h.wrote("ready 1 1") })
	var hoard []string
	for {
		path := filepath.Join(h.logDir, fmt.Sprintf("hoard%d", len(hoard)))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			break
		}
		hoard = append(hoard, path)
	}
	second := line{number: 2, block: "gpus=0.1", cards: 1, kind: "plain", code: 3}
	ids = append(ids, h.submit(second)...)
	h.letGo("the first ends", func() bool { return h.job(ids[0]).State.Terminal() })
	testkit.Never(t, 500*time.Millisecond, "the second is over or the daemon gives up", func() bool {
		return h.job(ids[1]).State.Terminal() || !b.running()
	})
	begun := time.Now()
	for _, path := range hoard {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	h.drain()
	t.Logf("healed within %s", since(begun))
	h.mustEndAs(ids, []line{tenthUntil(1, 7), second})
	h.down(b)
	h.mustBeClean()
}

// TestKilledOnAFullDisk: a daemon that dies while its disk is full loses no
// end that came meanwhile.
func TestKilledOnAFullDisk(t *testing.T) {
	h := newHost(t, 2)
	h.small(h.logDir, "size=8m")
	b := h.up()
	lines := []line{tenthUntil(1, 0), tenthUntil(2, 7)}
	ids := h.submit(lines...)
	testkit.Eventually(t, "both run", func() bool { return h.count("ready") == 2 })
	h.fillDisk()
	h.letGo("both did their work", func() bool { return h.wrote("end 1 1 0") && h.wrote("end 2 1 7") })
	b.kill()
	// It may or may not be able to start like this, but says which.
	second := h.serve()
	testkit.Eventually(t, "the next one answers or says why not", func() bool {
		_, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
		return err == nil || !second.running()
	})
	if !second.running() {
		second.mustEnd(1)
		if said := second.stderr.String(); !strings.Contains(said, "full") && !strings.Contains(said, "no space") || !strings.Contains(said, "hint: ") {
			t.Errorf("it said %q", said)
		}
	}
	second.kill()
	if err := os.Remove(filepath.Join(h.logDir, "ballast")); err != nil {
		t.Fatal(err)
	}
	b = h.up()
	h.drain()
	h.mustEndAs(ids, lines)
	h.mustBeSound(lines)
	h.down(b)
	h.mustBeClean()
}

// TestReadOnlyState: a daemon that cannot write says so and does not start.
func TestReadOnlyState(t *testing.T) {
	h := newHost(t, 1)
	h.small(h.logDir, "size=8m")
	b := h.up()
	id := h.submit(line{number: 1, block: "gpus=0", kind: "plain", code: 3})[0]
	h.drain()
	h.down(b)
	if err := syscall.Mount("soak", h.logDir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	b = h.serve()
	b.mustEnd(1)
	if said := b.stderr.String(); !strings.Contains(said, "read-only") || !strings.Contains(said, "hint: ") || strings.Count(said, "\n") > 2 {
		t.Errorf("it said %q", said)
	}
	if err := syscall.Mount("soak", h.logDir, "tmpfs", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	b = h.up()
	if v := h.job(id); outcome(v) != "exit:3" || v.State != job.Failed {
		t.Errorf("job %s is %s %s", id, v.State, outcome(v))
	}
	h.down(b)
	h.mustBeClean()
}
