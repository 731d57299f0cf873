package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// hand submits a command on one card, and returns its id.
func (h *host) hand(command string) string {
	h.t.Helper()
	out, errOut, status := h.cli("submit", "--quiet", "--gpus", "1", "--", "sh", "-c", command)
	if status != 0 {
		h.t.Fatalf("submit: status %d: %s", status, errOut)
	}
	return strings.TrimSpace(out)
}

func (h *host) pidIn(name string) (pid int) {
	h.t.Helper()
	testkit.Eventually(h.t, name+" names a process", func() bool {
		text, err := os.ReadFile(filepath.Join(h.dir, name))
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

// says waits until a job's reason contains this.
func (h *host) says(id, want string) {
	h.t.Helper()
	testkit.Within(h.t, 2*testkit.Patience, "job "+id+" says that "+want, func() bool {
		reason := h.job(id).Reason
		return reason != nil && strings.Contains(*reason, want)
	})
	if out, _, _ := h.cli("why", id); !strings.Contains(out, want) {
		h.t.Errorf("why says %s", out)
	}
}

func (h *host) becomes(id string, state job.State) {
	h.t.Helper()
	testkit.Within(h.t, 2*testkit.Patience, fmt.Sprintf("job %s is %s", id, state), func() bool { return h.job(id).State == state })
}

// TestStoppedSupervisor stops supervisors. Nothing happens to their jobs until
// they are to end, and then they do.
func TestStoppedSupervisor(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	b := h.up()
	cancelled := h.hand("echo $PPID > keep1; exec sleep 1000")
	patient := h.hand("echo $PPID > keep2; while [ ! -e end2 ]; do sleep 0.1; done; exit 3")
	first, second := h.pidIn("keep1"), h.pidIn("keep2")
	for _, pid := range []int{first, second} {
		testkit.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	const says = "does not answer: it is stopped"
	h.says(cancelled, says)
	h.says(patient, says)
	// One is continued by hand, and nothing has happened to its job.
	testkit.Must(t, syscall.Kill(second, syscall.SIGCONT))
	testkit.Eventually(t, "it answers again", func() bool { return h.job(patient).Reason == nil })
	testkit.Write(t, filepath.Join(h.dir, "end2"), "")
	h.becomes(patient, job.Failed)
	if v := h.job(patient); outcome(v) != "exit:3" {
		t.Errorf("it ended %s", outcome(v))
	}
	if _, errOut, status := h.cli("cancel", "--grace", "0", cancelled); status != 0 {
		t.Errorf("cancel: %s", errOut)
	}
	h.becomes(cancelled, job.Cancelled)
	h.down(b)
	h.mustBeClean()
}

// TestStoppedDaemon stops the daemon. Every verb says so, nothing it asked for
// happens later, and those that wait go on.
func TestStoppedDaemon(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	b := h.up()
	id := h.hand("echo first words; while [ ! -e end ]; do sleep 0.1; done; echo last words")
	h.becomes(id, job.Running)
	waiting, following := h.begin("wait", id), h.begin("logs", "-f", id)
	testkit.Eventually(t, "the log is followed", func() bool { return strings.Contains(following.said(), "first words") })
	b.signal(syscall.SIGSTOP)
	stopped := fmt.Sprintf("(process %d) is stopped and does not answer", b.cmd.Process.Pid)
	var verbs sync.WaitGroup
	for _, verb := range []string{"list", "gpus", "show " + id, "why " + id, "history", "stats", "logs " + id, "cancel " + id, "hold " + id, "submit -- true"} {
		verbs.Go(func() {
			_, errOut, status := h.cli(strings.Fields(verb)...)
			if status != 1 || !strings.Contains(errOut, stopped) || !strings.Contains(errOut, "kill -CONT") {
				t.Errorf("berth %s: status %d: %s", verb, status, errOut)
			}
		})
	}
	verbs.Wait()
	testkit.Eventually(t, "those that wait say so", func() bool {
		return strings.Contains(waiting.stderr.String(), "does not answer") && strings.Contains(following.stderr.String(), "is stopped")
	})
	b.signal(syscall.SIGCONT)
	testkit.Eventually(t, "it is back", func() bool { return strings.Contains(following.stderr.String(), "the daemon is back") })
	testkit.Write(t, filepath.Join(h.dir, "end"), "")
	waiting.mustEnd(0)
	following.mustEnd(0)
	if !strings.Contains(following.said(), "last words") {
		t.Errorf("the log is %q", following.said())
	}
	if all := h.all(); len(all) != 1 || outcome(all[id]) != "ok" {
		t.Errorf("there are %d jobs, and the first ended %s", len(all), outcome(all[id]))
	}
	h.down(b)
	h.mustBeClean()
}

// silentFile is a file whose reader waits until it is let go, whatever signal
// it gets.
type silentFile struct {
	fs.Inode
	asked chan struct{}
	let   chan struct{}
}

func (f *silentFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *silentFile) Read(context.Context, fs.FileHandle, []byte, int64) (fuse.ReadResult, syscall.Errno) {
	f.asked <- struct{}{}
	<-f.let
	return fuse.ReadResultData(nil), 0
}

var (
	_ fs.NodeOpener = (*silentFile)(nil)
	_ fs.NodeReader = (*silentFile)(nil)
)

// silentDisk mounts a file system with one such file.
func silentDisk(t *testing.T, dir string) (f *silentFile, release func()) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Getuid() != 0 {
		t.Skip("a process that cannot be killed needs /dev/fuse and root")
	}
	testkit.Must(t, os.Mkdir(dir, 0o755))
	f = &silentFile{asked: make(chan struct{}, 10), let: make(chan struct{})}
	options := &fs.Options{NullPermissions: true, MountOptions: fuse.MountOptions{DirectMountStrict: true, Name: "silent", FsName: "silent"}}
	root := &fs.Inode{}
	options.OnAdd = func(ctx context.Context) {
		root.AddChild("file", root.NewPersistentInode(ctx, f, fs.StableAttr{Mode: syscall.S_IFREG}), true)
	}
	server, err := fs.Mount(dir, root, options)
	if err != nil {
		t.Skipf("a file system that does not answer: %v", err)
	}
	release = sync.OnceFunc(func() { close(f.let) })
	t.Cleanup(func() { release(); unmount(server, dir) })
	return f, release
}

// TestProcessThatCannotBeKilled has a job wait in the kernel. Its card takes
// no other job until the process is gone, and then everything is as usual.
func TestProcessThatCannotBeKilled(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	file, release := silentDisk(t, filepath.Join(h.dir, "silent"))
	b := h.up()
	id := h.hand("exec cat silent/file")
	select {
	case <-file.asked:
	case <-time.After(testkit.Patience):
		t.Fatal("nobody reads the file")
	}
	if _, errOut, status := h.cli("cancel", "--grace", "0", id); status != 0 {
		t.Errorf("cancel: %s", errOut)
	}
	h.says(id, "does not end (state D: waiting in the kernel), 30s after KILL")
	health := func() string {
		gpus, err := api.Call(h.ctx(), h.client, api.ListGPUs, api.None{})
		testkit.Must(t, err)
		return gpus[0].Health
	}
	if health() != "suspect" {
		t.Errorf("the card is %s", health())
	}
	next := h.hand("true")
	h.says(next, "does not end")
	// The next daemon knows it from the supervisor.
	b.kill()
	b = h.up()
	h.says(id, "does not end (state D")
	if health() != "suspect" || h.job(next).State != job.Queued {
		t.Errorf("the card is %s, and the next job %s", health(), h.job(next).State)
	}
	release()
	h.becomes(id, job.Cancelled)
	h.becomes(next, job.Finished)
	if health() != "ok" {
		t.Errorf("the card is %s", health())
	}
	h.down(b)
	h.mustBeClean()
}
