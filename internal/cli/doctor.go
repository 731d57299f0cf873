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
	"berth/internal/gpu"
	"berth/internal/site"
	"berth/internal/text"
)

func newDoctor() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is missing on this machine",
		Long: `Look at everything on this machine that berth depends on, and at the daemon.
Each finding is ok, warn (berth works, but less well) or fail, with what to do
about it. Nothing is changed.`,
		Example: `  berth doctor
  sudo berth doctor
  berth doctor --json | jq '.[] | select(.status != "ok")'

Exit status: 0 nothing fails; 1 something does; 2 bad usage; 130 interrupted.`,
		Args: noWords,
		RunE: verb(func(ctx context.Context, s *session, _ []string) error {
			findings := examine(ctx, s)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if asJSON {
				if err := printJSON(s.out, findings); err != nil {
					return err
				}
				return verdictOf(findings)
			}
			return drawFindings(s.screen, findings)
		}),
	}
	socketFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "an array of findings")
	cmd.Flags().Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

// daemonPatience is how long a daemon may take to say how it is.
const daemonPatience = 5 * time.Second

// examine asks the daemon first: it knows which places are its own.
func examine(ctx context.Context, s *session) []site.Finding {
	asking, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	daemon, err := s.client.Status(asking)
	places := sharedPlaces()
	if s.target.private || s.target.explicit {
		if own, err := site.PrivatePlaces(os.Getenv); err == nil {
			places = own
		}
	}
	if err == nil {
		places = site.Places{StateDir: daemon.StateDir, Socket: s.target.socket, Config: daemon.Config, Shared: daemon.Shared}
	}
	findings := append([]site.Finding{daemonFinding(daemon, err, s.target)}, site.Examine(ctx, places, gpu.HelperProtocol)...)
	if err == nil && daemon.Enforced != nil {
		hearDaemon(findings, *daemon.Enforced)
	}
	if err == nil {
		hearSource(findings, daemon.Source)
	}
	return findings
}

// hearDaemon puts what a daemon holds its jobs to in the place of what this
// process could: the jobs are the daemon's, and it may have other rights.
func hearDaemon(findings []site.Finding, e api.Enforced) {
	for i := range findings {
		f := &findings[i]
		switch f.Name {
		case "cgroup":
			f.Status, f.What, f.Fix = site.OK, "the daemon gives every job a cgroup, below "+e.Cgroup, ""
			if e.Cgroup == "" {
				f.Status, f.Fix = site.Warn, "run the daemon as a service of systemd (`make install-service`)"
				f.What = "the daemon gives jobs no cgroups, they are followed by session and ancestry"
			}
		case "controllers":
			f.Status, f.What, f.Fix = site.OK, "the daemon holds jobs to their cpus and mem", ""
			if e.CPUs == "" || e.Mem == "" {
				f.Status, f.Fix = site.Warn, "let systemd delegate the cpu and memory controllers to the daemon (Delegate=yes)"
				f.What = "the daemon accounts " + strings.Join(accounted(e), " and ") + ", and does not enforce it"
			}
		case "isolation":
			if f.What == site.NoCards {
				continue
			}
			f.Status, f.What, f.Fix = site.OK, "the daemon lets a job open no cards but its own", ""
			if !e.Devices {
				f.Status, f.Fix = site.Warn, "run the daemon as root, as a service of systemd (`make install-service`), on cgroup version 2"
				f.What = "the daemon cannot keep a job from opening cards that it was not given"
			}
		default:
			continue
		}
		if why := reasonsFor(f.Name, e.Missing); f.Status != site.OK && len(why) > 0 {
			f.What += ": " + strings.Join(why, "; ")
		}
	}
}

// hearSource says how a daemon reads the cards, where that is not how this
// process could: it was started before berth-gpu was there, or has another.
func hearSource(findings []site.Finding, source string) {
	for i := range findings {
		if f := &findings[i]; f.Name == "nvml" && f.Status == site.OK && f.What != site.NoCards && source == "nvidia-smi" {
			f.Status, f.What = site.Warn, "the daemon reads the cards through nvidia-smi: slower, once a poll, no MIG"
			f.Fix = "its log says why it does not use berth-gpu; put the one that came with it beside it, and restart it"
		}
	}
}

