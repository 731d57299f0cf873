package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/sweep"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// maxGridFile bounds a file of parameters.
const maxGridFile = 16 << 20

// axisFlags are the flags that give values to parameters.
type axisFlags struct {
	params []string
	file   string
}

func (f *axisFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.params, "param", nil, "a `parameter` and its values: lr=1e-3,1e-4 or seed=0-4; may be repeated")
	flags.StringVar(&f.file, "param-file", "", "CSV `file` with a row of names, and a trial in each further row; - for standard input")
}

// axes reads the values of the parameters. Those of the file come first.
func (f *axisFlags) axes(stdin io.Reader) (axes []sweep.Axis, err error) {
	if f.file != "" {
		name, content, err := readSpecFile(f.file, stdin)
		if err == nil && len(content) > maxGridFile {
			err = fmt.Errorf("%s is larger than %d MiB", name, maxGridFile>>20)
		}
		if err != nil {
			return nil, problem.Wrap(problem.Invalid, "--param-file takes a CSV file with a row of names", err)
		}
		a, err := sweep.ReadGrid(string(content))
		if err != nil {
			return nil, problem.Newf(problem.Invalid, "the first row names the parameters: lr,seed", "%s: %v", name, err)
		}
		axes = append(axes, a)
	}
	for _, written := range f.params {
		a, err := sweep.ParseAxis(written)
		if err != nil {
			return nil, problem.Newf(problem.Invalid, "--param lr=1e-3,1e-4 --param seed=0-4; a value with a comma is in quotes: --param 'name=\"a,b\",c'", "--param: %v", err)
		}
		axes = append(axes, a)
	}
	if len(axes) == 0 {
		return nil, problem.Newf(problem.Invalid, "berth sweep --param lr=1e-3,1e-4 -- python train.py --lr {lr}", "expected --param or --param-file, found neither")
	}
	return axes, nil
}

// sweepOptions are the flags of `berth sweep`: those of submit, and the parameters.
type sweepOptions struct {
	submitOptions
	axisFlags
	metrics []string
}

