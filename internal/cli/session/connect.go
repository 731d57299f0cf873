package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/front"
	"berth/internal/cli/render"
	"berth/internal/machine/site"
	"berth/internal/queue/daemon"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// Target is the daemon that a verb talks to.
type Target struct {
	Host     *remote    // a daemon on another machine; nil: this one, at the socket
	Run      *RunTarget // a berth run instead of a daemon; nil: a daemon
	Socket   string
	Explicit bool // named by the user
	StateDir string
	Private  bool
}

// FindDaemon chooses the daemon: --socket, else BERTH_SOCKET, else the shared
// one, else the user's own. If neither of the last two has a socket, it is the
// shared one where a system service is installed.
func FindDaemon(flag string, getenv func(string) string, shared site.Places, installed func() bool) (Target, error) {
	flag = cmp.Or(flag, getenv("BERTH_SOCKET"))
	if flag != "" {
		return Target{Socket: flag, Explicit: true}, nil
	}
	machine := Target{Socket: shared.Socket, StateDir: shared.StateDir}
	if Exists(shared.Socket) {
		return machine, nil
	}
	places, err := site.PrivatePlaces(getenv)
	if err != nil {
		return Target{}, err
	}
	own := Target{Socket: places.Socket, StateDir: places.StateDir, Private: true}
	if !Exists(places.Socket) && installed() {
		return machine, nil
	}
	return own, nil
}

// Exists reports whether a path has a file, or a link that leads nowhere.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// hasState reports whether a daemon has been here: there are jobs to read, or a
// queue to go on with.
func (t Target) hasState() bool { return daemon.HasState(site.Places{StateDir: t.StateDir}) }

// Session is one use of a verb: the queue it talks to, and where it writes.
type Session struct {
	render.Screen
	ErrOut      io.Writer
	Target      Target
	Queues      []Target // those that the verb may mean; the first one is Target
	Client      *api.Client
	starts      bool // a private daemon is started if there is state
	StartsAnew  bool // a private daemon is started even if there is no state
	NeverStarts bool // none is started
	SimGPUs     int  // simulated GPUs of a daemon that is started; 0: BERTH_SIM
}

// Missing is called if no daemon answers. It starts a private one where there is
// state to read, so that nobody has to know whether one is running.
func (s *Session) Missing(ctx context.Context, lost *api.Unreachable) error {
	switch {
	case !s.Target.Private || !s.StartsAnew && !s.Target.hasState():
		return lost
	case s.NeverStarts || autostartOff():
		return problem.Wrap(problem.Unable, "autostart is off; start a daemon with berth start", lost)
	}
	return Autostart(ctx, s)
}

func autostartOff() bool { return os.Getenv("BERTH_NO_AUTOSTART") == "1" }

// NoJobsYet reports an error that only means that there are no jobs: no daemon
// runs, and none ever did.
func (s *Session) NoJobsYet(err error) bool {
	_, lost := errors.AsType[*api.Unreachable](err)
	return lost && s.Target.Private && !s.Target.hasState()
}

// Say prints a message that is not the verb's result.
func (s *Session) Say(format string, args ...any) {
	fmt.Fprintf(s.ErrOut, "berth: %s\n", text.Line(fmt.Sprintf(format, args...)))
}

// Advise prints a hint.
func (s *Session) Advise(format string, args ...any) {
	fmt.Fprintf(s.ErrOut, "hint: %s\n", text.Line(fmt.Sprintf(format, args...)))
}

// Verb turns the run function of a verb into cobra's: it finds the queue that is
// meant, or starts a private daemon, lets Ctrl-C end what is under way, and gives
// every error its exit status.
func Verb(run func(ctx context.Context, s *Session, args []string) error) func(*cobra.Command, []string) error {
	return with(true, run)
}

// Look is verb for verbs that never start a daemon.
func Look(run func(ctx context.Context, s *Session, args []string) error) func(*cobra.Command, []string) error {
	return with(false, run)
}

func with(starts bool, run func(ctx context.Context, s *Session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := OpenSession(cmd, starts)
		if err != nil {
			return Failed(err, Target{})
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
		if err = s.choose(ctx, cmd, args); err == nil {
			err = run(ctx, s, args)
		}
		s.CompareVersions(err)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return ExitInterrupted
		}
		return Failed(err, s.Target)
	}
}

