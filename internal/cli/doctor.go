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
	"berth/internal/machine/gpu"
	"berth/internal/machine/site"
	"berth/internal/queue/daemon"
	"berth/internal/text"
)

func newDoctor() *cobra.Command {
	asJSON, cluster := false, false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine for problems",
		Long: `Check the daemon and everything on this machine that berth depends on. Each
finding is ok, warn (berth works, but less well) or fail, with a fix. Nothing is
changed. berth help reference/doctor explains each finding.

With --slurm it checks the Slurm cluster instead: whether it answers, which
nodes and GPUs it has, and what to put into the config (berth help
run-on-slurm).`,
		Example: `  berth doctor
  berth doctor --slurm
  sudo berth doctor
  berth doctor --json | jq '.[] | select(.status != "ok")'

Exit status: 0 no check failed; 1 at least one failed; 2 bad usage; 130
interrupted.`,
		Args: noWords,
		RunE: session.Look(func(ctx context.Context, s *session.Session, _ []string) error {
			if cluster {
				return doctorSlurm(ctx, s, asJSON)
			}
			findings := examine(ctx, s)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if asJSON {
				if err := printJSON(s.Out, findings); err != nil {
					return err
				}
				return verdictOf(findings)
			}
			return drawFindings(s.Screen, findings)
		}),
	}
	session.SocketFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array of findings; an object with --slurm")
	cmd.Flags().BoolVar(&cluster, "slurm", false, "check the Slurm cluster instead of this machine")
	cmd.Flags().Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

// daemonPatience is how long a daemon may take to report its status.
const daemonPatience = 5 * time.Second

// examine asks the daemon first, which knows its own paths.
func examine(ctx context.Context, s *session.Session) []site.Finding {
	asking, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	told, err := api.Call(asking, s.Client, api.GetStatus, api.None{})
	places, adminGroup := session.SharedPlaces(), site.AdminGroup
	if s.Target.Private || s.Target.Explicit {
		if own, err := site.PrivatePlaces(os.Getenv); err == nil {
			places = own
		}
	}
	if err == nil {
		if told.AdminGroup != nil { // an older daemon does not say
			adminGroup = *told.AdminGroup
		}
		places = site.Places{StateDir: told.StateDir, Socket: s.Target.Socket, Config: told.Config, Shared: told.Shared}
	}
	findings := append([]site.Finding{daemonFinding(told, err, s.Target), programFinding()}, site.Examine(ctx, places, adminGroup, gpu.HelperProtocol)...)
	findings = append(findings, daemon.CheckStore(ctx, places))
	if err == nil && told.Enforced != nil {
		applyDaemon(findings, *told.Enforced)
	}
	if err == nil {
		applySource(findings, told.Source)
		findings = append(findings, strayFinding(told.Strays))
	}
	return findings
}

// applyDaemon replaces what this process could enforce with what the daemon
// enforces: the jobs are the daemon's, and it may have other rights. The
// daemon's reasons are given once, with the first finding that is not ok.
func applyDaemon(findings []site.Finding, e api.Enforced) {
	reasons := e.Missing
	for i := range findings {
		f := &findings[i]
		switch f.Name {
		case "cgroup":
			f.Status, f.What, f.Fix = site.OK, "the daemon gives each job its own cgroup, below "+e.Cgroup, ""
			if e.Cgroup == "" {
				f.Status, f.Fix = site.Warn, "run the daemon as a systemd service (`make install-service`)"
				f.What = "the daemon cannot give jobs their own cgroups and tracks them by session and ancestry"
			}
		case "controllers":
			f.Status, f.What, f.Fix = site.OK, "the daemon enforces the cpus and mem of jobs", ""
			if e.CPUs == "" || e.Mem == "" {
				f.Status, f.Fix = site.Warn, "let systemd delegate the cpu and memory controllers to the daemon (Delegate=yes)"
				f.What = "the daemon counts the " + strings.Join(accounted(e), " and ") + " of jobs but does not enforce them"
			}
		case "isolation":
			if f.What == site.NoCards {
				continue
			}
			f.Status, f.What, f.Fix = site.OK, "the daemon lets each job open only its own GPUs", ""
			if !e.Devices {
				f.Status, f.Fix = site.Warn, "run the daemon as root, as a systemd service (`make install-service`), with cgroup v2"
				f.What = "the daemon cannot keep a job from opening other GPUs than its own"
			}
		default:
			continue
		}
		if f.Status != site.OK && len(reasons) > 0 {
			f.What += ": " + strings.Join(reasons, "; ")
			reasons = nil
		}
	}
}

