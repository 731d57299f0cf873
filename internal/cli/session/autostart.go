package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/text"
	"berth/internal/text/problem"
)

const (
	StartPoll    = 20 * time.Millisecond
	errFileLimit = 1 << 20
)

// The program that autostart runs, whether it is a service of the user's, and how
// long it may take to answer. Tests replace them.
var (
	SelfProgram   = os.Executable
	userService   = site.UserService
	StartPatience = 20 * time.Second
)

// DaemonCommand starts a daemon.
type DaemonCommand struct {
	Service bool     // by the user's own systemd; nothing else counts then
	Args    []string // of berth
	Env     []string // nil: this process's
	Dir     string
}

// Autostart starts a private daemon in the background, and says so. If several
// verbs try at once, one of them starts it.
func Autostart(ctx context.Context, s *Session) error {
	how := DaemonCommand{Args: []string{"serve", "--private", "--idle-exit", "1h"}, Dir: "/"}
	if s.SimGPUs > 0 {
		how.Args = append(how.Args, "--sim", strconv.Itoa(s.SimGPUs))
	}
	if userService(os.Getenv) {
		how = DaemonCommand{Service: true}
	}
	return s.Launch(ctx, how)
}

// Launch starts a daemon in the background and waits until it answers. Its
// problems are refusals: a verb that outlasts restarts does not wait for them to
// pass.
func (s *Session) Launch(ctx context.Context, how DaemonCommand) error {
	ctx, cancel := context.WithTimeout(ctx, StartPatience)
	defer cancel()
	if err := os.MkdirAll(s.Target.StateDir, 0o700); err != nil {
		return problem.Newf(problem.Refused, "a private daemon keeps its state there", "create the state directory: %w", err)
	}
	unlock, err := lockStart(ctx, filepath.Join(s.Target.StateDir, "serve.start"))
	if err != nil {
		return err
	}
	defer unlock()
	probe := api.Dial(s.Target.Socket)
	defer probe.Close()
	if Answers(ctx, probe) {
		return nil
	}
	if how.Service {
		return s.launchService(ctx, probe)
	}
	child, err := startDaemon(s.Target.StateDir, how)
	if err != nil {
		return err
	}
	if err := child.await(ctx, probe); err != nil {
		return err
	}
	ends := ", which exits after an hour without jobs"
	if how.Env != nil {
		ends = ", with the flags of the old one"
	}
	with := ""
	if s.SimGPUs > 0 {
		with = " with " + text.Count(s.SimGPUs, "simulated GPU")
	}
	s.Say("started a private daemon (pid %d)%s%s", child.pid, with, ends)
	if ends, why := site.EndsAtLogout(ctx, os.Getuid()); ends {
		s.Say("warning: %s", why)
	}
	return nil
}

const ServiceHint = "systemctl --user status berth shows more"

// launchService is launch by the user's own systemd.
func (s *Session) launchService(ctx context.Context, probe *api.Client) error {
	if err := site.StartUserService(ctx); err != nil {
		return problem.Newf(problem.Refused, ServiceHint, "%w", err)
	}
	for !Answers(ctx, probe) {
		if err := api.Pause(ctx, StartPoll); err != nil {
			return startTimeout(ctx, "your user service berth.service does not answer;")
		}
	}
	s.Say("started your user service berth.service")
	return nil
}

// lockStart lets one verb at a time start a daemon.
func lockStart(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, problem.Newf(problem.Refused, "", "lock for starting a daemon: %w", err)
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, problem.Newf(problem.Refused, "", "lock for starting a daemon: %w", err)
		}
		if err := api.Pause(ctx, StartPoll); err != nil {
			file.Close()
			return nil, startTimeout(ctx, "another berth command is still starting a daemon")
		}
	}
}

// startTimeout returns the interrupt, or a problem if the time ran out.
func startTimeout(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return problem.Newf(problem.Refused, "run the daemon in the foreground to see more: berth serve", "%s after %s", what, text.Span(StartPatience))
}

// Answers reports whether a daemon answers, even with an error. One that closes
// the connection without a reply is shutting down.
func Answers(ctx context.Context, client *api.Client) bool {
	_, err := api.Call(ctx, client, api.GetStatus, api.None{})
	return err == nil || problem.KindOf(err) != ""
}

// starting is a daemon that was started in the background.
type starting struct {
	pid    int
	errors *os.File
	from   int64 // where its own output begins
	over   chan error
}

// startDaemon starts a daemon that does not depend on this process, its terminal
// or its directory.
func startDaemon(stateDir string, how DaemonCommand) (*starting, error) {
	self, err := SelfProgram()
	if err != nil {
		return nil, problem.Newf(problem.Refused, "start one by hand: berth serve", "find this program: %w", err)
	}
	words, err := os.OpenFile(filepath.Join(stateDir, "serve.err"), os.O_CREATE|os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, problem.Newf(problem.Refused, "", "open the daemon's error output: %w", err)
	}
	from, err := words.Seek(0, io.SeekEnd)
	if err == nil && from > errFileLimit {
		from, err = 0, words.Truncate(0)
	}
	if err != nil {
		words.Close()
		return nil, problem.Newf(problem.Refused, "", "open the daemon's error output: %w", err)
	}
	cmd := exec.Command(self, how.Args...)
	cmd.Dir, cmd.Env = how.Dir, how.Env
	cmd.Stderr = words
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		words.Close()
		return nil, problem.Newf(problem.Refused, "start it by hand: berth serve", "start a daemon: %w", err)
	}
	d := &starting{pid: cmd.Process.Pid, errors: words, from: from, over: make(chan error, 1)}
	go func() { d.over <- cmd.Wait() }()
	return d, nil
}

// await returns when the daemon answers, or reports why it ended.
func (d *starting) await(ctx context.Context, client *api.Client) error {
	defer d.errors.Close()
	for {
		if Answers(ctx, client) {
			return nil
		}
		select {
		case err := <-d.over:
			if Answers(ctx, client) { // another process started one first
				return nil
			}
			return problem.Newf(problem.Refused, "berth serve shows more; berth doctor looks for problems", "the private daemon exited at once (%v)%s", exitOf(err), d.lastWords())
		case <-ctx.Done():
			return startTimeout(ctx, fmt.Sprintf("the private daemon (pid %d) does not answer%s;", d.pid, d.lastWords()))
		case <-time.After(StartPoll):
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
