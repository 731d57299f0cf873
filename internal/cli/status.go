package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue/daemon"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// daemonState is the JSON of `berth status`, `start`, `stop` and `restart`.
// What only a daemon knows is null without one.
type daemonState struct {
	Running  bool           `json:"running"`
	Version  *string        `json:"version"` // of the daemon
	Client   string         `json:"client_version"`
	PID      *int           `json:"pid"`
	Since    *time.Time     `json:"since"`
	Shared   bool           `json:"shared"`
	StateDir *string        `json:"state_dir"`
	Socket   string         `json:"socket"`
	Jobs     map[string]int `json:"jobs"`    // by state; without a daemon, those that run under their supervisors
	Blocked  *string        `json:"blocked"` // why no job starts
	Warnings []string       `json:"warnings"`
	Parking  *api.Parking   `json:"parking"`
}

func newStatus() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether a daemon runs, and how many jobs it has",
		Long: `Show whether a daemon runs, its version, since when, its state directory and
socket, and its jobs by state. Unlike other commands, status never starts a
daemon.`,
		Example: `  berth status
  berth status --json | jq .jobs
  berth status >/dev/null || berth start

Exit status: 0 a daemon runs; 1 no daemon runs, or it does not answer; 2 bad
usage; 130 interrupted.`,
		Args: noJobs("show"),
		RunE: session.Look(func(ctx context.Context, s *session.Session, _ []string) error {
			state, err := stateOf(ctx, s)
			if err != nil {
				return err
			}
			if err := state.show(s, asJSON); err != nil {
				return err
			}
			if !state.Running {
				return session.ExitFailed
			}
			return nil
		}),
	}
	session.DaemonFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print a JSON object")
}

// stateOf asks the daemon about itself. Without one, it looks for jobs that go on
// without it.
func stateOf(ctx context.Context, s *session.Session) (daemonState, error) {
	d := daemonState{Client: session.Version, Socket: s.Client.Place(), Jobs: map[string]int{}, Warnings: []string{}}
	told, err := api.Call(ctx, s.Client, api.GetStatus, api.None{})
	if missing, is := errors.AsType[*api.Unreachable](err); is && s.Target.Host == nil {
		if s.Target.StateDir != "" {
			d.StateDir = &s.Target.StateDir
			d.Jobs = running(s.Target.StateDir)
		} else if os.IsPermission(missing.Err) {
			return d, err
		}
		return d, nil
	}
	if err != nil {
		return d, err
	}
	page, err := api.Call(ctx, s.Client, api.ListJobs, api.Query{Over: true, Limit: 1})
	if err != nil {
		return d, err
	}
	d.Running, d.Version, d.PID, d.Since, d.Shared, d.StateDir = true, &told.Version, &told.PID, &told.Since, told.Shared, &told.StateDir
	d.Jobs, d.Warnings, d.Parking = page.Counts, notNull(told.Warnings), told.Parking
	if told.Blocked != "" {
		d.Blocked = &told.Blocked
	}
	return d, nil
}

// running counts the jobs that run under their supervisors without a daemon.
func running(stateDir string) map[string]int {
	living, err := daemon.Living(site.Places{StateDir: stateDir})
	if err != nil || len(living) == 0 {
		return map[string]int{} // another user's, or none
	}
	return map[string]int{string(job.Running): len(living)}
}

// parkingPace says how fast jobs are parked, and how many more can be.
func parkingPace(p *api.Parking) string {
	switch {
	case p == nil:
		return ""
	case p.Cannot != "":
		return "not possible: " + p.Cannot
	}
	line := fmt.Sprintf("%.1f GiB/s out, %.1f GiB/s back", p.OutMiBs/1024, p.BackMiBs/1024)
	if p.HostMiB > 0 {
		line += fmt.Sprintf("; %s GiB parked", text.GiB(p.HostMiB))
	}
	if p.RoomMiB != nil {
		line += fmt.Sprintf("; room for %s GiB more in host memory", text.GiB(*p.RoomMiB))
	}
	return line
}

func (d daemonState) show(s *session.Session, asJSON bool) error {
	if asJSON {
		return printJSON(s.Out, d)
	}
	f := &render.Facts{}
	if !d.Running {
		f.Add("daemon", "not running")
	} else {
		kind := "private"
		if d.Shared {
			kind = "shared"
		}
		f.Add("daemon", fmt.Sprintf("running: berth %s, %s, pid %d", *d.Version, kind, *d.PID))
		f.Add("since", fmt.Sprintf("%s (%s)", d.Since.Local().Format("2006-01-02 15:04:05"), text.Span(time.Since(*d.Since))))
	}
	if d.StateDir != nil {
		f.Add("state", *d.StateDir)
	}
	f.Add("socket", d.Socket)
	f.Add("jobs", d.jobs())
	f.Add("parking", parkingPace(d.Parking))
	if d.Blocked != nil {
		f.Add("blocked", *d.Blocked)
	}
	if len(d.Warnings) > 0 {
		f.Add("warnings", strings.Join(d.Warnings, "; "))
	}
	return f.Draw(s.Screen)
}

// jobs counts the jobs by state. Without a daemon only running ones are known.
func (d daemonState) jobs() string {
	if d.Running {
		return render.CountLine(d.Jobs, 1)
	}
	if n := d.Jobs[string(job.Running)]; n > 0 {
		return goOn(n)
	}
	return "none running"
}

// goOn says that jobs keep running without a daemon.
func goOn(n int) string {
	if n == 1 {
		return "1 job goes on running under its supervisor"
	}
	return text.CountGrouped(n, "job") + " go on running under their supervisors"
}

// privateDaemon is the state of a daemon that its user may start and stop, or a
// refusal: a shared one belongs to the service manager.
func privateDaemon(ctx context.Context, s *session.Session, verb string) (daemonState, error) {
	d, err := stateOf(ctx, s)
	switch {
	case err != nil:
		return d, err
	case d.Shared || !d.Running && !s.Target.Private && !s.Target.Explicit:
		return d, problem.Newf(problem.Refused, "sudo systemctl "+verb+" berth", "berth %s is for a private daemon; the service manager runs the shared one", verb)
	}
	return d, nil
}
