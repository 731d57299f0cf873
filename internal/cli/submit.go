package cli

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/text/problem"
)

// submitOptions are the flags of `berth submit` besides those of a job.
type submitOptions struct {
	jobFlags
	sim         simFlag
	file        string
	like        string // a job to take everything from that is not said
	source      string // the file that the jobs were read from; "": the command line
	lines       []int  // where each of them begins there
	dryRun      bool
	wait        bool
	interactive bool
	quiet       bool
	json        bool
	noAutostart bool
	noSnapshot  bool
	script      string     // the script that was named, absolute
	batch       *api.Batch // the jobs file that was named
}

func newSubmit() *cobra.Command {
	o := &submitOptions{}
	cmd := &cobra.Command{
		Use:   "submit [flags] -- COMMAND... | submit SCRIPT [ARG...] | submit [-f] FILE",
		Short: "Queue a command, a script, or a file of jobs",
		Long: `Queue one or more jobs. Everything after -- is the command: several words are
executed as they are, a single word is run by the shell.

A script is not copied, unless it is part of a snapshot: the job runs whatever
the file contains when the job starts. Its leading "#BERTH --flag" lines are
read as flags, and so are #SBATCH lines with an equivalent here, in Slurm's
units. Flags on the command line win over both. Flags after the script's name
are passed to the script.

-f takes a YAML or JSON file with one job or a list of jobs, or - for standard
input; a file like jobs.yaml needs no -f. Either all of them are accepted or
none. Flags beside it are defaults.

--like submits a copy of a job, whatever its state: its command, directory,
variables and settings, but not its begin time, dependencies or array. Flags,
and a command after --, replace what they name.

The lines of a jobs file (berth help jobsfile) are queued as jobs. Submit the
file again after a change, and the queue matches it: what has finished does not
run again, and the jobs of deleted lines are withdrawn.

--snapshot copies the code first and runs the copy, so that later edits do not
change the job: the git tree of the working directory with its uncommitted
changes, or the directory itself where there is no git. The copy is read-only;
$BERTH_SUBMIT_DIR is the original directory. berth help howto/snapshot has more.

If no daemon is running, a private one is started in the background, unless
BERTH_NO_AUTOSTART=1 is set or berth is installed as a service.`,
		Example: `  berth submit -- python train.py --epochs 3
  berth submit -n eval --vram 8G -- 'python eval.py | tee scores.txt'
  berth submit --gpus 2 --vram 30G --time 12h -- torchrun train_big.py
  berth submit --array 0-99%4 -- sh -c 'python sweep.py $BERTH_ARRAY_INDEX'
  berth submit --snapshot -- 'python train.py --out $BERTH_SUBMIT_DIR/runs'
  berth submit train.sh --epochs 3
  berth submit -f jobs.yaml --priority 5
  berth submit jobs.txt
  berth submit -g 0 -- make data
  berth submit --like 17 --time 8h -- python train.py --lr 1e-4
  berth submit --dry-run --gpus 4 -- python big.py
  berth submit -i -- python train.py

Exit status: 0 submitted; 1 refused; 2 bad usage or unreadable input; 130
interrupted. With --wait or -i, the job's own: its exit code, 128 + signal, 124
for its time limit, else 1; the largest if there are several jobs.`,
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
		if err := o.sim.check(cmd); err != nil {
			return err
		}
		return o.run(ctx, s, args, cmd.ArgsLenAtDash() >= 0)
	})
	session.DaemonFlags(cmd)
	o.register(cmd)
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after a script's name belong to the script
	flags.StringVarP(&o.file, "file", "f", "", "YAML or JSON file of jobs, - for standard input")
	flags.StringVar(&o.like, "like", "", "copy this `job`; flags and a command replace what they name")
	_ = cmd.RegisterFlagCompletionFunc("like", completeEndedToo) // the flag exists
	flags.BoolVarP(&o.interactive, "interactive", "i", false, "show its output and exit with its status; Ctrl-C leaves it running")
	o.registerSubmit(cmd)
	return cmd
}

// registerSubmit registers the flags of every verb that submits.
func (o *submitOptions) registerSubmit(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&o.noSnapshot, "no-snapshot", false, "run the code as it is when the job starts, even if the daemon's config asks for snapshots")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would happen and why, without submitting")
	flags.BoolVar(&o.wait, "wait", false, "wait for the job to end, and exit with its status")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print only the job id")
	flags.BoolVar(&o.json, "json", false, "print a JSON object with id; an array for several jobs")
	o.sim.register(cmd)
	flags.BoolVar(&o.noAutostart, "no-autostart", false, "do not start a daemon (also: BERTH_NO_AUTOSTART=1)")
}

