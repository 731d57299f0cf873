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

	"berth/internal/problem"
	"berth/internal/report"
	"berth/internal/sim"
	"berth/internal/text"
)

// simulateOptions are the flags of `berth simulate`.
type simulateOptions struct {
	policies  []string
	gpus      int
	vram      string
	parkCost  string
	estimates string
	maxBypass string
	halfLife  string
	placement string
	seeds     int
	history   bool
	since     string
	json      bool
	csv       string
	html      string
}

// maxSeeds bounds how long a replay may take: the interval is as narrow as
// anyone needs by then.
const maxSeeds = 1000

func newSimulate() *cobra.Command {
	o := &simulateOptions{}
	cmd := &cobra.Command{
		Use:   "simulate TRACE.csv | SNAPSHOT.json | --history",
		Short: "Replay jobs under several policies and compare",
		Long: `Replay a trace, this daemon's own history, or what a snapshot of a daemon would
come to, in virtual time: the decisions are those the daemon would make, and no
job runs. For each policy it says how long jobs would have waited, how well the
cards would have been used, and how evenly users would have fared, beside what
no scheduler could better.

A trace is a CSV file with a header. Columns: submit_s and duration_s, and where
it has them job_id, user, gpus (1 where it does not say), gpu_milli (the part of
each GPU, 1000 is all), vram_mib (declared), vram_used_mib (really used),
time_limit_s, priority, and command or name (which runs are of the same
program). Others are ignored.

A snapshot is what berth debug snapshot writes: what runs goes on for as long as
is expected, and the queue drains.

Durations are not known to a scheduler. They are guessed as on a live machine,
from what the same user and command did before; --estimates takes other guesses.
With --park-cost jobs may be set aside for others and go on later, under
policies that do so: default and las.

Policies:` + policyHelp(),
		Example: `  berth simulate trace.csv
  berth simulate trace.csv --policy fifo,backfill,fair --gpus 4 --vram 24G
  berth simulate trace.csv --policy default,las --park-cost 20
  berth simulate --history --policy backfill,fair
  berth simulate --history --since 30d --html report.html
  berth debug snapshot | berth simulate - --policy default,shortest
  berth simulate trace.csv --seeds 20 --json

Exit status: 0 replayed; 1 nothing to replay, no daemon, or a file could not be
written; 2 bad usage or an unreadable trace or snapshot; 130 interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.start(cmd, args) },
	}
	daemonFlags(cmd)
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&o.policies, "policy", []string{sim.Default, "backfill"}, "policies to compare: "+strings.Join(sim.PolicyNames(), ", "))
	flags.IntVar(&o.gpus, "gpus", 8, "cards of the machine (with --history or a snapshot: those of the daemon)")
	flags.StringVar(&o.vram, "vram", "80G", "memory of each card (with --history or a snapshot: that of the daemon's)")
	o.replayFlags(cmd)
	flags.BoolVar(&o.history, "history", false, "replay the jobs that this daemon ran")
	flags.StringVar(&o.since, "since", "90d", "with --history, only what ended since then: 7d, 2026-03-01")
	flags.IntVar(&o.seeds, "seeds", 0, "replay so many slightly different copies; gives means and 95 % intervals")
	flags.BoolVar(&o.json, "json", false, "an array, one object for each policy")
	flags.StringVar(&o.csv, "csv", "", "write the figures to this `file`, one line for each policy")
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

// start is run with what it needs of the world. A trace needs no daemon, and
// is read before interrupts are caught: Ctrl-C ends even a pipe that is silent.
func (o *simulateOptions) start(cmd *cobra.Command, args []string) error {
	set, err := o.check(cmd, args)
	if err != nil {
		return err
	}
	if o.history {
		return verb(func(ctx context.Context, s *session, _ []string) error {
			w, err := o.fetchHistory(ctx, s, set.machine, set.changed, time.Now())
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
	s := &session{screen: newScreen(cmd.OutOrStdout(), noColour, os.Getenv), errOut: cmd.ErrOrStderr()}
	err = o.run(ctx, s, w, &set)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return status(exitInterrupted)
	}
	return failed(err, target{})
}

// check reads the flags before anything is opened.
func (o *simulateOptions) check(cmd *cobra.Command, args []string) (settings, error) {
	switch changed := cmd.Flags().Changed; {
	case o.history && len(args) > 0:
		return settings{}, problem.Newf(problem.Invalid, "berth simulate "+args[0], "a trace, or --history: not both")
	case !o.history && len(args) != 1:
		return settings{}, problem.Newf(problem.Invalid, "berth simulate trace.csv, berth simulate snapshot.json, or berth simulate --history", "simulate takes one trace or snapshot, %d given", len(args))
	case !o.history && changed("since"):
		return settings{}, problem.Newf(problem.Invalid, "berth simulate --history --since "+o.since, "--since goes with --history")
	}
	return o.read(cmd)
}

// fitMachine puts the workload on the machine that was asked for. Jobs of a
// snapshot are on their cards already: it can have more and larger ones, not
// fewer.
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
		return problem.Newf(problem.Invalid, "leave them out", "%s has jobs on %s: --gpus and --vram can only make that more", w.Source, report.Machine(own))
	}
	return nil
}

func (o *simulateOptions) parsePolicies() ([]sim.Policy, error) {
	var policies []sim.Policy
	for _, name := range o.policies {
		name = strings.ToLower(strings.TrimSpace(name))
		p, err := sim.ParsePolicy(name)
		if err != nil {
			return nil, &problem.Problem{Kind: problem.Invalid, What: "--policy: " + err.Error(), Hint: nearestHint(name, sim.PolicyNames())}
		}
		if !slices.ContainsFunc(policies, func(known sim.Policy) bool { return known.Name == p.Name }) {
			policies = append(policies, p)
		}
	}
	if len(policies) == 0 {
		return nil, problem.Newf(problem.Invalid, "known are "+strings.Join(sim.PolicyNames(), ", "), "--policy: none named")
	}
	return policies, nil
}

// emptyHint says where jobs to replay could come from.
func (o *simulateOptions) emptyHint(w *sim.Workload) string {
	switch {
	case o.history:
		return "berth simulate --history --since 365d looks further back; berth history shows what there is"
	case w.Origin == sim.OfSnapshot:
		return "nothing ran and nothing was queued; berth simulate --history replays what ran before"
	}
	return ""
}

func (o *simulateOptions) run(ctx context.Context, s *session, w *sim.Workload, set *settings) error {
	for _, remark := range report.Before(w) {
		s.say("%s", remark)
	}
	if len(w.Jobs) == 0 {
		return problem.Newf(problem.Unable, o.emptyHint(w), "%s: no job to replay", w.Source)
	}
	replays, err := replayAll(ctx, w, set, o.seeds, newProgress(s.errOut, time.Now))
	if err != nil {
		return err
	}
	r := &report.Report{Work: w, Replays: replays, Asked: o.askedFor(set.changed)}
	for _, remark := range r.After() {
		s.say("%s", remark)
	}
	if replays[0].Jobs == 0 {
		return problem.Newf(problem.Unable, "try --gpus and --vram", "no job of %s can run on %s", w.Source, report.Machine(w.Machine))
	}
	wrote, err := o.writeFiles(r)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.out, replays)
	}
	fmt.Fprint(s.out, r.Table(s.width, s.colour))
	for _, path := range wrote {
		fmt.Fprintf(s.out, "\nwrote %s", text.Line(path))
	}
	if len(wrote) > 0 {
		fmt.Fprintln(s.out)
	}
	return nil
}

// writeFiles writes what was asked for as files, and says which.
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

// askedFor is what was typed of the flags that change the figures, for those
// who look at a page and did not type it.
func (o *simulateOptions) askedFor(changed func(flag string) bool) string {
	var asked []string
	for _, flag := range []struct{ name, value string }{
		{"park-cost", o.parkCost}, {"estimates", o.estimates}, {"max-bypass", o.maxBypass}, {"half-life", o.halfLife}, {"placement", o.placement},
	} {
		if changed(flag.name) {
			asked = append(asked, "--"+flag.name+" "+strings.TrimSpace(flag.value))
		}
	}
	return strings.Join(asked, " ")
}

func writeFile(path string, data []byte) error {
	if err := replaceFile(path, data, 0o644); err != nil {
		return problem.Newf(problem.Unable, "", "write %s: %w", path, err)
	}
	return nil
}
