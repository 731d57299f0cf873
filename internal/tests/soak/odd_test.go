package soak

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// ownPrograms gives the daemon a copy of its programs that a test may change.
func (h *host) ownPrograms() (dir string) {
	h.t.Helper()
	dir = h.t.TempDir()
	for _, name := range []string{"berth", "berth-keep"} {
		copyProgram(h.t, filepath.Join(programs, name), filepath.Join(dir, name))
	}
	h.program = dir
	return dir
}

// replace puts a new file in a program's place, as an upgrade does.
func replace(t *testing.T, path, text string) {
	t.Helper()
	testkit.Must(t, os.Remove(path))
	testkit.Write(t, path, text, 0o755)
}

// TestHalfWrittenPrograms takes the daemon's programs away, or leaves half of
// them, as an upgrade does that is broken off. Nothing is lost or starts twice,
// the daemon does not wear itself out, and goes on when they are whole.
func TestHalfWrittenPrograms(t *testing.T) {
	whole := testkit.Read(t, filepath.Join(programs, "berth-keep"))
	for name, text := range map[string]string{"empty": "", "half": whole[:len(whole)/2], "wrong": "#!/bin/sh\nexit 1\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 1)
			dir := h.ownPrograms()
			b := h.up()
			testkit.Must(t, os.Remove(filepath.Join(dir, "berth")))
			replace(t, filepath.Join(dir, "berth-keep"), text)
			id := h.submit(line{number: 1, cards: 1, alone: true, kind: "plain", code: 5})[0]
			h.says(id, map[bool]string{true: "cannot be started", false: "its supervisor died before the job started"}[text == ""])
			testkit.Never(t, 2*time.Second, "it is over", func() bool { return h.job(id).State.Terminal() })
			if n := strings.Count(testkit.Read(t, filepath.Join(h.logDir, "berth.log")), "\n"); n > 50 {
				t.Errorf("the log has %d lines already", n)
			}
			replace(t, filepath.Join(dir, "berth-keep"), whole)
			h.becomes(id, job.Failed)
			if v := h.job(id); outcome(v) != "exit:5" || v.Attempt != 1 || h.count("start") != 1 {
				t.Errorf("it ended %s in attempt %d, and ran %d times", outcome(v), v.Attempt, h.count("start"))
			}
			h.down(b)
			h.mustBeClean()
		})
	}
}

// TestSocketRemoved removes the socket under the daemon, which makes it again.
func TestSocketRemoved(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	b := h.up()
	l := line{number: 1, cards: 1, alone: true, kind: "gated", code: 3}
	id := h.submit(l)[0]
	testkit.Eventually(t, "it runs", func() bool { return h.wrote("ready 1 1") })
	for range 2 {
		testkit.Must(t, os.Remove(h.socket))
		testkit.Eventually(t, "the daemon can be reached again", func() bool {
			_, _, status := h.cli("list")
			return status == 0
		})
	}
	second := h.serve()
	second.mustEnd(1)
	h.openGate()
	h.drain()
	h.mustEndAs([]string{id}, []line{l})
	h.down(b)
	if _, err := os.Lstat(h.socket); err == nil {
		t.Error("the socket is still there")
	}
	h.mustBeClean()
}

// TestNoDescriptorsLeft leaves the daemon no file to open. It goes on, and what
// it acknowledged runs when it can open files again.
func TestNoDescriptorsLeft(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	b := h.up()
	pid := b.cmd.Process.Pid
	running := line{number: 1, cards: 1, alone: true, kind: "gated", code: 3}
	ids := h.submit(running)
	testkit.Eventually(t, "it runs", func() bool { return h.wrote("ready 1 1") })
	var limit unix.Rlimit
	testkit.Must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit))
	full := limit.Cur
	limit.Cur = 64
	testkit.Must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil))
	var hoard []net.Conn
	open := func() int {
		entries, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
		return len(entries)
	}
	testkit.Eventually(t, "the daemon has no descriptor left", func() bool {
		if c, err := net.DialTimeout("unix", h.socket, time.Second); err == nil {
			hoard = append(hoard, c)
		}
		return open() >= 64
	})
	waiting := line{number: 2, cards: 1, alone: true, kind: "plain", code: 5}
	// This client has its connection already. The others cannot be served.
	ids = append(ids, h.submit(waiting)...)
	testkit.Never(t, time.Second, "it is over or the daemon gives up", func() bool {
		return h.job(ids[1]).State.Terminal() || !b.running()
	})
	h.openGate()
	for _, c := range hoard {
		c.Close()
	}
	limit.Cur = full
	testkit.Must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil))
	h.drain()
	h.mustEndAs(ids, []line{running, waiting})
	h.mustBeSound([]line{running, waiting})
	h.down(b)
	h.mustBeClean()
}

