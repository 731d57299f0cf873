package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/problem"
	"berth/internal/site"
)

// submitOptions are the flags of `berth submit` that are not about a job.
type submitOptions struct {
	jobFlags
	file        string
	dryRun      bool
	wait        bool
	interactive bool
	quiet       bool
	json        bool
	noAutostart bool
}

func newSubmit() *cobra.Command {
	o := &submitOptions{}
	cmd := &cobra.Command{
		Use:   "submit [flags] -- COMMAND... | submit SCRIPT [ARG...] | submit -f FILE",
		Short: "Queue a command, a script, or a file of jobs",
		Long: `Queue jobs. Several words after -- are executed as they are; one word is a
shell line. Everything after -- belongs to the job.

A script is run by its path when its turn comes, not from a copy: what it
holds then is what runs. Its leading #BERTH --flag lines are read as flags, and
so are #SBATCH lines that mean the same here, in Slurm's units; flags on the
command line win. Flags after the script's name are the script's own.

-f takes a YAML or JSON file with one job or a list of them, or - for standard
input. All of them are accepted, or none. Flags beside -f are defaults.

With no daemon running, a private one is started in the background, unless
BERTH_NO_AUTOSTART=1 is set or the machine has a berth service.`,
		Example: `  berth submit -- python train.py --epochs 3
  berth submit -n eval --vram 8G -- 'python eval.py | tee scores.txt'
  berth submit --gpus 2 --vram 30G --time 12h -- torchrun train_big.py
  berth submit --array 0-99%4 -- sh -c 'python sweep.py $BERTH_ARRAY_INDEX'
  berth submit train.sh --epochs 3
  berth submit -f jobs.yaml --priority 5
  berth submit --dry-run --gpus 4 -- python big.py
  berth submit -i -- python train.py

Exit status: 0 submitted; 1 refused; 2 bad usage or unreadable input; 130
interrupted. With --wait and -i the job's own: its exit code, 128 + signal, 124
for its time limit, else 1; of several the largest.`,
	}
	cmd.RunE = verb(func(ctx context.Context, s *session, args []string) error {
		return o.run(ctx, s, args, cmd.ArgsLenAtDash() >= 0)
	})
	daemonFlags(cmd)
	o.register(cmd)
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows a script's name is the script's own
	flags.StringVarP(&o.file, "file", "f", "", "a YAML or JSON file of jobs, - for standard input")
	flags.BoolVar(&o.dryRun, "dry-run", false, "say what would happen and why; submit nothing")
	flags.BoolVar(&o.wait, "wait", false, "wait for the end, and return the job's status")
	flags.BoolVarP(&o.interactive, "interactive", "i", false, "show its output, and return its status; Ctrl-C leaves it running")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print only the id")
	flags.BoolVar(&o.json, "json", false, "an object with id; of several jobs an array")
	flags.BoolVar(&o.noAutostart, "no-autostart", false, "start no daemon (also: BERTH_NO_AUTOSTART=1)")
	return cmd
}

func (o *submitOptions) run(ctx context.Context, s *session, args []string, dashed bool) error {
	specs, err := o.specs(s, args, dashed)
	if err != nil {
		return err
	}
	r, err := o.request(specs, s.target.host != nil)
	if err != nil {
		return err
	}
	reply, err := o.send(ctx, s, r)
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.foretell(s, reply.Jobs)
	}
	if err := o.confirm(s, reply.Jobs); err != nil {
		return err
	}
	switch {
	case o.interactive:
		return follow(ctx, s, reply.Jobs[0].ID, isOn(specs[0].Pty))
	case o.wait:
		return o.await(ctx, s, reply.Jobs)
	}
	return nil
}

// specs reads the jobs from whichever of the three forms was used.
func (o *submitOptions) specs(s *session, args []string, dashed bool) ([]api.Spec, error) {
	var specs []api.Spec
	var err error
	switch {
	case o.file != "" && len(args) > 0:
		return nil, problem.Newf(problem.Invalid, "put the command into the file, or leave -f out", "-f %s and a command: one of them is enough", o.file)
	case o.file != "":
		specs, err = o.fromFile(os.Stdin)
	case dashed && len(args) > 0:
		specs, err = o.fromCommand(args)
	case len(args) > 0:
		specs, err = o.fromScript(s, args)
	default:
		return nil, problem.Newf(problem.Invalid, "berth submit -- python train.py, berth submit train.sh, or berth submit -f jobs.yaml", "submit what?")
	}
	if err != nil {
		return nil, err
	}
	if o.interactive && (len(specs) != 1 || specs[0].Array != "") {
		return nil, problem.Newf(problem.Invalid, "submit them without it, and use berth wait or berth logs -f", "-i is for one job")
	}
	return specs, nil
}

func (o *submitOptions) fromCommand(words []string) ([]api.Spec, error) {
	if words[0] == "" {
		return nil, problem.Newf(problem.Invalid, "berth submit -- python train.py", "the command is empty")
	}
	spec := api.Spec{Command: commandOf(words)}
	if err := o.apply(&spec); err != nil {
		return nil, err
	}
	return []api.Spec{spec}, nil
}

// request adds what the jobs take from their caller. Of an environment that
// means little on another machine, and may hold secrets, only what was asked
// for goes there.
func (o *submitOptions) request(specs []api.Spec, elsewhere bool) (api.SubmitRequest, error) {
	dir, err := os.Getwd()
	if err != nil {
		return api.SubmitRequest{}, fmt.Errorf("working directory: %w", err)
	}
	for i := range specs {
		if elsewhere && specs[i].Export == "" {
			specs[i].Export = "none"
		}
	}
	umask := site.Umask()
	return api.SubmitRequest{
		Jobs: specs, Dir: dir, Environ: environFor(specs, os.Environ()), Umask: &umask,
		DryRun: o.dryRun, Interactive: o.interactive, Term: os.Getenv("TERM"),
	}, nil
}

func isOn(value api.Text) bool {
	switch value {
	case "", "no", "false", "0":
		return false
	}
	return true
}

// await is --wait: the jobs' own status becomes this command's.
func (o *submitOptions) await(ctx context.Context, s *session, jobs []api.Submitted) error {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	w := waiter{s: s, quiet: o.quiet || o.json}
	over, err := w.wait(ctx, ids)
	if err != nil {
		return err
	}
	return largestStatus(over)
}