// reasonsFor are those of a daemon's reasons that explain one finding, or all
// of them where none is known to.
func reasonsFor(name string, missing []string) []string {
	about := map[string][]string{
		"cgroup":      {"no cgroup"},
		"controllers": {"not enforced"},
		"isolation":   {"can open GPUs", "no cgroup"}, // without one there is no filter either
	}
	for _, words := range about[name] {
		var found []string
		for _, reason := range missing {
			if head, _, _ := strings.Cut(reason, ":"); strings.Contains(head, words) {
				found = append(found, strings.TrimPrefix(reason, "a job can open GPUs that were not allocated to it: "))
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return missing
}

// accounted is what jobs are not held to.
func accounted(e api.Enforced) (names []string) {
	if e.CPUs == "" {
		names = append(names, "cpus")
	}
	if e.Mem == "" {
		names = append(names, "mem")
	}
	return names
}

// daemonFinding says whether a daemon answers, and what it says.
func daemonFinding(daemon api.Status, err error, at target) site.Finding {
	f := site.Finding{Name: "daemon", Status: site.OK}
	var missing *api.Unreachable
	switch {
	case errors.As(err, &missing) && at.private:
		f.What, f.Fix = "none is running; the first berth submit starts one of your own", ""
	case errors.As(err, &missing):
		f.Status, f.What, f.Fix = site.Fail, fmt.Sprintf("none answers at %s: %v", missing.Socket, missing.Err), at.missed()
	case err != nil:
		f.Status, f.What, f.Fix = site.Fail, fmt.Sprintf("%s: %v", at.socket, err), "look at its log, berth.log in its state directory"
	default:
		kind := "private"
		if daemon.Shared {
			kind = "shared"
		}
		f.What = fmt.Sprintf("berth %s (pid %d), %s, up %s, state in %s; %s",
			daemon.Version, daemon.PID, kind, text.Span(time.Since(daemon.Since)), daemon.StateDir, countLine(daemon.Counts, 1))
		if daemon.Source != "" {
			f.What += "; cards through " + daemon.Source
		}
		if daemon.Blocked != "" {
			f.Status, f.What, f.Fix = site.Warn, f.What+"; nothing starts: "+daemon.Blocked, "berth gpus shows the cards as it sees them"
		}
	}
	return f
}

func verdictOf(findings []site.Finding) error {
	for _, f := range findings {
		if f.Status == site.Fail {
			return status(exitFailed)
		}
	}
	return nil
}

func drawFindings(s screen, findings []site.Finding) error {
	colours := map[string]text.Paint{site.OK: text.Green, site.Warn: text.Yellow, site.Fail: text.Red}
	widest := 0
	for _, f := range findings {
		if f.What != site.NoCards {
			widest = max(widest, text.Width(f.Name))
		}
	}
	counts := map[string]int{}
	var moot []string // what only cards need, where there are none: one line is enough
	for _, f := range findings {
		counts[f.Status]++
		if f.Status == site.OK && f.What == site.NoCards {
			moot = append(moot, text.Line(f.Name))
			continue
		}
		fmt.Fprintf(s.out, "%s  %-*s  %s\n", s.painted(colours[f.Status], fmt.Sprintf("%-4s", text.Line(f.Status))), widest, text.Line(f.Name), text.Line(f.What))
		if f.Fix != "" && f.Status != site.OK {
			fmt.Fprintf(s.out, "%*s%s\n", 4+2+widest+2, "", text.Line("fix: "+f.Fix))
		}
	}
	if len(moot) > 0 {
		fmt.Fprintf(s.out, "%s  %-*s  %s: %s\n", s.painted(text.Green, "ok  "), widest, "the rest", site.NoCards, strings.Join(moot, ", "))
	}
	fmt.Fprintf(s.out, "%d ok, %d to improve, %d failing\n", counts[site.OK], counts[site.Warn], counts[site.Fail])
	return verdictOf(findings)
}
