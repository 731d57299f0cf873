package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/problem"
	"berth/internal/site"
	"berth/internal/text"
)

// target is the daemon a verb talks to, and whose it is.
type target struct {
	host     *remote // on another machine; nil: here, at the socket
	socket   string
	explicit bool // the user named it: nothing else will do
	stateDir string
	private  bool
}

// findDaemon chooses: --socket, else BERTH_SOCKET, else the machine's, else
// the user's own. Where neither of the last two has a socket, an installed
// system service decides which of them is missed.
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

// session is one use of a verb: the daemon it talks to, and where it writes.
type session struct {
	screen
	errOut io.Writer
	target target
	client *api.Client
}

// say tells a person something that is not the verb's result.
func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.errOut, "berth: %s\n", text.Line(fmt.Sprintf(format, args...)))
}

// advise says how to go on.
func (s *session) advise(format string, args ...any) {
	fmt.Fprintf(s.errOut, "hint: %s\n", text.Line(fmt.Sprintf(format, args...)))
}

// verb turns the run function of a verb into cobra's: it finds the daemon,
// lets Ctrl-C end what is under way, and gives every error its exit status.
func verb(run func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := openSession(cmd)
		if err != nil {
			return failed(err, target{})
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop) // a second Ctrl-C ends what does not heed the first
		err = run(ctx, s, args)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return status(exitInterrupted)
		}
		return failed(err, s.target)
	}
}

func openSession(cmd *cobra.Command) (*session, error) {
	socket, noColour := "", false
	if f := cmd.Flag("socket"); f != nil {
		socket = f.Value.String()
	}
	if f := cmd.Flag("no-color"); f != nil {
		noColour = f.Value.String() == "true"
	}
	s := &session{screen: newScreen(cmd.OutOrStdout(), noColour, os.Getenv), errOut: cmd.ErrOrStderr()}
	host, err := hostFor(cmd, socket, os.Getenv)
	if err != nil {
		return nil, err
	}
	if host != nil {
		s.target = target{host: host}
		s.client, err = host.dial()
		return s, err
	}
	if s.target, err = findDaemon(socket, os.Getenv, sharedPlaces(), systemService); err != nil {
		return nil, err
	}
	s.client = api.Dial(s.target.socket)
	return s, nil
}

// The machine's own places, which the tests put elsewhere.
var (
	sharedPlaces  = site.SharedPlaces
	systemService = site.SystemService
)

// daemonFlags are those of every verb that talks to a daemon, here or elsewhere.
func daemonFlags(cmd *cobra.Command) {
	socketFlag(cmd)
	cmd.PersistentFlags().String("host", "", hostHelp)
}

func socketFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("socket", "", "the daemon's socket (default BERTH_SOCKET, else the machine's, else your own)")
}

// failed turns an error into a problem, with a hint on how to get a daemon that
// answers.
func failed(err error, at target) error {
	if _, isStatus := errors.AsType[status](err); err == nil || isStatus || problem.KindOf(err) != "" {
		return err
	}
	if lost, ok := errors.AsType[*api.Unreachable](err); ok {
		return problem.Wrap(problem.Unable, at.missed(), lost)
	}
	if explained := at.host.distrusted(err); explained != nil {
		return explained
	}
	return problem.Wrap(problem.Unable, "", err)
}

// missed says how to get the daemon that does not answer.
func (t target) missed() string {
	switch {
	case t.host != nil:
		return "is the daemon running there, and does [http] in its config let it listen at that address?"
	case t.explicit:
		return "that socket was named by --socket or BERTH_SOCKET; is berth serve running there?"
	case t.private:
		return "berth submit starts one of your own; berth serve is one in the foreground"
	case systemService():
		return "the machine's service is installed but not running: systemctl start berth"
	}
	return "the machine's daemon is not running: start it again with berth serve as root, or name another with --socket"
}
