package cli

import (
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
	"berth/internal/machine/site"
	"berth/internal/queue/daemon"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// target is the daemon that a verb talks to.
type target struct {
	host     *remote    // a daemon on another machine; nil: this one, at the socket
	run      *runTarget // a berth run instead of a daemon; nil: a daemon
	socket   string
	explicit bool // named by the user
	stateDir string
	private  bool
}

// findDaemon chooses the daemon: --socket, else BERTH_SOCKET, else the shared
// one, else the user's own. If neither of the last two has a socket, it is the
// shared one where a system service is installed.
func findDaemon(flag string, getenv func(string) string, shared site.Places, installed func() bool) (target, error) {
	if flag == "" {
		flag = getenv("BERTH_SOCKET")
	}
	if flag != "" {
		return target{socket: flag, explicit: true}, nil
	}
	machine := target{socket: shared.Socket, stateDir: shared.StateDir}
	if exists(shared.Socket) {
		return machine, nil
	}
	places, err := site.PrivatePlaces(getenv)
	if err != nil {
		return target{}, err
	}
	own := target{socket: places.Socket, stateDir: places.StateDir, private: true}
	if !exists(places.Socket) && installed() {
		return machine, nil
	}
	return own, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// hasState reports whether a daemon has been here: there are jobs to read, or a
// queue to go on with.
func (t target) hasState() bool { return daemon.HasState(site.Places{StateDir: t.stateDir}) }

// session is one use of a verb: the daemon it talks to, and where it writes.
type session struct {
	screen
	errOut io.Writer
	target target
	queues []target // those that the verb may mean; the first one is target
	client *api.Client
	starts bool // a private daemon is started if there is state
	begins bool // a private daemon is started even if there is no state
	stays  bool // none is started
	sim    int  // simulated GPUs of a daemon that is started; 0: BERTH_SIM
}

// missing is called if no daemon answers. It starts a private one where there is
// state to read, so that nobody has to know whether one is running.
func (s *session) missing(ctx context.Context, lost *api.Unreachable) error {
	switch {
	case !s.target.private || !s.begins && !s.target.hasState():
		return lost
	case s.stays || os.Getenv("BERTH_NO_AUTOSTART") == "1":
		return problem.Wrap(problem.Unable, "autostart is off; start a daemon with berth start", lost)
	}
	return autostart(ctx, s)
}

// nothing reports an error that only means that there are no jobs: no daemon
// runs, and none ever did.
func (s *session) nothing(err error) bool {
	_, lost := errors.AsType[*api.Unreachable](err)
	return lost && s.target.private && !s.target.hasState()
}

// say prints a message that is not the verb's result.
func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.errOut, "berth: %s\n", text.Line(fmt.Sprintf(format, args...)))
}

// advise prints a hint.
func (s *session) advise(format string, args ...any) {
	fmt.Fprintf(s.errOut, "hint: %s\n", text.Line(fmt.Sprintf(format, args...)))
}

// verb turns the run function of a verb into cobra's: it finds the queue that is
// meant, or starts a private daemon, lets Ctrl-C end what is under way, and gives
// every error its exit status.
func verb(run func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return with(true, run)
}

// look is verb for verbs that never start a daemon.
func look(run func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return with(false, run)
}

func with(starts bool, run func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := openSession(cmd, starts)
		if err != nil {
			return failed(err, target{})
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
		if err = s.choose(ctx, cmd, args); err == nil {
			err = run(ctx, s, args)
		}
		s.compareVersions(err)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return status(exitInterrupted)
		}
		return failed(err, s.target)
	}
}