// OpenSession finds the queues that a verb may mean, and opens the first.
func OpenSession(cmd *cobra.Command, starts bool) (*Session, error) {
	socket, noColour := "", false
	if f := cmd.Flag("socket"); f != nil {
		socket = f.Value.String()
	}
	if f := cmd.Flag("no-color"); f != nil {
		noColour = f.Value.String() == "true"
	}
	s := &Session{Screen: render.NewScreen(cmd.OutOrStdout(), noColour, os.Getenv), ErrOut: cmd.ErrOrStderr(), starts: starts}
	ctx := context.Background()
	run, err := namedRun(ctx, cmd)
	if err != nil {
		return nil, err
	}
	only := Target{Run: run}
	if run == nil {
		if only.Host, err = hostFor(cmd, socket, os.Getenv); err != nil {
			return nil, err
		}
	}
	if run == nil && only.Host == nil {
		if only, err = FindDaemon(socket, os.Getenv, SharedPlaces(), SystemService); err != nil {
			return nil, err
		}
		if flag := cmd.Flag("log-dir"); flag != nil && !flag.Changed && !only.Explicit {
			s.Queues = queuesBeside(ctx, only)
			return s, s.at(s.Queues[0])
		}
	}
	s.Queues = []Target{only}
	return s, s.at(only)
}

// at makes it a session with this queue.
func (s *Session) at(t Target) (err error) {
	s.Target = t
	switch {
	case t.Run != nil:
		s.Client = t.Run.Dial()
	case t.Host != nil:
		if s.Client, err = t.Host.dial(); err != nil {
			return err
		}
	default:
		s.Client = api.Dial(t.Socket)
		if fd, is := front.Sent(); is {
			s.Client = api.DialSent(t.Socket, fd)
		}
	}
	s.Client.OnSilence = s.silence
	if s.starts {
		s.Client.OnMissing = s.Missing
	}
	return nil
}

// CompareVersions mentions a daemon of another version. On a daemon that its
// administrator has to renew, it does so only if the verb failed.
func (s *Session) CompareVersions(err error) {
	daemon := s.Client.Version()
	_, isStatus := errors.AsType[ExitStatus](err)
	if daemon == "" || daemon == Version || !s.Target.Private && (err == nil || isStatus) {
		return
	}
	s.Say("this is berth %s, and the daemon is berth %s", Version, daemon)
	if s.Target.Private {
		s.Advise("berth restart replaces it; jobs keep running")
	}
}

// silence tells the user about a daemon that does not answer.
func (s *Session) silence(what api.Silence, pid int) {
	switch what {
	case api.Slow:
		s.Say("the daemon has not answered yet; waiting for it")
	case api.Stopped:
		s.Say("the daemon (process %d) is stopped; waiting for it to continue (kill -CONT %d)", pid, pid)
	case api.Back:
		s.Say("the daemon is back")
	}
}

// Tests replace these.
var (
	SharedPlaces  = site.SharedPlaces
	SystemService = site.SystemService
)

// DaemonFlags are the flags of every verb that talks to a daemon.
func DaemonFlags(cmd *cobra.Command) {
	SocketFlag(cmd)
	cmd.PersistentFlags().String("host", "", hostHelp)
}

func SocketFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("socket", "", "the daemon's socket (default BERTH_SOCKET, else the shared daemon's, else your own)")
}

// Failed turns an error into a problem, with a hint if no daemon answered.
func Failed(err error, at Target) error {
	if _, isStatus := errors.AsType[ExitStatus](err); err == nil || isStatus || problem.KindOf(err) != "" {
		return err
	}
	if lost, ok := errors.AsType[*api.Unreachable](err); ok && at.Private && !at.hasState() {
		return problem.Newf(problem.Unable, "berth submit queues a job; berth start only starts the daemon", "no daemon is running, and there are no jobs in %s yet", at.StateDir)
	} else if ok {
		return problem.Wrap(problem.Unable, at.Missed(), lost)
	}
	return problem.Wrap(problem.Unable, "", err)
}

// Missed is the hint for a daemon that does not answer.
func (t Target) Missed() string {
	switch {
	case t.Host != nil && strings.HasPrefix(t.Host.Address, socketScheme):
		return "is the socket forwarded? ssh -N -L PATH:/run/berth/berth.sock HOST"
	case t.Host != nil:
		return "check that the daemon runs there, and that [http] in its config listens on that address"
	case t.Explicit:
		return "--socket or BERTH_SOCKET names that socket; is berth serve running there?"
	case t.Private:
		return "berth start starts a private daemon; berth serve runs one in the foreground"
	case SystemService():
		return "the berth service is installed but not running: systemctl start berth"
	}
	return "the shared daemon is not running: start it with berth serve as root, or give another with --socket"
}