func newSweep() *cobra.Command {
	o := &sweepOptions{}
	cmd := &cobra.Command{
		Use:   "sweep --param NAME=VALUES... [flags] -- COMMAND...",
		Short: "Run a command for every combination of parameters",
		Long: `Queue a trial for every combination of the values of some parameters. {NAME} in
the command stands for a value, also in --name, --chdir, --output and -e. Each
value reaches the program as it is, whatever characters it has: where the
command is one word, which the shell runs, berth quotes it. Write {{ and }} for
braces.

Values are separated by commas; 0-4 is 0,1,2,3,4, and 0-20:5 has steps. A value
with a comma is in quotes: --param 'name="a,b",c'. --param-file has a trial in
each row, and is combined with --param.

A sweep is an array: it has one id and one row, its tasks are 17_0, 17_1 and so
on, and every command that takes an array takes it. --max bounds how many trials
run at a time. The flags are those of berth submit.

--metric picks a result from the logs: a regular expression (RE2) with one group
around the value, as in 'val_acc=([0-9.]+)', or the name of a value, which finds
"val_acc=0.9", "val_acc: 0.9" and the key of JSON lines ({"val_acc": 0.9}). The
last value counts, or the best with max: or min: in front. berth sweep table and
the page show the metrics that are given here, unless you ask for others.`,
		Example: `  berth sweep --param lr=1e-3,1e-4 --param seed=0-4 --max 4 -- \
      python train.py --lr {lr} --seed {seed}
  berth sweep --param lr=1,2 --name 'lr{lr}' --dry-run -- ./train {lr}
  berth sweep --param-file grid.csv --metric max:val_acc -- ./train {lr} {width}
  berth sweep table @ --sort -val_acc
  berth sweep add 17 --param lr=1e-5
  berth sweep retry 17

Exit status: 0 submitted; 1 refused; 2 bad usage or unreadable input; 130
interrupted. With --wait, the largest status of the trials.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0 && len(args) > 0:
				return unknownCommand(cmd, args[0])
			case dash > 0:
				return problem.Newf(problem.Invalid, "values follow --param: berth sweep --param lr=1e-3,1e-4 -- python train.py --lr {lr}", "expected only flags in front of --, found %q", args[0])
			}
			return nil
		},
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
		if err := o.sim.check(cmd); err != nil {
			return err
		}
		return o.run(ctx, s, args)
	})
	session.DaemonFlags(cmd)
	o.axisFlags.register(cmd)
	cmd.Flags().StringArrayVar(&o.metrics, "metric", nil, "a `result` to pick from the logs: val_acc, max:val_acc or 'loss=([0-9.]+)'; may be repeated")
	o.jobFlags.register(cmd)
	o.path = "berth sweep"
	flags := cmd.Flags()
	for _, name := range []string{"array", "pty"} {
		flags.Lookup(name).Hidden = true
	}
	o.registerSubmit(cmd)
	cmd.AddCommand(newSweepTable(), newSweepShow(), newSweepList(), newSweepAdd(), newSweepRetry(), newSweepCancel())
	return cmd
}

func (o *sweepOptions) run(ctx context.Context, s *session.Session, words []string) error {
	if len(words) == 0 || words[0] == "" {
		return problem.Newf(problem.Invalid, "berth sweep --param lr=1e-3,1e-4 -- python train.py --lr {lr}", "expected a command after --, found nothing")
	}
	axes, err := o.axes(os.Stdin)
	if err != nil {
		return err
	}
	specs, err := o.fromCommand(words)
	if err != nil {
		return err
	}
	spec := &specs[0]
	if spec.Array != "" {
		return problem.Newf(problem.Invalid, "use --param index=0-9 and {index}", "--array: a sweep is an array already")
	}
	if err := o.check(spec, axes); err != nil {
		return err
	}
	spec.Sweep = &api.Sweep{Axes: axes, Metrics: o.metrics}
	reply, err := o.deliver(ctx, s, specs)
	if err != nil {
		return o.named(err)
	}
	if o.dryRun {
		return o.foretellTrials(s, &reply.Jobs[0])
	}
	if err := o.confirm(s, &reply); err != nil || !o.wait {
		return err
	}
	return o.await(ctx, s, reply.Jobs)
}

// check reports mistakes before a daemon is started for them.
func (o *sweepOptions) check(spec *api.Spec, axes []sweep.Axis) error {
	const hint = "berth help howto/sweep has examples"
	if _, err := sweep.ParseMetrics(o.metrics); err != nil {
		return problem.Newf(problem.Invalid, "--metric max:val_acc, or --metric 'val_acc=([0-9.]+)'", "--metric: %v", err)
	}
	trials, err := sweep.Trials(axes, sweepMost)
	if err != nil {
		return problem.Wrap(problem.Invalid, hint, err)
	}
	maker, err := makerOf(spec, axes)
	if err == nil {
		_, err = maker.Make(trials[0])
	}
	if err != nil {
		return problem.Wrap(problem.Invalid, hint, err)
	}
	return nil
}

// foretellTrials is --dry-run: every command, and what would happen to the sweep.
func (o *sweepOptions) foretellTrials(s *session.Session, sweep *api.Submitted) error {
	if !o.json {
		for _, one := range sweep.Trials {
			if one.Name != "" {
				fmt.Fprintf(s.Out, "%s: ", text.Line(one.Name))
			}
			fmt.Fprintln(s.Out, text.Line(one.Command))
		}
	}
	return o.foretell(s, []api.Submitted{*sweep})
}

func newSweepAdd() *cobra.Command {
	f, dryRun, asJSON := &axisFlags{}, false, false
	cmd := &cobra.Command{
		Use:   "add SWEEP --param NAME=VALUES...",
		Short: "Add trials to a sweep",
		Long: `Give parameters of a sweep more values. Each is combined with what the sweep
has of its other parameters, and trials that it has are not run again. The new
trials get the command, the settings and the environment of the others.`,
		Example: `  berth sweep add 17 --param lr=1e-5
  berth sweep add 17 --param lr=1e-5 --param seed=5-9 --dry-run

Exit status: 0 added, or nothing to add; 1 refused, or no daemon; 2 bad usage;
130 interrupted.`,
		Args:              exactlyOne,
		ValidArgsFunction: completeEndedToo,
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
		axes, err := f.axes(os.Stdin)
		if err != nil {
			return err
		}
		if _, err := sweep.Trials(axes, sweepMost); err != nil {
			return problem.Wrap(problem.Invalid, "", err)
		}
		reply, err := api.Call(ctx, s.Client, api.AddTrials, api.MoreTrials{JobID: api.JobID{ID: args[0]}, Axes: axes, DryRun: dryRun})
		switch {
		case err != nil:
			return err
		case asJSON:
			return printJSON(s.Out, reply)
		case len(reply.Trials) == 0:
			_, err = fmt.Fprintf(s.Out, "sweep %s has all of these trials already\n", reply.ID)
			return err
		case dryRun:
			for _, one := range reply.Trials {
				fmt.Fprintln(s.Out, text.Line(one.Command))
			}
			return nil
		}
		ids := make([]string, len(reply.Trials))
		for i, one := range reply.Trials {
			ids[i] = one.ID
		}
		_, err = fmt.Fprintln(s.Out, text.Line(fmt.Sprintf("added %s to sweep %s: %s", text.CountGrouped(len(ids), "trial"), reply.ID, strings.Join(idRuns(ids), ","))))
		return err
	})
	session.ActFlags(cmd)
	f.register(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the commands, without adding them")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object with the new trials")
	return cmd
}

// sweepAction is a verb of a sweep that is an action on its trials.
func sweepAction(name, use, short, long, example string, states func() []string) *cobra.Command {
	a := &action{name: name}
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example + actionStatuses, Args: exactlyOne, ValidArgsFunction: completeEndedToo}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
		table, err := api.Call(ctx, s.Client, api.ListTrials, api.TrialQuery{ID: args[0], Metrics: []string{"-"}})
		if err != nil {
			return err
		}
		a.states = states()
		if len(a.states) > 0 && !slices.ContainsFunc(table.Trials, func(row api.TrialRow) bool { return slices.Contains(a.states, string(row.State)) }) {
			if a.json {
				return printJSON(s.Out, []api.Acted{})
			}
			s.Say("no trials of sweep %s to %s", table.ID, cmd.Name())
			return nil
		}
		return a.run(ctx, s, []string{table.ID}, nil)
	})
	session.ActFlags(cmd)
	cmd.Flags().BoolVar(&a.json, "json", false, "print a JSON array with the result for each trial")
	return cmd
}

func newSweepCancel() *cobra.Command {
	return sweepAction(api.ActCancel, "cancel SWEEP", "Cancel the trials of a sweep, running or not",
		"Cancel the trials of a sweep that have not ended, as berth cancel does.",
		"  berth sweep cancel 17", func() []string { return nil })
}

func newSweepRetry() *cobra.Command {
	failed, all := false, false
	cmd := sweepAction(api.ActRequeue, "retry SWEEP [--failed | --all]", "Run trials of a sweep again",
		`Run the trials of a sweep that failed or were cancelled again, or with --all
every one that has ended. Each attempt has its own log; the table shows the
last.`,
		`  berth sweep retry 17
  berth sweep retry 17 --failed
  berth sweep retry 17 --all`, func() []string {
			ended := []string{string(job.Failed), string(job.Cancelled)}
			if failed {
				ended = ended[:1]
			}
			if all {
				ended = append(ended, string(job.Finished))
			}
			return slices.Clone(ended)
		})
	cmd.Flags().BoolVar(&failed, "failed", false, "only trials that failed, not cancelled ones")
	cmd.Flags().BoolVar(&all, "all", false, "also trials that finished")
	cmd.MarkFlagsMutuallyExclusive("failed", "all")
	return cmd
}
