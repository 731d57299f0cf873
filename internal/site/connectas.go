package site

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// ConnectAs starts berth's own program with this word and these arguments as a
// user, and connects to its input and output. Closing ends it. As with AskAs, what
// it says proves nothing.
func ConnectAs(u User, word string, args, environ []string) (io.ReadWriteCloser, error) {
	cmd := exec.Command("/proc/self/exe", append([]string{word}, args...)...)
	cmd.Dir, cmd.Env = "/", environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = credential(u)
	} else if u.UID != os.Geteuid() {
		return nil, fmt.Errorf("run %s as %s: %w", word, u.Name, syscall.EPERM)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s as %s: %w", word, u.Name, err)
	}
	c := &connection{Reader: out, in: in}
	c.end = sync.OnceValue(func() error {
		err := errors.Join(in.Close(), syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM))
		go func() { _ = cmd.Wait() }() // it may take a moment to end
		return err
	})
	return c, nil
}

// connection is the input and output of a process.
type connection struct {
	io.Reader
	in  io.Writer
	end func() error
}

func (c *connection) Write(p []byte) (int, error) { return c.in.Write(p) }

// Close ends the process. It may have ended already.
func (c *connection) Close() error {
	if err := c.end(); err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
