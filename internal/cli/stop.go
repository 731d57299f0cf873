package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// stopPatience is how long a daemon may take to answer pending requests and end.
const stopPatience = time.Minute

func newStop() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop your private daemon; jobs keep running",
		Long: `Stop your private daemon, and wait until it has ended. Running jobs go on under
their supervisors, and their exit statuses are kept for the next daemon. Queued
jobs wait for it. Any command that finds jobs starts it again. The port of its
page is free then, and browsers are logged out.

To stop jobs, use berth cancel.`,
		Example: `  berth stop
  berth cancel all && berth wait all; berth stop

Exit status: 0 it is not running any more; 1 it could not be stopped, or is the
machine's; 2 bad usage; 130 interrupted.`,
		Args: noJobs("cancel"),
		RunE: session.Look(func(ctx context.Context, s *session.Session, _ []string) error {
			was, err := privateDaemon(ctx, s, "stop")
			if err != nil {
				return err
			}
			now := was
			if was.Running {
				if err := stopDaemon(ctx, s); err != nil {
					return err
				}
				now = daemonState{Client: session.Version, StateDir: was.StateDir, Socket: was.Socket, Jobs: was.Jobs, Warnings: []string{}}
			}
			if asJSON {
				return printJSON(s.Out, now)
			}
			_, err = fmt.Fprintln(s.Out, text.Line(stopText(was)))
			return err
		}),
	}
	session.SocketFlag(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// stopText says what was stopped and what keeps running.
func stopText(was daemonState) string {
	line := "no daemon is running"
	if was.Running {
		line = fmt.Sprintf("stopped the daemon (pid %d)", *was.PID)
	}
	if n := was.Jobs[string(job.Running)]; n > 0 {
		line += "; " + goOn(n)
	}
	if n := was.Jobs[string(job.Parked)]; n > 0 {
		line += fmt.Sprintf("; %s %s parked", text.CountGrouped(n, "job"), text.Verb(n, "stay"))
	}
	if n := was.Jobs[string(job.Queued)]; n == 1 {
		line += "; 1 queued job waits for the next daemon"
	} else if n > 1 {
		line += fmt.Sprintf("; %s queued jobs wait for the next daemon", text.Grouped(n))
	}
	return line
}

// stopDaemon ends the daemon's process, and returns when it is gone.
func stopDaemon(ctx context.Context, s *session.Session) error {
	pid := s.Client.Peer()
	if pid == 0 {
		return problem.Newf(problem.Unable, "stop it where it was started", "the daemon's process cannot be seen from here")
	}
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return problem.Newf(problem.Unable, "", "find the daemon (process %d): %w", pid, err)
	}
	defer unix.Close(handle)
	// The number may have been given to another process before it was opened,
	// but not if the daemon still has it now.
	if _, err := api.Call(ctx, s.Client, api.GetStatus, api.None{}); err != nil || s.Client.Peer() != pid {
		return problem.Newf(problem.Unable, "berth status shows what runs now", "the daemon (process %d) ended by itself", pid)
	}
	s.Client.Close() // a daemon waits for its connections
	if err := unix.PidfdSendSignal(handle, unix.SIGTERM, nil, 0); err != nil {
		return problem.Newf(problem.Unable, "", "stop the daemon (process %d): %w", pid, err)
	}
	for deadline := time.Now().Add(stopPatience); ; {
		gone, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, 0)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for the daemon (process %d): %w", pid, err)
		case gone > 0:
			return nil
		case time.Now().After(deadline):
			return problem.Newf(problem.Unable, fmt.Sprintf("kill -9 %d ends it; jobs and queue survive that", pid), "the daemon (process %d) has not ended after %s", pid, text.Span(stopPatience))
		}
		if err := api.Pause(ctx, session.StartPoll); err != nil {
			return err
		}
	}
}
