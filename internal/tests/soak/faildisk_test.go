package soak

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// beforeTheDiskFails starts a daemon with three running jobs and one that waits
// for them.
func (h *host) beforeTheDiskFails() (b *berth, ids []string, lines []line) {
	h.t.Helper()
	lines = []line{
		tenthUntil(1, 0), tenthUntil(2, 7),
		{number: 3, block: "gpus=0.1 grace=0.2s", cards: 1, kind: "stubborn", hold: forever, ends: "cancelled"},
		{number: 4, block: "gpus=1", cards: 1, alone: true, kind: "plain", code: 3},
	}
	b = h.up()
	ids = h.submit(lines...)
	testkit.Eventually(h.t, "three run", func() bool { return h.count("ready") == 3 })
	return b, ids, lines
}

// mustServe checks what a daemon does whose disk takes no writes: it answers,
// stops jobs, starts and accepts none, and says why.
func (h *host) mustServe(b *berth, ids []string, why string) {
	h.t.Helper()
	if _, err := api.Call(h.ctx(), h.client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{{Command: api.Command{Shell: "true"}, GPUs: "0"}}, Dir: "/"}); !isUnable(err) || strings.Contains(err.Error(), "full") {
		h.t.Errorf("a new job is answered %v", err)
	}
	_, said, _ := h.cli("submit", "-g", "0", "--", "true")
	if !strings.Contains(said, why) || !strings.Contains(said, "dmesg") || strings.Contains(said, "free some disk space") {
		h.t.Errorf("the user is told %q", said)
	}
	h.letGo("both did their work", func() bool { return h.wrote("end 1 1 0") && h.wrote("end 2 1 7") })
	_, _ = api.Call(h.ctx(), h.client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: ids[2:3]}}) // it cannot be saved
	testkit.Eventually(h.t, "the cancelled job is stopped", func() bool { return len(h.jobProcesses("")) == 0 })
	testkit.Never(h.t, 500*time.Millisecond, "a job starts or the daemon gives up", func() bool { return h.wrote("start 4") || !b.running() })
	status, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
	if err != nil || !strings.Contains(status.Blocked, why) {
		h.t.Errorf("status says %q: %v", status.Blocked, err)
	}
	h.t.Logf("meanwhile job 1 is %s, job 3 is %s", h.job(ids[0]).State, h.job(ids[2]).State)
	if jobs := h.all(); len(jobs) != len(ids) {
		h.t.Errorf("%d jobs are listed", len(jobs))
	}
}

// TestStateDiskFails has every write to the daemon's state fail. The daemon goes
// on answering, stops jobs, says what is wrong, and continues by itself when the
// disk works again. What ended meanwhile has its own outcome.
func TestStateDiskFails(t *testing.T) {
	h := newCutHost(t)
	b, ids, lines := h.beforeTheDiskFails()
	h.disk.fail(0)
	h.mustServe(b, ids, "input/output error")
	h.disk.fail(-1)
	h.drain()
	h.mustEndAs(append(ids[:2:2], ids[3]), append(lines[:2:2], lines[3]))
	if v := h.job(ids[2]); outcome(v) != "cancelled" {
		t.Errorf("the cancelled job ended %q", outcome(v))
	}
	h.mustBeSound(lines)
	h.down(b)
	h.mustBeClean()
}

// TestKilledWhileTheStateDiskFails: the daemon is killed, and jobs end without
// one. Their supervisors keep the ends until they can be written.
func TestKilledWhileTheStateDiskFails(t *testing.T) {
	h := newCutHost(t)
	b, ids, lines := h.beforeTheDiskFails()
	h.disk.fail(0)
	b.kill()
	h.letGo("both did their work", func() bool { return h.wrote("end 1 1 0") && h.wrote("end 2 1 7") })
	second := h.serve()
	second.mustEnd(1)
	if said := second.stderr.String(); !strings.Contains(said, "hint: ") {
		t.Errorf("a daemon that cannot start says %q", said)
	}
	h.disk.fail(-1)
	b = h.up()
	if _, err := api.Call(h.ctx(), h.client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: ids[2:3]}}); err != nil {
		t.Error(err)
	}
	h.drain()
	h.mustEndAs(append(ids[:2:2], ids[3]), append(lines[:2:2], lines[3]))
	h.mustBeSound(lines)
	h.down(b)
	h.mustBeClean()
}

// TestStateDiskTurnsReadOnly: an error in an ext4 file system makes the kernel
// refuse all writes to it, until it is unmounted.
func TestStateDiskTurnsReadOnly(t *testing.T) {
	h := newHost(t, 1)
	fail := h.ext4(h.logDir)
	b, ids, _ := h.beforeTheDiskFails()
	fail()
	h.mustServe(b, ids, "read-only file system")
	h.down(b)
}

// ext4 mounts a file system of its own there, and returns what makes it fail.
func (h *host) ext4(dir string) (fail func()) {
	h.t.Helper()
	if os.Getuid() != 0 {
		h.t.Skip("mounting a file system needs root")
	}
	run := func(name string, args ...string) string {
		h.t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			h.t.Skipf("a file system that fails: %s %s: %v: %s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	image := filepath.Join(h.dir, "ext4.image")
	testkit.Write(h.t, image, "")
	testkit.Must(h.t, os.Truncate(image, 64<<20))
	run("mkfs.ext4", "-q", image)
	device := run("losetup", "--show", "--find", image)
	h.t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	testkit.Must(h.t, os.MkdirAll(dir, 0o755))
	run("mount", "-o", "errors=remount-ro", device, dir)
	h.t.Cleanup(func() {
		h.sweep()
		syscall.Unmount(dir, syscall.MNT_DETACH)
	})
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
	if _, err := os.Stat(trigger); err != nil {
		h.t.Skipf("a file system that fails: %v", err)
	}
	return func() {
		h.t.Helper()
		testkit.Must(h.t, os.WriteFile(trigger, []byte("berth's test"), 0o200))
	}
}