// applySource warns if the daemon reads the GPUs through nvidia-smi although
// this process could use berth-gpu: it was started earlier, or has another one.
func applySource(findings []site.Finding, source string) {
	for i := range findings {
		if f := &findings[i]; f.Name == "nvml" && f.Status == site.OK && f.What != site.NoCards && source == "nvidia-smi" {
			f.Status, f.What = site.Warn, "the daemon reads the GPUs through nvidia-smi, which is slower and cannot read MIG"
			f.Fix = "put the berth-gpu of the same version beside the daemon's program and restart it; its log says why it is not used now"
		}
	}
}

// strayFinding reports jobs that the daemon's store does not know.
func strayFinding(strays int) site.Finding {
	if strays == 0 {
		return site.Finding{Name: "strays", Status: site.OK, What: "the daemon's store knows every supervisor"}
	}
	return site.Finding{
		Name: "strays", Status: site.Warn, Fix: "berth list --strays shows them; berth adopt --strays takes them back into the queue",
		What: fmt.Sprintf("the daemon's store does not know %s, left alone: it was emptied or restored from an older backup", text.Count(strays, "supervisor")),
	}
}

// accounted lists the limits that are not enforced.
func accounted(e api.Enforced) (names []string) {
	if e.CPUs == "" {
		names = append(names, "cpus")
	}
	if e.Mem == "" {
		names = append(names, "mem")
	}
	return names
}

// programFinding reports which berth this is.
func programFinding() site.Finding {
	program := thisProgram()
	return site.Finding{Name: "program", Status: site.OK, What: fmt.Sprintf("berth %s, %s: %s", session.Version, installed(session.Kind, program, exists), program)}
}

// daemonFinding reports whether a daemon answers, and its state.
func daemonFinding(daemon api.Status, err error, at session.Target) site.Finding {
	f := site.Finding{Name: "daemon", Status: site.OK}
	var missing *api.Unreachable
	switch {
	case errors.As(err, &missing) && at.Private:
		f.What, f.Fix = "not running; the next berth command that needs it starts it", ""
	case errors.As(err, &missing):
		f.Status, f.What, f.Fix = site.Fail, fmt.Sprintf("no answer at %s: %v", missing.Socket, missing.Err), at.Missed()
	case err != nil:
		f.Status, f.What, f.Fix = site.Fail, fmt.Sprintf("%s: %v", at.Socket, err), "read berth.log in its state directory"
	default:
		kind := "private"
		if daemon.Shared {
			kind = "shared"
		}
		f.What = fmt.Sprintf("berth %s (pid %d), %s, up %s, state in %s; %s",
			daemon.Version, daemon.PID, kind, text.Span(time.Since(daemon.Since)), daemon.StateDir, render.CountLine(daemon.Counts, 1))
		if daemon.Source != "" {
			f.What += "; GPU source: " + daemon.Source
		}
		if len(daemon.Warnings) > 0 {
			f.Status, f.What, f.Fix = site.Warn, f.What+"; "+strings.Join(daemon.Warnings, "; "), "correct the daemon's config (berth help config) or end the process that has its port, then sudo systemctl reload berth, or restart the daemon"
		}
		if daemon.Blocked != "" {
			f.Status, f.What, f.Fix = site.Warn, f.What+"; no job can start: "+daemon.Blocked, "berth gpus shows the GPUs as the daemon sees them"
		}
	}
	return f
}

func verdictOf(findings []site.Finding) error {
	for _, f := range findings {
		if f.Status == site.Fail {
			return session.ExitFailed
		}
	}
	return nil
}

func drawFindings(s render.Screen, findings []site.Finding) error {
	colours := map[string]text.Paint{site.OK: text.Green, site.Warn: text.Yellow, site.Fail: text.Red}
	widest := 0
	for _, f := range findings {
		if f.What != site.NoCards {
			widest = max(widest, text.Width(f.Name))
		}
	}
	counts := map[string]int{}
	var moot []string // findings about GPUs on a machine without one: one line is enough
	for _, f := range findings {
		counts[f.Status]++
		if f.Status == site.OK && f.What == site.NoCards {
			moot = append(moot, text.Line(f.Name))
			continue
		}
		fmt.Fprintf(s.Out, "%s  %-*s  %s\n", s.Painted(colours[f.Status], fmt.Sprintf("%-4s", text.Line(f.Status))), widest, text.Line(f.Name), text.Line(f.What))
		if f.Fix != "" && f.Status != site.OK {
			fmt.Fprintf(s.Out, "%*s%s\n", 4+2+widest+2, "", text.Line("fix: "+f.Fix))
		}
	}
	if len(moot) > 0 {
		fmt.Fprintf(s.Out, "%s  %-*s  %s: %s\n", s.Painted(text.Green, "ok  "), widest, "the rest", site.NoCards, strings.Join(moot, ", "))
	}
	fmt.Fprintf(s.Out, "%d ok, %d to improve, %d failing\n", counts[site.OK], counts[site.Warn], counts[site.Fail])
	return verdictOf(findings)
}
