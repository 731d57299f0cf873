package batch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/job/jobfile"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// start starts a process in a group of its own, which ends when end is called.
func start(t *testing.T, c *exec.Cmd) (end func()) {
	t.Helper()
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	hold, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			hold.Close()
			_ = c.Wait() // its input is gone: it ends
		}
	}
	t.Cleanup(end)
	return end
}

// TestAJobWhoseStartGpuschedDidNotWriteIsKnownByItsLog: 0.3.0 writes no starts.
func TestAJobWhoseStartGpuschedDidNotWriteIsKnownByItsLog(t *testing.T) {
	t.Parallel()
	// seeds: G55
	h := newHost(t)
	testkit.Write(t, filepath.Join(h.opt.LogDir, "journal.gpusched.jsonl"), `{"key": "a#0", "event": "seen", "no": 1, "command": "echo left"}
{"key": "b#0", "event": "seen", "no": 2, "command": "echo waits"}
`)
	log, err := os.Create(filepath.Join(h.opt.LogDir, "job001_gpu0-1.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	left := exec.Command("cat")
	left.Stdout, left.Stderr = log, log
	end := start(t, left)
	if err := h.inherit(at0); err != nil {
		t.Fatal(err)
	}
	key := jobfile.Key("echo left", 1)
	lines := map[string]int64{key: 0}
	if len(h.orphans) != 1 || h.orphans[0].key != key || h.orphans[0].group != left.Process.Pid {
		t.Errorf("left are %v, want only the one that has its log open", h.orphans)
	}
	if err := h.layout.refuseTwice(lines); err == nil {
		t.Error("it may be run again while it runs")
	}
	end()
	if err := h.layout.refuseTwice(lines); err != nil {
		t.Errorf("once it is gone: %v", err)
	}
}

func TestAGpuschedThatStillRunsHereIsNotRunBeside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := layout{logDir: filepath.Join(dir, "gpusched_logs"), state: dir}
	if err := os.Mkdir(l.logDir, 0o755); err != nil {
		t.Fatal(err)
	}
	const seen = `{"key": "a#0", "event": "seen", "no": 1, "command": "true"}` + "\n"
	testkit.Write(t, l.journal(), seen)
	testkit.Write(t, filepath.Join(dir, "gpusched"), "read end\n")
	theirs := &exec.Cmd{Path: "/bin/sh", Args: []string{"python3", "gpusched", "jobs.txt", "--watch"}, Dir: dir}
	end := start(t, theirs)
	var p *problem.Problem
	if err := l.keepTheirs(); !errors.As(err, &p) || !strings.Contains(p.What, fmt.Sprintf("(pid %d)", theirs.Process.Pid)) {
		t.Errorf("beside it: %v", err)
	}
	if testkit.Read(t, l.journal()) != seen {
		t.Error("its journal was taken away")
	}
	end()
	if err := l.keepTheirs(); err != nil {
		t.Errorf("once it is gone: %v", err)
	}
}

func TestTheCommandLineOfGpuschedIsKnown(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"/venv/bin/python /venv/bin/gpusched jobs.txt":      "gpusched_logs",
		"python3.12 -u /bin/gpusched a.txt --log-dir out":   "out",
		"python3 -m gpusched.cli jobs.txt --log-dir=/a/b":   "/a/b",
		"python3 -m gpusched.simjob --vram 1":               "",
		"gpusched jobs.txt":                                 "", // berth's
		"vim gpusched":                                      "",
		"python3":                                           "",
		"":                                                  "",
		"python3 train.py gpusched":                         "",
		"python3 -m gpusched jobs.txt --watch --log-dir":    "gpusched_logs",
		"/usr/bin/python3 /home/ann/.local/bin/gpusched -h": "gpusched_logs",
	} {
		if dir, ok := theirLogDir(strings.Split(line, " ")); dir != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", line, dir, ok, want)
		}
	}
}