func (o *submitOptions) run(ctx context.Context, s *session.Session, args []string, dashed bool) error {
	specs, err := o.specs(ctx, s, args, dashed)
	if err != nil {
		return err
	}
	reply, err := o.deliver(ctx, s, specs)
	if err != nil {
		return o.named(err)
	}
	if o.dryRun {
		return o.foretell(s, reply.Jobs)
	}
	if err := o.confirm(s, &reply); err != nil {
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

// deliver submits jobs with the caller's directory, environment and code.
func (o *submitOptions) deliver(ctx context.Context, s *session.Session, specs []api.Spec) (api.SubmitReply, error) {
	if s.Target.Host == nil {
		if err := o.checkPlaces(specs); err != nil {
			return api.SubmitReply{}, err
		}
	}
	r, err := o.request(specs, s.Target.Host != nil)
	if err != nil {
		return api.SubmitReply{}, err
	}
	code := &codeSnapshots{s: s, request: &r, script: o.script}
	reply, err := o.send(ctx, s, code)
	if err == nil && !o.dryRun {
		code.removeOld(ctx)
	}
	return reply, err
}

// specs reads the jobs from the command line, a script or a file.
func (o *submitOptions) specs(ctx context.Context, s *session.Session, args []string, dashed bool) ([]api.Spec, error) {
	var specs []api.Spec
	var err error
	switch {
	case o.like != "" && (o.file != "" || len(args) > 0 && !dashed):
		return nil, problem.Newf(problem.Invalid, "berth submit --like 17 -- python train.py", "--like: expected a command after --, or nothing, found a file or a script")
	case o.like != "":
		specs, err = o.fromJob(ctx, s, args)
	case o.file != "" && len(args) > 0:
		return nil, problem.Newf(problem.Invalid, "put the command into the file, or leave -f out", "expected a command or -f %s, found both", o.file)
	case o.file != "":
		specs, err = o.fromFile(os.Stdin)
	case dashed && len(args) > 0:
		specs, err = o.fromCommand(args)
	case len(args) > 0:
		specs, err = o.fromScript(s, args)
	default:
		return nil, problem.Newf(problem.Invalid, "berth submit -- python train.py, berth submit train.sh, or berth submit -f jobs.yaml", "expected a command, a script or -f FILE, found nothing")
	}
	if err != nil {
		return nil, err
	}
	if o.interactive && (len(specs) != 1 || specs[0].Array != "" || specs[0].Sweep != nil) {
		return nil, problem.Newf(problem.Invalid, "submit without -i, then use berth wait or berth logs -f", "-i: expected one job, found several")
	}
	return specs, nil
}

func (o *submitOptions) fromCommand(words []string) ([]api.Spec, error) {
	if words[0] == "" {
		return nil, problem.Newf(problem.Invalid, "berth submit -- python train.py", "expected a command after --, found an empty word")
	}
	spec := api.Spec{Command: commandOf(words)}
	if err := o.apply(&spec); err != nil {
		return nil, err
	}
	return []api.Spec{spec}, nil
}

// fromJob copies a job, with what the flags and the words say instead.
func (o *submitOptions) fromJob(ctx context.Context, s *session.Session, words []string) ([]api.Spec, error) {
	d, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: o.like})
	switch {
	case err != nil:
		return nil, err
	case d.Command == nil:
		return nil, problem.Newf(problem.Forbidden, "", "job %s belongs to %s", d.ID, d.User)
	}
	spec := api.Spec{Command: api.Command{Shell: *d.Command}, Env: maps.Clone(d.Env)}
	values := valuesOf(&d)
	for _, field := range jobfile.Fields() {
		value, set := values[field.Key]
		if !set || field.Fixed != "" || field.Key == "begin" {
			continue
		}
		if err := setPair(&spec, jobfile.Pair{Key: field.Key, Value: value}); err != nil {
			return nil, err
		}
	}
	if len(words) > 0 {
		spec.Command = commandOf(words)
	}
	err = o.apply(&spec)
	return []api.Spec{spec}, err
}

// checkPlaces refuses jobs whose directories, virtual environments or outputs
// cannot work. On another machine that cannot be known.
func (o *submitOptions) checkPlaces(specs []api.Spec) error {
	dir, err := os.Getwd()
	if err != nil {
		return nil // the request says so
	}
	from := queue.Origin{Dir: dir, Home: os.Getenv("HOME"), Env: os.Environ()}
	var bad jobfile.Errors
	add := func(line int, spec *job.Spec) {
		for _, err := range queue.Unusable(spec, from) {
			bad.Add(o.source, line, err.Error())
		}
	}
	for i := range specs {
		if p := &specs[i]; p.Dir == "" && p.Venv == "" && p.Conda == "" && p.Output == "" {
			continue
		}
		asked, err := jobfile.Ask(specs[i].Pairs(), time.Now(), job.Defaults(), math.MaxInt32)
		if err != nil {
			continue // the daemon says it better
		}
		line := 0
		if i < len(o.lines) {
			line = o.lines[i]
		}
		if specs[i].Sweep == nil {
			add(line, &asked.Spec)
			continue
		}
		eachPlace(&specs[i], func(dir, output string) {
			asked.Spec.Dir, asked.Spec.Output = dir, output
			add(line, &asked.Spec)
		})
	}
	if len(bad.Problems) == 0 {
		return nil
	}
	return problem.Wrap(problem.Invalid, "correct it, make what is missing, or let an earlier job make it (--after)", &bad)
}

// request adds the caller's directory, environment and umask. To another machine
// it sends only the variables that were named: the rest may hold secrets and
// means little there.
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
		DryRun: o.dryRun, Interactive: o.interactive, Term: os.Getenv("TERM"), Batch: o.batch,
	}, nil
}

// await is --wait: it returns the status of the jobs.
func (o *submitOptions) await(ctx context.Context, s *session.Session, jobs []api.Submitted) error {
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
