package site

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/text"
)

// call is one run of a program of the system.
type call struct {
	name     string // looked up in commandDirs, never in PATH
	path     string // of berth's own helper; overrides the lookup
	args     []string
	env      []string // in addition to the fixed ones
	deadline time.Duration
}

// answer is what the program printed and its exit status.
type answer struct {
	exit   int
	stdout string
	stderr string
}

// runner runs a program. It returns an error if the program is not installed,
// could not be started, was killed by a signal or did not end in time.
type runner func(ctx context.Context, c call) (answer, error)

var (
	errNotInstalled = errors.New("not installed")
	errNoAnswer     = errors.New("no answer")
)

// commandDirs are the directories a root daemon runs programs from. PATH is
// not used: another user may have set it.
var commandDirs = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin", "/usr/lib/wsl/lib"}

const (
	defaultDeadline  = 10 * time.Second
	maxCommandOutput = 1 << 20 // bytes; a user in 65,536 groups needs about 700 KiB
	// commandGrace is how long a program past its deadline may take to end by
	// itself.
	commandGrace = 2 * time.Second
	// maxCommands bounds the programs running at once. A program that hangs in
	// the kernel keeps its slot until it is gone, so a dead file server costs
	// at most this many processes.
	maxCommands = 16
)

var commandSlots = make(chan struct{}, maxCommands)

// command is the path of a program.
func (m machine) command(name string) (string, error) {
	for _, dir := range commandDirs {
		path := m.path(filepath.Join(dir, name))
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, errNotInstalled)
}

func runCommand(ctx context.Context, c call) (answer, error) {
	if c.path != "" {
		return runPath(ctx, c.path, c)
	}
	path, err := machine{}.command(c.name)
	if err != nil {
		return answer{}, err
	}
	return runPath(ctx, path, c)
}

// runPath runs one program with a fixed environment. It returns when the
// program has ended or its deadline has passed. A program that hangs in the
// kernel is left to the goroutine that waits for it.
func runPath(ctx context.Context, path string, c call) (answer, error) {
	deadline := c.deadline
	deadline = cmp.Or(deadline, defaultDeadline)
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	select {
	case commandSlots <- struct{}{}:
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%s: %w: %d earlier programs are still hanging", c.name, errNoAnswer, maxCommands)
	}
	var stdout, stderr boundedBuffer
	cmd := exec.Command(path, c.args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C"}, c.env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A new process group, but not a new session: berth takes a process in
	// another session for one that a job left behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = commandGrace // a grandchild may keep the pipe open
	if err := cmd.Start(); err != nil {
		<-commandSlots
		return answer{}, fmt.Errorf("start %s: %w", path, err)
	}
	p := &program{pid: cmd.Process.Pid, ended: make(chan struct{})}
	over := make(chan error, 1)
	go func() {
		p.await()
		over <- cmd.Wait()
		<-commandSlots
	}()
	var err error
	select {
	case err = <-over:
	case <-ctx.Done():
		go p.end()
		return answer{}, fmt.Errorf("%s: %w: %w", c.name, errNoAnswer, context.Cause(ctx))
	}
	said := answer{exit: cmd.ProcessState.ExitCode(), stdout: stdout.kept.String(), stderr: stderr.kept.String()}
	if said.exit < 0 || err != nil && said.exit == 0 {
		return answer{}, fmt.Errorf("%s: %w", c.name, err)
	}
	if stdout.cut {
		return answer{}, fmt.Errorf("%s: printed more than %d bytes", c.name, maxCommandOutput)
	}
	return said, nil
}

// program is a process group that may have to be stopped.
type program struct {
	pid   int
	mu    sync.Mutex // held while the group is signalled
	gone  bool
	ended chan struct{}
}

// await returns when the leader has ended, before its process id can be
// reused.
func (p *program) await() {
	for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	close(p.ended)
}

// end sends SIGTERM before SIGKILL: killing a program in the middle of a
// driver call can take GPUs down with it.
func (p *program) end() {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		p.mu.Lock()
		if !p.gone {
			_ = unix.Kill(-p.pid, signal) // fails only if the group is gone
		}
		p.mu.Unlock()
		select {
		case <-p.ended:
			return
		case <-time.After(commandGrace):
		}
	}
}

// boundedBuffer keeps the beginning of what is written to it and discards the
// rest, because a full pipe would hang the program. bytes.Buffer is not
// embedded: its ReadFrom has no bound.
type boundedBuffer struct {
	kept bytes.Buffer
	cut  bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	room := maxCommandOutput - b.kept.Len()
	b.cut = b.cut || len(p) > room
	b.kept.Write(p[:min(len(p), room)])
	return len(p), nil
}

// firstLine is the first line of a program's complaint.
func (a answer) firstLine() string {
	for _, written := range []string{a.stderr, a.stdout} {
		for line := range strings.Lines(written) {
			if line = strings.TrimSpace(line); line != "" {
				return text.Said(line)
			}
		}
	}
	return "no output"
}