// TestSignalsAtTheDaemon sends it many signals at once, and closes its output.
func TestSignalsAtTheDaemon(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	reader, writer, err := os.Pipe()
	testkit.Must(t, err)
	cmd := h.serving()
	b := &berth{t: t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = writer, writer
	reader.Close() // every word it says fails
	testkit.Must(t, cmd.Start())
	writer.Close()
	go func() { cmd.Wait(); close(b.done) }()
	h.awaitAnswer(b)
	l := line{number: 1, cards: 1, alone: true, kind: "gated", code: 3}
	id := h.submit(l)[0]
	testkit.Eventually(t, "it runs", func() bool { return h.wrote("ready 1 1") })
	for range 100 {
		b.signal(syscall.SIGHUP)
		b.signal(syscall.SIGPIPE)
		b.signal(syscall.SIGWINCH)
	}
	if state := h.job(id).State; state != job.Running || !b.running() {
		t.Errorf("the job is %s", state)
	}
	for range 100 {
		b.signal(syscall.SIGTERM)
	}
	if status := b.wait(); status != 0 && status != -1 {
		t.Errorf("the daemon ended with %d", status)
	}
	h.openGate()
	b = h.up()
	h.drain()
	h.mustEndAs([]string{id}, []line{l})
	h.down(b)
	h.mustBeClean()
}

// TestMachineSuspended stops the daemon, its supervisors and their jobs, and
// continues them in the worst order. All is as before.
func TestMachineSuspended(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	b := h.up()
	lines := []line{
		{number: 1, block: "timeout=1h", cards: 1, alone: true, kind: "gated", code: 3},
		{number: 2, block: "timeout=2s grace=0.1s", cards: 1, alone: true, kind: "stubborn", hold: forever, ends: "timeout"},
	}
	ids := h.submit(lines...)
	testkit.Eventually(t, "both run", func() bool { return h.count("ready") == 2 })
	all := append(h.processes(), process{pid: b.cmd.Process.Pid})
	for _, p := range all {
		syscall.Kill(p.pid, syscall.SIGSTOP)
	}
	testkit.Never(t, 4*time.Second, "a stopped machine does something", func() bool { return h.count("end") > 0 })
	for _, p := range all { // the daemon last but for its jobs
		syscall.Kill(p.pid, syscall.SIGCONT)
	}
	h.becomes(ids[1], job.Failed)
	if v := h.job(ids[1]); outcome(v) != "timeout" {
		t.Errorf("the job with a limit of 2 s ended %s", outcome(v))
	}
	if state := h.job(ids[0]).State; state != job.Running {
		t.Errorf("the job with a limit of an hour is %s", state)
	}
	h.openGate()
	h.drain()
	h.mustEndAs(ids[:1], lines[:1])
	h.mustBeSound(lines)
	h.down(b)
	h.mustBeClean()
}

// TestSlowDisk has every sync of the state take two seconds. A job that is
// acknowledged is there after a kill, and runs once.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	h.mustBeFaulty() // such a berth takes the disk for a local one
	dir := filepath.Join(h.dir, "far")
	disk := newRemoteDisk(t, dir)
	h.logDir = filepath.Join(dir, "state")
	b := h.up()
	disk.is("slow")
	begun := time.Now()
	l := line{number: 1, cards: 1, alone: true, kind: "plain", code: 5}
	id := h.submit(l)[0]
	if took := time.Since(begun); took < 2*time.Second {
		t.Errorf("it was acknowledged after %s, before it was on disk", took)
	}
	b.kill()
	disk.is("well")
	b = h.up()
	h.drain()
	if v := h.job(id); outcome(v) != "exit:5" || h.count("start") != 1 {
		t.Errorf("it ended %q, and ran %d times", outcome(v), h.count("start"))
	}
	h.down(b)
	h.mustBeClean()
}

// TestMemoryKills has the kernel kill a job's processes at its memory limit. The
// outcome is what the job's main process says, and the reason names the limit.
func TestMemoryKills(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	b := h.up()
	if out, _, _ := h.cli("doctor"); !strings.Contains(out, "the daemon enforces the cpus and mem of jobs") {
		t.Skip("this machine does not enforce memory limits")
	}
	const eat = "head -c 300000000 /dev/zero | tail" // without a newline it keeps all of it
	for command, want := range map[string]string{
		"exec sh -c '" + eat + "; exit $?'":   "exit:137",
		eat + "; kill -KILL $$":               "signal:KILL",
		eat + "; exit 0":                      "ok",
		"(" + eat + "; kill -KILL $$) & wait": "signal:KILL",
	} {
		reply, err := api.Call(h.ctx(), h.client, api.Submit, api.SubmitRequest{Dir: h.dir, Environ: h.environ(), Jobs: []api.Spec{
			{Command: api.Command{Shell: command}, GPUs: "0", Mem: "100M"},
		}})
		testkit.Must(t, err)
		id := reply.Jobs[0].ID
		testkit.Eventually(t, "it ends", func() bool { return h.job(id).State.Terminal() })
		v := h.job(id)
		if outcome(v) != want || !strings.Contains(text(v.Reason), "its limit of 100 MiB of host memory") {
			t.Errorf("%s: it ended %s: %s", command, outcome(v), text(v.Reason))
		}
	}
	h.down(b)
	h.mustBeClean()
}
