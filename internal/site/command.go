package site

import (
	"bytes"
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

// call is one question to a program of the system.
type call struct {
	name     string // without a directory: it is looked for in commandDirs only
	path     string // where berth's own helper lies; then it is not looked for
	args     []string
	env      []string // beside the fixed ones
	deadline time.Duration
}

// answer is what the program said.
type answer struct {
	exit   int
	stdout string
	stderr string
}

// runner asks a program. An error means that there is no answer: it is not
// installed, could not be started, was ended by a signal or did not end in time.
type runner func(ctx context.Context, c call) (answer, error)

var (
	errNotInstalled = errors.New("it is not installed")
	errNoAnswer     = errors.New("it does not answer")
)

// commandDirs are where a program may lie that a root daemon runs: no PATH
// that somebody else has set takes part.
var commandDirs = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin", "/usr/lib/wsl/lib"}

const (
	defaultDeadline  = 10 * time.Second
	maxCommandOutput = 1 << 20 // bytes; the groups of a user in all of them have some 700 KiB
	// commandGrace is what a program that is late gets to end by itself.
	commandGrace = 2 * time.Second
	// maxCommands bounds the programs under way. One that hangs in the kernel
	// keeps its place until it is gone, so a dead file server costs this many
	// processes and no more.
	maxCommands = 16
)

var commandSlots = make(chan struct{}, maxCommands)

// command is where a program lies.
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

// runPath runs one program with nothing of this process's environment. It
// returns when the program has ended or its time is up, whichever is first:
// one that hangs in the kernel is left to the goroutine that waits for it.
func runPath(ctx context.Context, path string, c call) (answer, error) {
	deadline := c.deadline
	if deadline == 0 {
		deadline = defaultDeadline
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	select {
	case commandSlots <- struct{}{}:
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%s: %w: %d earlier programs still hang", c.name, errNoAnswer, maxCommands)
	}
	var stdout, stderr boundedBuffer
	cmd := exec.Command(path, c.args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C"}, c.env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A group, not a session: what lives in another session is taken for a
	// process that some job left behind.
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
		return answer{}, fmt.Errorf("%s: it printed more than %d bytes", c.name, maxCommandOutput)
	}
	return said, nil
}

// program is a process group that may have to be ended.
type program struct {
	pid   int
	mu    sync.Mutex // held while the group is signalled
	gone  bool
	ended chan struct{}
}

// await returns when the leader has ended and before its number is free for
// another process.
func (p *program) await() {
	for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	close(p.ended)
}

// end asks first: a program killed in the middle of a driver call has taken
// cards down with it.
func (p *program) end() {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		p.mu.Lock()
		if !p.gone {
			_ = unix.Kill(-p.pid, signal) // a zombie cannot be told from a success
		}
		p.mu.Unlock()
		select {
		case <-p.ended:
			return
		case <-time.After(commandGrace):
		}
	}
}

// boundedBuffer keeps the beginning of what is written to it and lets the
// writer believe that all of it was taken: a full pipe would hang the program.
// It is not embedded: the buffer's own ReadFrom knows no bound.
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

// firstLine is what a program complained about.
func (a answer) firstLine() string {
	for _, written := range []string{a.stderr, a.stdout} {
		for line := range strings.Lines(written) {
			if line = strings.TrimSpace(line); line != "" {
				return text.Said(line)
			}
		}
	}
	return "it printed nothing"
}
