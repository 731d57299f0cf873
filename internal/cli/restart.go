package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func newRestart() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Restart your private daemon, for example after an upgrade",
		Long: `Stop your private daemon and start it again, with the program of this command
and the flags that the old one had. Nothing is lost: running jobs go on under
their supervisors, and the new daemon takes them over with the queue. The page
keeps its port, and browsers stay logged in. A daemon in the foreground of a
terminal comes back in the background. BERTH_SIM, if it is set, counts anew.

Without a daemon, it starts one.`,
		Example: `  berth restart
  berth restart --json | jq .version

Exit status: 0 it runs; 1 it could not be stopped or started, or is the
machine's; 2 bad usage; 130 interrupted.`,
		Args: noJobs("requeue"),
		RunE: session.Look(func(ctx context.Context, s *session.Session, _ []string) error {
			was, err := privateDaemon(ctx, s, "restart")
			if err != nil {
				return err
			}
			if !was.Running && s.Target.Explicit {
				return problem.Newf(problem.Refused, "berth serve --socket PATH starts one there", "no daemon answers at %s", s.Target.Socket)
			}
			if was.Running {
				if err := renew(ctx, s, was); err != nil {
					return err
				}
			} else if err := session.Autostart(ctx, s); err != nil {
				return err
			}
			now, err := stateOf(ctx, s)
			if err != nil || asJSON {
				return shown(s, now, err)
			}
			_, err = fmt.Fprintln(s.Out, text.Line(restartText(was, now)))
			return err
		}),
	}
	session.SocketFlag(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func restartText(was, now daemonState) string {
	line := fmt.Sprintf("started the daemon (berth %s, pid %d)", *now.Version, *now.PID)
	if was.Running {
		line = fmt.Sprintf("restarted the daemon: berth %s (pid %d) instead of berth %s (pid %d)", *now.Version, *now.PID, *was.Version, *was.PID)
	}
	if n := now.Jobs[string(job.Running)]; n > 0 {
		line += "; " + text.CountGrouped(n, "job") + " kept running"
	}
	return line
}

// renew stops the daemon and starts another as it was started.
func renew(ctx context.Context, s *session.Session, was daemonState) error {
	how, err := startedAs(s.Client.Peer())
	if err != nil {
		return problem.Newf(problem.Unable, "berth stop, then start it as before", "find out how the daemon was started: %w", err)
	}
	s.Target.StateDir = *was.StateDir
	if how.Service {
		return renewService(ctx, s)
	}
	if asked := os.Getenv("BERTH_SIM"); asked != "" {
		simulateCards(&how, asked)
	}
	// A daemon that is stopped frees the page's port, where another user could
	// listen before the next one does.
	hold, err := site.KeepPort(s.Target.StateDir)
	if err != nil {
		s.Say("warning: %v", err)
	}
	if hold != nil {
		defer hold.Close()
	}
	if err := stopDaemon(ctx, s); err != nil {
		return err
	}
	return s.Launch(ctx, how)
}

// renewService is renew by the user's own systemd.
func renewService(ctx context.Context, s *session.Session) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience+session.StartPatience)
	defer cancel()
	s.Client.Close() // a daemon waits for its connections
	if err := site.RestartUserService(ctx); err != nil {
		return problem.Newf(problem.Refused, session.ServiceHint, "%w", err)
	}
	s.Say("restarted your user service berth.service")
	return nil
}

// startedAs returns the command that started a running daemon.
func startedAs(pid int) (session.DaemonCommand, error) {
	if site.IsUserService(pid) {
		return session.DaemonCommand{Service: true}, nil
	}
	proc := fmt.Sprintf("/proc/%d", pid)
	args, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return session.DaemonCommand{}, err
	}
	env, err := os.ReadFile(filepath.Join(proc, "environ"))
	if err != nil {
		return session.DaemonCommand{}, err
	}
	dir, err := os.Readlink(filepath.Join(proc, "cwd"))
	if err != nil {
		return session.DaemonCommand{}, err
	}
	how := session.DaemonCommand{Args: words(args), Env: words(env), Dir: dir}
	if len(how.Args) < 2 || how.Args[1] != "serve" {
		return session.DaemonCommand{}, fmt.Errorf("process %d is not berth serve", pid)
	}
	how.Args = how.Args[1:]
	return how, nil
}

// simulateCards replaces the number of simulated GPUs, unless a flag has it.
func simulateCards(c *session.DaemonCommand, cards string) {
	c.Env = slices.DeleteFunc(c.Env, func(pair string) bool { return strings.HasPrefix(pair, "BERTH_SIM=") })
	c.Env = append(c.Env, "BERTH_SIM="+cards)
}

// words splits a list as the kernel shows it.
func words(list []byte) []string {
	return strings.Split(string(bytes.TrimRight(list, "\x00")), "\x00")
}
