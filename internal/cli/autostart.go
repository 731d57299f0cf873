package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/problem"
	"berth/internal/site"
	"berth/internal/text"
)

const (
	defaultStartPatience = 20 * time.Second
	startPoll            = 20 * time.Millisecond
	errFileLimit         = 1 << 20
)

// What an autostarted daemon is, this program again, and how long it may take
// to answer. Tests put others in their place.
var (
	selfProgram   = os.Executable
	startPatience = defaultStartPatience
)

// autostart starts a private daemon in the background and waits until it
// answers. Of several first submissions at once one starts it; the others
// find it running.
func autostart(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := os.MkdirAll(s.target.stateDir, 0o700); err != nil {
		return problem.Newf(problem.Unable, "a private daemon keeps its state there", "make state directory: %w", err)
	}
	unlock, err := lockStart(ctx, filepath.Join(s.target.stateDir, "serve.start"))
	if err != nil {
		return err
	}
	defer unlock()
	if answers(ctx, s.client) {
		return nil
	}
	child, err := startDaemon(s.target.stateDir)
	if err != nil {
		return err
	}
	if err := child.await(ctx, s.client); err != nil {
		return err
	}
	s.say("started a private daemon (pid %d); it ends by itself after an hour without jobs", child.pid)
	if ends, why := site.EndsAtLogout(ctx, os.Getuid()); ends {
		s.say("warning: %s", why)
	}
	return nil
}

// lockStart lets one submission at a time start a daemon.
func lockStart(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, problem.Newf(problem.Unable, "", "lock the start of a daemon: %w", err)
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, problem.Newf(problem.Unable, "", "lock the start of a daemon: %w", err)
		}
		if err := api.Pause(ctx, startPoll); err != nil {
			file.Close()
			return nil, startTimeout(ctx, "another berth submit is starting a daemon, and is not done")
		}
	}
}

// startTimeout tells an interrupt from an end of patience.
func startTimeout(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return problem.Newf(problem.Unable, "start one in the foreground to see more: berth serve", "%s after %s", what, text.Span(startPatience))
}

// answers reports whether a daemon is there, be it that it answers with an
// error. One that hangs up without a word is just ending.
func answers(ctx context.Context, client *api.Client) bool {
	_, err := client.Status(ctx)
	return err == nil || problem.KindOf(err) != ""
}

// starting is a daemon that was begun in the background.
type starting struct {
	pid    int
	errors *os.File
	from   int64 // where its own words begin
	over   chan error
}

// startDaemon begins a daemon that this process, its terminal and its
// directory can go away from.
func startDaemon(stateDir string) (*starting, error) {
	self, err := selfProgram()
	if err != nil {
		return nil, problem.Newf(problem.Unable, "start one by hand: berth serve", "find this program: %w", err)
	}
	words, err := os.OpenFile(filepath.Join(stateDir, "serve.err"), os.O_CREATE|os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, problem.Newf(problem.Unable, "", "open the daemon's error output: %w", err)
	}
	from, err := words.Seek(0, io.SeekEnd)
	if err == nil && from > errFileLimit {
		from, err = 0, words.Truncate(0)
	}
	if err != nil {
		words.Close()
		return nil, problem.Newf(problem.Unable, "", "open the daemon's error output: %w", err)
	}
	cmd := exec.Command(self, "serve", "--private", "--idle-exit", "1h")
	cmd.Dir = "/"
	cmd.Stderr = words
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		words.Close()
		return nil, problem.Newf(problem.Unable, "start one by hand: berth serve", "start a daemon: %w", err)
	}
	d := &starting{pid: cmd.Process.Pid, errors: words, from: from, over: make(chan error, 1)}
	go func() { d.over <- cmd.Wait() }()
	return d, nil
}

// await returns once the daemon answers, or says what it died of.
func (d *starting) await(ctx context.Context, client *api.Client) error {
	defer d.errors.Close()
	for {
		if answers(ctx, client) {
			return nil
		}
		select {
		case err := <-d.over:
			if answers(ctx, client) { // someone else's was there first
				return nil
			}
			return problem.Newf(problem.Unable, "berth serve shows more; berth doctor looks for what is missing", "the private daemon ended at once (%v)%s", exitOf(err), d.lastWords())
		case <-ctx.Done():
			return startTimeout(ctx, fmt.Sprintf("the private daemon (pid %d) does not answer%s;", d.pid, d.lastWords()))
		case <-time.After(startPoll):
		}
	}
}

func exitOf(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// lastWords are the last lines of the daemon's error output.
func (d *starting) lastWords() string {
	const most, lines = 16 << 10, 10
	size, err := d.errors.Seek(0, io.SeekEnd)
	if err != nil || size <= d.from {
		return ""
	}
	from := max(d.from, size-most)
	text := make([]byte, size-from)
	n, _ := d.errors.ReadAt(text, from)
	all := strings.Split(string(bytes.TrimSpace(text[:n])), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return ":\n  " + strings.Join(all, "\n  ")
}