// openSession finds the queues that a verb may mean, and opens the first.
func openSession(cmd *cobra.Command, starts bool) (*session, error) {
	socket, noColour := "", false
	if f := cmd.Flag("socket"); f != nil {
		socket = f.Value.String()
	}
	if f := cmd.Flag("no-color"); f != nil {
		noColour = f.Value.String() == "true"
	}
	s := &session{screen: newScreen(cmd.OutOrStdout(), noColour, os.Getenv), errOut: cmd.ErrOrStderr(), starts: starts}
	ctx := context.Background()
	run, err := namedRun(ctx, cmd)
	if err != nil {
		return nil, err
	}
	only := target{run: run}
	if run == nil {
		if only.host, err = hostFor(cmd, socket, os.Getenv); err != nil {
			return nil, err
		}
	}
	if run == nil && only.host == nil {
		if only, err = findDaemon(socket, os.Getenv, sharedPlaces(), systemService); err != nil {
			return nil, err
		}
		if flag := cmd.Flag("log-dir"); flag != nil && !flag.Changed && !only.explicit {
			s.queues = queuesBeside(ctx, only)
			return s, s.at(s.queues[0])
		}
	}
	s.queues = []target{only}
	return s, s.at(only)
}

// at makes it a session with this queue.
func (s *session) at(t target) (err error) {
	s.target = t
	switch {
	case t.run != nil:
		s.client = t.run.dial()
	case t.host != nil:
		if s.client, err = t.host.dial(); err != nil {
			return err
		}
	default:
		s.client = api.Dial(t.socket)
	}
	s.client.OnSilence = s.silence
	if s.starts {
		s.client.OnMissing = s.missing
	}
	return nil
}

// compareVersions mentions a daemon of another version. On a daemon that its
// administrator has to renew, it does so only if the verb failed.
func (s *session) compareVersions(err error) {
	daemon := s.client.Version()
	_, isStatus := errors.AsType[status](err)
	if daemon == "" || daemon == Version || !s.target.private && (err == nil || isStatus) {
		return
	}
	s.say("this is berth %s, and the daemon is berth %s", Version, daemon)
	if s.target.private {
		s.advise("berth restart replaces it; jobs keep running")
	}
}

// silence tells the user about a daemon that does not answer.
func (s *session) silence(what api.Silence, pid int) {
	switch what {
	case api.Slow:
		s.say("the daemon has not answered yet; waiting for it")
	case api.Stopped:
		s.say("the daemon (process %d) is stopped; waiting for it to continue (kill -CONT %d)", pid, pid)
	case api.Back:
		s.say("the daemon is back")
	}
}

// Tests replace these.
var (
	sharedPlaces  = site.SharedPlaces
	systemService = site.SystemService
)

// daemonFlags are the flags of every verb that talks to a daemon.
func daemonFlags(cmd *cobra.Command) {
	socketFlag(cmd)
	cmd.PersistentFlags().String("host", "", hostHelp)
}

func socketFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("socket", "", "the daemon's socket (default BERTH_SOCKET, else the shared daemon's, else your own)")
}

// failed turns an error into a problem, with a hint if no daemon answered.
func failed(err error, at target) error {
	if _, isStatus := errors.AsType[status](err); err == nil || isStatus || problem.KindOf(err) != "" {
		return err
	}
	if lost, ok := errors.AsType[*api.Unreachable](err); ok && at.private && !at.hasState() {
		return problem.Newf(problem.Unable, "berth submit queues a job; berth start only starts the daemon", "no daemon is running, and there are no jobs in %s yet", at.stateDir)
	} else if ok {
		return problem.Wrap(problem.Unable, at.missed(), lost)
	}
	return problem.Wrap(problem.Unable, "", err)
}

// missed is the hint for a daemon that does not answer.
func (t target) missed() string {
	switch {
	case t.host != nil && strings.HasPrefix(t.host.Address, socketScheme):
		return "is the socket forwarded? ssh -N -L PATH:/run/berth/berth.sock HOST"
	case t.host != nil:
		return "check that the daemon runs there, and that [http] in its config listens on that address"
	case t.explicit:
		return "--socket or BERTH_SOCKET names that socket; is berth serve running there?"
	case t.private:
		return "berth start starts a private daemon; berth serve runs one in the foreground"
	case systemService():
		return "the berth service is installed but not running: systemctl start berth"
	}
	return "the shared daemon is not running: start it with berth serve as root, or give another with --socket"
}
