package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/text"
)

// errStuck means that an earlier nvidia-smi still hangs in the driver.
var errStuck = errors.New("nvidia-smi does not answer")

const (
	maxSMIOutput = 4 << 20 // bytes; a report on a full machine has about 100 KiB
	// termGrace is how long a hung call may take to close the driver by
	// itself: killing one in the middle of a driver call has taken cards down.
	termGrace = 2 * time.Second
)

// smiCommand runs nvidia-smi, one call at a time. A call that hangs in the
// driver cannot be killed. While one does, no other is started, so that a hung
// card costs one process and not one per poll.
type smiCommand struct {
	path     string
	deadline time.Duration

	mu      sync.Mutex
	pid     int // of the call in progress; 0: none
	since   time.Time
	goingOn chan struct{} // closed when that call has ended
}

// output runs one call. On failure it returns the output beside the error,
// whose text has the first line of it: nvidia-smi complains on either stream.
func (c *smiCommand) output(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	c.mu.Lock()
	if c.pid != 0 {
		defer c.mu.Unlock()
		return nil, fmt.Errorf("%w: process %d has been hanging since %s", errStuck, c.pid, c.since.Format(time.TimeOnly))
	}
	var out boundedBuffer
	cmd := exec.Command(c.path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = termGrace // a grandchild may keep the pipe open
	if err := cmd.Start(); err != nil {
		c.mu.Unlock()
		return nil, fmt.Errorf("start nvidia-smi: %w", err)
	}
	over := make(chan struct{})
	c.pid, c.since, c.goingOn = cmd.Process.Pid, time.Now(), over
	c.mu.Unlock()

	var waitErr error
	go func() {
		waitErr = cmd.Wait()
		c.mu.Lock()
		c.pid = 0
		c.mu.Unlock()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
		go c.end(cmd.Process.Pid, over)
		return nil, fmt.Errorf("%w: process %d, %w", errStuck, cmd.Process.Pid, context.Cause(ctx))
	}
	if waitErr != nil {
		return out.Bytes(), fmt.Errorf("nvidia-smi failed (%w): %s", waitErr, firstLine(out.Bytes()))
	}
	return out.Bytes(), nil
}

// end asks a call and its children to stop, then kills them. It signals the
// group only before its leader is reaped, so the id cannot belong to another
// process.
func (c *smiCommand) end(pid int, over <-chan struct{}) {
	c.signal(pid, unix.SIGTERM)
	select {
	case <-over:
	case <-time.After(termGrace):
		c.signal(pid, unix.SIGKILL)
	}
}

func (c *smiCommand) signal(pid int, sig unix.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid == pid {
		_ = unix.Kill(-pid, sig) // it may just have ended
	}
}

// abandon stops the call in progress, if any, without waiting for it.
func (c *smiCommand) abandon() {
	c.mu.Lock()
	pid, over := c.pid, c.goingOn
	c.mu.Unlock()
	if pid != 0 {
		go c.end(pid, over)
	}
}

// boundedBuffer keeps the beginning of what is written to it and discards the
// rest, because a full pipe would hang the call. bytes.Buffer is not embedded:
// io.Copy would prefer its ReadFrom, which has no bound.
type boundedBuffer struct{ kept bytes.Buffer }

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), maxSMIOutput-b.kept.Len())])
	return len(p), nil
}

func (b *boundedBuffer) Bytes() []byte { return b.kept.Bytes() }

func firstLine(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			return text.Said(line)
		}
	}
	return "no output"
}
