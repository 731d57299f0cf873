package send

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/queue/notify"
	"berth/internal/text"
)

// run executes a user's own command, with the message as JSON on its standard
// input and its words in variables. The command may contain a token, and everybody
// can read the arguments of a process: the shell reads it from a pipe.
func run(ctx context.Context, command string, environ []string, m notify.Message) error {
	script, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer script.Close()
	_, err = write.WriteString(command + "\n") // a target is shorter than what a pipe holds
	if err = errors.Join(err, write.Close()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "/dev/fd/3")
	cmd.ExtraFiles = []*os.File{script}
	cmd.Dir = homeIn(environ)
	cmd.Stdin = bytes.NewReader(encode(m))
	cmd.Env = append(environ[:len(environ):len(environ)],
		"BERTH_NOTIFY_ID="+m.ID, "BERTH_NOTIFY_TITLE="+m.Title, "BERTH_NOTIFY_BODY="+m.Body)
	return bounded(ctx, cmd)
}

// homeIn is the home directory that an environment names, or / if it cannot be
// entered.
func homeIn(environ []string) string {
	for _, pair := range environ {
		home, found := strings.CutPrefix(pair, "HOME=")
		if at, err := os.Stat(home); found && err == nil && at.IsDir() && unix.Access(home, unix.X_OK) == nil {
			return home
		}
	}
	return "/"
}

// closing is how long a program's output may stay open after it ended or was
// killed.
const closing = 2 * time.Second

// bounded runs a program in a process group that ends with it: a deadline ends
// all of the group, and output beyond a few bytes is dropped.
func bounded(ctx context.Context, cmd *exec.Cmd) error {
	said := &head{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = endGroup, closing
	err := cmd.Run()
	if cmd.Process != nil {
		_ = endGroup() // what it left behind; none is the usual case
	}
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case len(said.kept) > 0:
		return fmt.Errorf("%w: %s", err, text.Said(strings.ToValidUTF8(strings.TrimSpace(string(said.kept)), "?")))
	}
	return err
}

// head keeps the first bytes of what is written to it.
type head struct{ kept []byte }

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxSaid-len(h.kept))]...)
	return len(p), nil
}
