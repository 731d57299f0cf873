package run

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// What one helper and everything it starts may have, where the host can limit it.
const (
	helperMemMiB = 256
	helperPids   = 64
)

const (
	// maxAnswer bounds what Ask reads.
	maxAnswer = 16 << 20
	// helperEnds is how long a helper that is no longer wanted is waited for. Its
	// door goes on until it has ended.
	helperEnds = 2 * time.Second
	// maxComplaint bounds what is read of a door's complaint.
	maxComplaint = 1 << 10
)

// Helper is one of berth's own commands that acts as a user. It is started through
// a door (keep.DoorWord), which limits it and ends everything it leaves behind.
//
// The user may trace it: it must get no secret of anybody else, and what it says
// proves nothing. Everybody can read its arguments.
type Helper struct {
	As   *keep.Credential // nil: berth's own user
	Args []string
	Env  []string
	Life time.Duration // the longest it may run; 0: as long as it is wanted
	// MoreMiB is memory beyond the usual limit.
	MoreMiB int64
}

// Doors start helpers.
type Doors struct {
	command []string // of a supervisor
	program *os.File // that of the command; nil: it is found by its path
	cgroups *Cgroups
}

// Ask runs a helper with an input, and returns what it printed.
func (d *Doors) Ask(ctx context.Context, h Helper, input []byte) ([]byte, error) {
	h.MoreMiB += 4 * int64(len(input)) >> 20 // it decodes its input
	cmd := d.door()
	out, complaint := &answer{most: maxAnswer}, &answer{most: maxComplaint}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), out, complaint
	control, err := d.help(cmd, h)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	select {
	case err = <-over:
	case <-ctx.Done():
		control.Close()
		select {
		case <-over:
		case <-time.After(helperEnds):
		}
		return nil, fmt.Errorf("run %s: %w", h.Args[0], ctx.Err())
	}
	switch {
	case out.over:
		err = fmt.Errorf("it printed more than %d bytes", maxAnswer)
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	case err != nil && len(complaint.kept) > 0:
		err = errors.New(strings.TrimSpace(string(complaint.kept)))
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", h.Args[0], err)
	}
	return out.kept, nil
}

// answer keeps what is written to it up to a bound, and then fails, which ends a
// process that prints for ever.
type answer struct {
	kept []byte
	most int
	over bool
}

func (a *answer) Write(p []byte) (int, error) {
	if a.over = len(a.kept)+len(p) > a.most; a.over {
		return 0, errors.New("too much")
	}
	a.kept = append(a.kept, p...)
	return len(p), nil
}

// Connect starts a helper and connects to its input and output. Closing ends it.
func (d *Doors) Connect(h Helper) (io.ReadWriteCloser, error) {
	cmd := d.door()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	control, err := d.help(cmd, h)
	if err != nil {
		return nil, err
	}
	return &helperPipe{Reader: out, Writer: in, end: sync.OnceValue(func() error {
		err := errors.Join(in.Close(), control.Close())
		go func() { _ = cmd.Wait() }() // it may take a moment to end
		return err
	})}, nil
}

// helperPipe is the input and output of a helper.
type helperPipe struct {
	io.Reader
	io.Writer
	end func() error
}

func (p *helperPipe) Close() error { return p.end() }

// help starts a door and gives it a helper's order. The helper ends with the
// connection.
func (d *Doors) help(cmd *exec.Cmd, h Helper) (*net.UnixConn, error) {
	self, err := ownProgram()
	if err != nil {
		return nil, err
	}
	name := make([]byte, 8)
	rand.Read(name)
	o := keep.Order{
		Helper: true, Job: "helper-" + hex.EncodeToString(name), Credential: h.As, Argv: append([]string{keep.HelperProgram}, h.Args...), Dir: "/",
		// With the threads of a large machine it would reach its limit by itself.
		Env:          append(h.Env[:len(h.Env):len(h.Env)], "GOMAXPROCS=2"),
		CgroupParent: d.cgroups.ofHelpers(), MemoryParent: d.cgroups.limit(memoryController), PidsParent: d.cgroups.limit(pidsController),
		MemMiB: helperMemMiB + h.MoreMiB, Pids: helperPids, Limit: h.Life,
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	return d.enter(cmd, o.Frame(), self)
}

// door is the command of a door. It stays in berth's session, so nobody takes it
// for an orphan.
func (d *Doors) door() *exec.Cmd {
	cmd := exec.Command(d.command[0], append(d.command[1:len(d.command):len(d.command)], keep.DoorWord)...)
	if d.program != nil {
		cmd.Path = programPath(d.program)
	}
	cmd.Dir, cmd.Env, cmd.WaitDelay = "/", keepEnv(), time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// enter starts a door and sends it a frame.
func (d *Doors) enter(cmd *exec.Cmd, frame keep.Frame, extra ...*os.File) (*net.UnixConn, error) {
	order, err := frame.Encode()
	if err != nil {
		return nil, err
	}
	theirs, conn, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd.ExtraFiles = append([]*os.File{theirs}, extra...)
	err = cmd.Start()
	runtime.KeepAlive(d.program)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Args[0]), err)
	}
	conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, _ = conn.Write(order) // a door that is gone is noticed by what it does not say
	return conn, nil
}

// ownProgram is berth's own program, whatever was installed in its place since.
var ownProgram = sync.OnceValues(func() (*os.File, error) { return openProgram("/proc/self/exe") })

// openProgram opens a program for executing it.
func openProgram(path string) (*os.File, error) { return os.OpenFile(path, unix.O_PATH, 0) }

// programPath is the path of an open program. It is looked up among berth's own
// descriptors: a process that is being started moves its own about, over any.
func programPath(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
