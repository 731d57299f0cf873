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

	"berth/internal/jobfile"
	"berth/internal/sim"
)

// simulateOptions are the flags of `berth simulate`.
type simulateOptions struct {
	policies []string
	gpus     int
	vram     string
	seeds    int
	history  bool
	since    string
	json     bool
	csv      string
	html     string
}

// maxSeeds bounds how long a replay may take: the interval is as narrow as
// anyone needs by then.
const maxSeeds = 1000

func newSimulate() *cobra.Command {
	o := &simulateOptions{}
	cmd := &cobra.Command{
		Use:   "simulate TRACE.csv | --history",
		Short: "Replay jobs under several policies and compare",
		Long: `Replay a trace, or this daemon's own history, in virtual time: the decisions are
those the daemon would make, and no job runs. For each policy it says how long
jobs would have waited, how well the cards would have been used, and how evenly
users would have fared, beside what no scheduler could better.

A trace is a CSV file with a header. Columns: submit_s and duration_s, and where
it has them job_id, user, gpus (1 where it does not say), gpu_milli (the part of
each GPU, 1000 is all), vram_mib, time_limit_s and priority. Others are ignored.

Policies: ` + policyHelp(),
		Example: `  berth simulate trace.csv
  berth simulate trace.csv --policy fifo,backfill,fair --gpus 4 --vram 24G
  berth simulate --history --since 30d --html report.html
  berth simulate trace.csv --seeds 20 --json

Exit status: 0 replayed; 1 nothing to replay, no daemon, or a file could not be
written; 2 bad usage or an unreadable trace; 130 interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.start(cmd, args) },
	}
	daemonFlags(cmd)
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&o.policies, "policy", []string{sim.Default, "backfill"}, "policies to compare: "+strings.Join(sim.PolicyNames(), ", "))
	flags.IntVar(&o.gpus, "gpus", 8, "cards of the machine (with --history: those of the daemon)")
	flags.StringVar(&o.vram, "vram", "80G", "memory of each card (with --history: that of the daemon's)")
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
		fmt.Fprintf(&b, "\n  %-9s %s", p.Name, p.About)
	}
	return b.String()
}

// workload is what is replayed.
type workload struct {
	source  string
	machine sim.Machine
	jobs    []sim.Job
	places  []string // where each job is written: "line 17", "job 17"
	leftOut int      // jobs that no replay can say anything about
	why     string   // they are left out
}

// start is run with what it needs of the world. A trace needs no daemon, and
// is read before interrupts are caught: Ctrl-C ends even a pipe that is silent.
func (o *simulateOptions) start(cmd *cobra.Command, args []string) error {
	policies, machine, err := o.check(cmd, args)
	if err != nil {
		return err
	}
	if o.history {
		return verb(func(ctx context.Context, s *session, _ []string) error {
			w, err := o.fetchHistory(ctx, s, machine, cmd.Flags().Changed, time.Now())
			if err != nil {
				return err
			}
			return o.run(ctx, s, w, policies)
		})(cmd, args)
	}
	w, err := openTrace(args[0], cmd.InOrStdin())
	if err != nil {
		return err
	}
	w.machine = machine
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	noColour, _ := cmd.Flags().GetBool("no-color")
	s := &session{screen: newScreen(cmd.OutOrStdout(), noColour, os.Getenv), errOut: cmd.ErrOrStderr()}
	err = o.run(ctx, s, w, policies)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return status(exitInterrupted)
	}
	return failed(err, target{})
}

// check reads the flags before anything is opened.
func (o *simulateOptions) check(cmd *cobra.Command, args []string) ([]sim.Policy, sim.Machine, error) {
	changed := cmd.Flags().Changed
	switch {
	case o.history && len(args) > 0:
		return nil, sim.Machine{}, &usageError{what: "a trace, or --history: not both", hint: "berth simulate " + args[0]}
	case !o.history && len(args) != 1:
		return nil, sim.Machine{}, &usageError{what: fmt.Sprintf("simulate takes one trace, %d given", len(args)), hint: "berth simulate trace.csv, or berth simulate --history"}
	case !o.history && changed("since"):
		return nil, sim.Machine{}, &usageError{what: "--since goes with --history", hint: "berth simulate --history --since " + o.since}
	}
	if err := inRange(cmd, "gpus", float64(o.gpus), 1, sim.MaxGPUs); err != nil {
		return nil, sim.Machine{}, err
	}
	if err := inRange(cmd, "seeds", float64(o.seeds), 0, maxSeeds); err != nil {
		return nil, sim.Machine{}, err
	}
	vramMiB, err := jobfile.ParseSize(o.vram)
	if err != nil {
		return nil, sim.Machine{}, &usageError{what: fmt.Sprintf("--vram: %v", err), hint: "see berth simulate --help"}
	}
	policies, err := o.parsePolicies()
	return policies, sim.Machine{GPUs: o.gpus, VRAMMiB: vramMiB}, err
}

func (o *simulateOptions) parsePolicies() ([]sim.Policy, error) {
	var policies []sim.Policy
	for _, name := range o.policies {
		name = strings.ToLower(strings.TrimSpace(name))
		p, err := sim.ParsePolicy(name)
		if err != nil {
			return nil, &usageError{what: "--policy: " + err.Error(), hint: nearestHint(name, sim.PolicyNames())}
		}
		if !slices.ContainsFunc(policies, func(known sim.Policy) bool { return known.Name == p.Name }) {
			policies = append(policies, p)
		}
	}
	if len(policies) == 0 {
		return nil, &usageError{what: "--policy: none named", hint: "known are " + strings.Join(sim.PolicyNames(), ", ")}
	}
	return policies, nil
}

func (o *simulateOptions) run(ctx context.Context, s *session, w *workload, policies []sim.Policy) error {
	if w.leftOut > 0 {
		s.say("%s %s", plural(w.leftOut, "job"), w.why)
	}
	if len(w.jobs) == 0 {
		return failuref("", "%s: no job to replay", w.source)
	}
	replays, err := replayAll(ctx, w, policies, o.seeds, newProgress(s.errOut, time.Now))
	if err != nil {
		return err
	}
	sayInfeasible(s, w, &replays[0].result)
	if replays[0].Jobs == 0 {
		return failuref("try --gpus and --vram", "no job of %s can run on %s", w.source, machineText(w.machine))
	}
	if o.csv != "" {
		if err := writeFile(o.csv, replaysCSV(replays)); err != nil {
			return err
		}
	}
	if o.html != "" {
		page, err := replaysPage(w, replays)
		if err != nil {
			return err
		}
		if err := writeFile(o.html, page); err != nil {
			return err
		}
	}
	if o.json {
		return printJSON(s.out, replays)
	}
	return drawReplays(s.screen, w, replays)
}

func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return failuref("", "write %s: %w", path, errors.Unwrap(err))
	}
	return nil
}

func machineText(m sim.Machine) string {
	return fmt.Sprintf("%s of %s GiB", plural(m.GPUs, "GPU"), strings.TrimSuffix(gib(m.VRAMMiB), ".0"))
}

// sayInfeasible names the jobs that are larger than the machine: they are in
// no figure.
func sayInfeasible(s *session, w *workload, res *sim.Result) {
	count, first := 0, -1
	for i := range res.Fates {
		if res.Fates[i].Refused != nil {
			count++
			if first < 0 {
				first = i
			}
		}
	}
	if count == 0 {
		return
	}
	s.say("%s can never run on %s and %s not counted; %s: %s", plural(count, "job"), machineText(w.machine),
		isAre(count), w.places[first], res.Fates[first].Refused)
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
