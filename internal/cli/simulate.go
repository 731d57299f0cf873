package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/sched/report"
	"berth/internal/sched/sim"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// simulateOptions are the flags of `berth simulate`.
type simulateOptions struct {
	policies  []string
	gpus      int
	vram      string
	parkCost  string
	parkGangs bool
	parkMem   string
	share     string
	gangSaves string
	restart   string
	estimates string
	maxBypass string
	minRun    string
	halfLife  string
	placement string
	seeds     int
	history   bool
	since     string
	json      bool
	csv       string
	html      string
}

// maxSeeds bounds how long a replay takes; more would hardly narrow the interval.
const maxSeeds = 1000

func newSimulate() *cobra.Command {
	o := &simulateOptions{}
	cmd := &cobra.Command{
		Use:   "simulate TRACE.csv | SNAPSHOT.json | --history",
		Short: "Replay jobs under several policies and compare",
		Long: `Replay a trace, the daemon's own history or a snapshot in virtual time. The
decisions are those the daemon would make; no job runs. For each policy the
table shows how long jobs would have waited, how well the GPUs would have been
used and how fair it would have been to users, next to a lower bound that no
scheduler can beat.

A trace is a CSV file with a header. It has the columns submit_s and duration_s,
and optionally job_id, user, gpus (default 1), gpu_milli (share of each GPU in
thousandths), vram_mib (declared), vram_used_mib (peak), time_limit_s, priority,
parks (yes or no), checkpoint_s (how often the job saves its own work, or term),
and command or name (to recognise jobs of the same program). Other columns are
ignored.

A snapshot comes from berth debug snapshot: running jobs end when expected, and
the queue drains.

The scheduler does not know how long a job will run. It estimates this as on a
live machine, from earlier jobs of the same user and command; --estimates
selects another source. With --park-cost, the policies default and las may park
every job with one GPU and resume it later on the same GPU, as a daemon with
parking = "all" does. Without, only jobs whose column parks says yes are parked.
berth help reference/simulate explains every flag and figure.

Policies:` + policyHelp(),
		Example: `  berth simulate trace.csv
  berth simulate trace.csv --policy fifo,backfill,fair --gpus 4 --vram 24G
  berth simulate trace.csv --policy default,las --park-cost measured
  berth simulate trace.csv --park-cost measured --gang-checkpoint 30m
  berth simulate --history --policy backfill,fair
  berth simulate --history --since 30d --html report.html
  berth debug snapshot | berth simulate - --policy default,shortest
  berth simulate trace.csv --seeds 20 --json

Exit status: 0 replayed; 1 nothing to replay, no daemon, or a file could not be
written; 2 bad usage or an unreadable trace or snapshot; 130 interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.start(cmd, args) },
	}
	session.DaemonFlags(cmd)
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&o.policies, "policy", []string{sim.Default, "backfill"}, "policies to compare: "+strings.Join(sim.PolicyNames(), ", ")+" (if not given: "+sim.Default+",backfill)")
	flags.Lookup("policy").DefValue = "[]" // not "default default,backfill"
	flags.IntVar(&o.gpus, "gpus", 8, "number of GPUs (with --history or a snapshot: as many as the daemon has)")
	flags.StringVar(&o.vram, "vram", "80G", "memory of each GPU (with --history or a snapshot: as the daemon's GPUs have)")
	o.replayFlags(cmd)
	flags.BoolVar(&o.history, "history", false, "replay the jobs from the daemon's history")
	flags.StringVar(&o.since, "since", "90d", "with --history, only jobs that ended since then: 7d (ago), 2026-03-01")
	flags.IntVar(&o.seeds, "seeds", 0, "replay this many slightly varied copies, to get means and 95 % intervals")
	flags.BoolVar(&o.json, "json", false, "print a JSON array with one object per policy")
	flags.StringVar(&o.csv, "csv", "", "write the figures to this `file`, one line per policy")
	flags.StringVar(&o.html, "html", "", "write a page with charts to this `file`")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

func policyHelp() string {
	var b strings.Builder
	for _, p := range sim.Policies() {
		for i, line := range text.Wrap(p.About, 64) {
			name := p.Name
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(&b, "\n  %-13s %s", name, line)
		}
	}
	return b.String()
}

// start opens the workload and runs it. A trace needs no daemon, and is read
// before signals are caught, so that Ctrl-C works while a pipe is silent.
func (o *simulateOptions) start(cmd *cobra.Command, args []string) error {
	set, err := o.check(cmd, args)
	if err != nil {
		return err
	}
	if o.history {
		return session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			w, err := o.fetchHistory(ctx, s, &set, time.Now())
			if err == nil {
				err = o.asTheDaemonParks(ctx, s, &set)
			}
			if err != nil {
				return err
			}
			return o.run(ctx, s, w, &set)
		})(cmd, args)
	}
	w, err := openWorkload(args[0], cmd.InOrStdin())
	if err != nil {
		return err
	}
	if err := fitMachine(w, &set); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	noColour, _ := cmd.Flags().GetBool("no-color")
	s := &session.Session{Screen: render.NewScreen(cmd.OutOrStdout(), noColour, os.Getenv), ErrOut: cmd.ErrOrStderr()}
	err = o.run(ctx, s, w, &set)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return session.ExitInterrupted
	}
	return session.Failed(err, session.Target{})
}

// check reads the flags before anything is opened.
func (o *simulateOptions) check(cmd *cobra.Command, args []string) (settings, error) {
	switch changed := cmd.Flags().Changed; {
	case o.history && len(args) > 0:
		return settings{}, problem.Newf(problem.Invalid, "berth simulate "+args[0], "expected a trace or --history, found both")
	case !o.history && len(args) != 1:
		return settings{}, problem.Newf(problem.Invalid, "berth simulate trace.csv, berth simulate snapshot.json, or berth simulate --history", "expected one trace or snapshot, found %d", len(args))
	case !o.history && changed("since"):
		return settings{}, problem.Newf(problem.Invalid, "berth simulate --history --since "+o.since, "--since needs --history")
	}
	return o.read(cmd)
}

// fitMachine applies --gpus and --vram. Jobs of a snapshot already have GPUs, so
// its machine can only grow.
func fitMachine(w *sim.Workload, set *settings) error {
	if w.Origin != sim.OfSnapshot {
		w.Machine = set.machine
		return nil
	}
	own := w.Machine
	if set.changed("gpus") {
		w.Machine.GPUs = set.machine.GPUs
	}
	if set.changed("vram") {
		w.Machine.VRAMMiB = set.machine.VRAMMiB
	}
	if w.Machine.GPUs < own.GPUs || w.Machine.VRAMMiB < own.VRAMMiB {
		return problem.Newf(problem.Invalid, "leave --gpus and --vram out, or make them larger", "%s: expected at least %s", w.Source, report.Machine(own))
	}
	return nil
}

func (o *simulateOptions) parsePolicies() ([]sim.Policy, error) {
	var policies []sim.Policy
	for _, name := range o.policies {
		name = strings.ToLower(strings.TrimSpace(name))
		p, err := sim.ParsePolicy(name)
		if err != nil {
			return nil, &problem.Problem{Kind: problem.Invalid, What: "--policy: " + err.Error(), Hint: text.DidYouMean(name, sim.PolicyNames())}
		}
		if !slices.ContainsFunc(policies, func(known sim.Policy) bool { return known.Name == p.Name }) {
			policies = append(policies, p)
		}
	}
	if len(policies) == 0 {
		return nil, problem.Newf(problem.Invalid, "policies: "+strings.Join(sim.PolicyNames(), ", "), "--policy: expected a policy, found nothing")
	}
	return policies, nil
}

// emptyHint says where to find jobs to replay.
func (o *simulateOptions) emptyHint(w *sim.Workload) string {
	switch {
	case o.history:
		return "berth simulate --history --since 365d looks further back; berth history lists the jobs"
	case w.Origin == sim.OfSnapshot:
		return "the snapshot has no jobs; berth simulate --history replays earlier ones"
	}
	return ""
}

func (o *simulateOptions) run(ctx context.Context, s *session.Session, w *sim.Workload, set *settings) error {
	for _, remark := range report.Before(w) {
		s.Say("%s", remark)
	}
	if len(w.Jobs) == 0 {
		return problem.Newf(problem.Unable, o.emptyHint(w), "%s: no jobs to replay", w.Source)
	}
	set.lend(w)
	replays, err := replayAll(ctx, w, set, o.seeds, newProgress(s.ErrOut, time.Now))
	if err != nil {
		return err
	}
	r := &report.Report{Work: w, Replays: replays, Park: w.Parking(set.choices), Asked: o.askedFor(set.changed)}
	for _, remark := range r.After() {
		s.Say("%s", remark)
	}
	if replays[0].Jobs == 0 {
		return problem.Newf(problem.Unable, "try more with --gpus and --vram", "no job of %s fits on %s", w.Source, report.Machine(w.Machine))
	}
	wrote, err := o.writeFiles(r)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.Out, replays)
	}
	fmt.Fprint(s.Out, r.Table(s.Width, s.Colour))
	for _, bound := range r.Bounds() {
		fmt.Fprintf(s.Out, "\n%s", bound)
	}
	if len(r.Bounds()) > 0 {
		fmt.Fprintln(s.Out)
	}
	for _, path := range wrote {
		fmt.Fprintf(s.Out, "\nwrote %s", text.Line(path))
	}
	if len(wrote) > 0 {
		fmt.Fprintln(s.Out)
	}
	return nil
}

// writeFiles writes the requested files and returns their names.
func (o *simulateOptions) writeFiles(r *report.Report) (wrote []string, err error) {
	if o.csv != "" {
		if err := writeFile(o.csv, r.CSV()); err != nil {
			return nil, err
		}
		wrote = append(wrote, o.csv)
	}
	if o.html != "" {
		page, err := r.Page()
		if err != nil {
			return nil, err
		}
		if err := writeFile(o.html, page); err != nil {
			return nil, err
		}
		wrote = append(wrote, o.html)
	}
	return wrote, nil
}

// askedFor lists the given flags that change the figures, for readers of the
// page.
func (o *simulateOptions) askedFor(changed func(flag string) bool) string {
	var asked []string
	for _, flag := range []struct{ name, value string }{
		{"park-cost", o.parkCost}, {"park-memory", o.parkMem}, {"user-share", o.share}, {"gang-checkpoint", o.gangSaves}, {"restart-cost", o.restart}, {"estimates", o.estimates}, {"max-bypass", o.maxBypass}, {"min-run", o.minRun}, {"half-life", o.halfLife}, {"placement", o.placement},
	} {
		if changed(flag.name) {
			asked = append(asked, "--"+flag.name+" "+strings.TrimSpace(flag.value))
		}
	}
	if o.parkGangs {
		asked = append(asked, "--park-gangs")
	}
	return strings.Join(asked, " ")
}

func writeFile(path string, data []byte) error {
	if err := replaceFile(path, data, 0o644); err != nil {
		return problem.Newf(problem.Unable, "", "write %s: %w", path, err)
	}
	return nil
}
