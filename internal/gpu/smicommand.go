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

// errStuck is the cause when an earlier nvidia-smi still hangs in the driver.
var errStuck = errors.New("nvidia-smi does not answer")

const (
	maxSMIOutput = 4 << 20 // bytes; a report on a full machine has some 100 KiB
	// termGrace is what a hung call gets to let go of the driver by itself:
	// killing one in the middle of a driver call has taken cards down.
	termGrace = 2 * time.Second
)

// smiCommand runs nvidia-smi, one call at a time. A call that hangs inside the
// driver cannot be ended by anyone; as long as one does, no other is started,
// so that a sick card costs one process and not one per poll.
type smiCommand struct {
	path     string
	deadline time.Duration

	mu      sync.Mutex
	pid     int // of the call under way; 0: none
	since   time.Time
	goingOn chan struct{} // closed when that call is over
}

// output runs one call. On failure what it printed is returned beside the
// error, whose text holds the first line of it: nvidia-smi complains on either
// stream.
func (c *smiCommand) output(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	c.mu.Lock()
	if c.pid != 0 {
		defer c.mu.Unlock()
		return nil, fmt.Errorf("%w: process %d hangs since %s", errStuck, c.pid, c.since.Format(time.TimeOnly))
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

// end asks a call and what it started to stop, then makes it. The group is
// signalled only while its leader has not been waited for, so the number
// cannot belong to anyone else.
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

// abandon ends the call under way, if any, and does not wait for it.
func (c *smiCommand) abandon() {
	c.mu.Lock()
	pid, over := c.pid, c.goingOn
	c.mu.Unlock()
	if pid != 0 {
		go c.end(pid, over)
	}
}

// boundedBuffer keeps the beginning of what is written to it and lets the
// writer believe that all of it was taken: a full pipe would hang the call.
// The buffer is no embedded one: that would bring a ReadFrom which knows no
// bound, and io.Copy would prefer it.
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
	return "it printed nothing"
}
