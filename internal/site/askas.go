package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// maxAnswer bounds what AskAs reads.
const maxAnswer = 16 << 20

// AskAs runs one of berth's hidden commands as a user, with an input, and returns
// what it printed. The process has the user's rights and nothing of the daemon's:
// no environment, no descriptors, no terminal. A daemon that is not root can only
// ask as itself.
//
// The user may trace that process: it must get no secret of anybody else, and its
// answer proves nothing. What is secret to others goes into the input, because
// everybody can read arguments.
func AskAs(ctx context.Context, u User, word string, input []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", word)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = credential(u)
	} else if u.UID != os.Geteuid() {
		return nil, fmt.Errorf("run %s as %s: %w", word, u.Name, syscall.EPERM)
	}
	out := &answerBuffer{}
	cmd.Stdin, cmd.Stdout = bytes.NewReader(input), out
	// Another process may still hold the output when this one is gone.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case out.over:
		err = fmt.Errorf("it printed more than %d bytes", maxAnswer)
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("run %s as %s: %w", word, u.Name, err)
	}
	return out.kept, nil
}

// answerBuffer keeps what is written to it up to a bound, and then fails, which
// ends a process that prints for ever.
type answerBuffer struct {
	kept []byte
	over bool
}

func (a *answerBuffer) Write(p []byte) (int, error) {
	if a.over = len(a.kept)+len(p) > maxAnswer; a.over {
		return 0, errors.New("too much")
	}
	a.kept = append(a.kept, p...)
	return len(p), nil
}
