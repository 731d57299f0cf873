package mgpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/text/problem"
)

// Srun submits a job.
var Srun = frontend.Program{Name: "mgpu_srun", Usage: srunUsage, Run: runSrun}

const srunUsage = `usage: mgpu_srun --gpu-ids IDS [--mem MB] [--time-limit SEC] [--priority N]
                 [--env-setup-cmd CMD] [--interactive | --background]
                 -- COMMAND...
       mgpu_srun --attach ID

Queue a command for exactly these GPUs. It starts when each of them has room,
in your home directory and with your environment. CUDA_VISIBLE_DEVICES has the
GPUs in the order asked for, so cuda:0 is the first. Several words after -- are
executed as they are; one word is a shell command.

      --gpu-ids IDS        physical GPUs: 0 or 1,3
      --mem MB             memory on each of them. Without it the job waits
                           until they are idle, and has them to itself
      --time-limit SEC     at the limit the job is stopped and moved to the end
                           of the queue, behind every priority, to start over;
                           at most ten times
      --priority N         higher first, equal ones by submission (default 0)
      --env-setup-cmd CMD  run this first, in the same shell, before
                           CUDA_VISIBLE_DEVICES is set:
                           "source venv/bin/activate", "conda activate NAME"
      --interactive        show the output until the job ends, and return its
                           status; Ctrl-C leaves the job running
      --background         only queue it (the default)
      --attach ID          show the output of a job submitted earlier
  -h, --help               print this

Output goes to .mgpu_job_ID.log in your home directory; a second attempt writes
to .mgpu_job_ID.log.2. The server is the one at BERTH_SOCKET, else at
/tmp/mgpu_scheduler.sock, else berth's own daemon.

Exit status: 0 submitted; 1 refused, or no --gpu-ids or no --; 2 other bad
usage; 130 detached. With --interactive the job's own: its exit code, 128 +
signal, 124 for its time limit, else 1.

Example:
  mgpu_srun --gpu-ids 0,1 --mem 8000 --time-limit 600 -- \
      torchrun --nproc_per_node=2 train.py
`

// srunFlags are the flags as typed.
type srunFlags struct {
	ids                     string
	mem, timeLimit          int64
	memGiven                bool
	priority                int
	setup                   string
	interactive, background bool
	attach                  string
	command                 []string
}

func runSrun(plain *frontend.Call) int {
	c := call{plain}
	f := &srunFlags{}
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	flags.StringVar(&f.ids, "gpu-ids", "", "")
	flags.Int64Var(&f.mem, "mem", 0, "")
	flags.Int64Var(&f.timeLimit, "time-limit", 0, "")
	flags.IntVar(&f.priority, "priority", 0, "")
	flags.StringVar(&f.setup, "env-setup-cmd", "", "")
	flags.BoolVar(&f.interactive, "interactive", false, "")
	flags.BoolVar(&f.background, "background", false, "")
	flags.StringVar(&f.attach, "attach", "", "")
	args, dash := c.Args, slices.Index(c.Args, "--")
	if dash >= 0 { // everything after it belongs to the job
		args, f.command = args[:dash], args[dash+1:]
	}
	if status, ok := c.Parse(flags, args, srunUsage); !ok {
		return status
	}
	f.memGiven = flags.Changed("mem")
	if status, ok := f.check(c, flags, dash >= 0); !ok {
		return status
	}
	ctx, stop := untilInterrupted()
	defer stop()
	if f.attach != "" {
		return c.attach(ctx, f.attach)
	}
	return f.submit(ctx, c)
}

// check reports missing and contradictory flags.
func (f *srunFlags) check(c call, flags *pflag.FlagSet, dashed bool) (status int, ok bool) {
	missing := ""
	switch {
	case f.attach != "" && !dashed && f.ids == "" && flags.NArg() == 0:
		return 0, true
	case !flags.Changed("gpu-ids"):
		missing = "--gpu-ids is missing"
	case !dashed:
		missing = "-- and a command are missing"
	case len(f.command) == 0 || strings.TrimSpace(f.command[0]) == "":
		missing = "the command after -- is missing"
	}
	if missing != "" {
		c.Complain(missing, "")
		fmt.Fprint(c.Err, synopsis(srunUsage))
		return frontend.Failed, false
	}
	wrong := ""
	switch {
	case f.attach != "":
		wrong = "--attach takes no command and no --gpu-ids"
	case flags.NArg() > 0:
		wrong = fmt.Sprintf("expected a flag, found %q; the command goes after --", flags.Arg(0))
	case f.interactive && f.background:
		wrong = "expected --interactive or --background, found both"
	case f.mem < 0 || f.mem > math.MaxInt32:
		wrong = fmt.Sprintf("--mem: expected a number of MB from 1 to %d, found %d", math.MaxInt32, f.mem)
	case f.timeLimit < 0:
		wrong = fmt.Sprintf("--time-limit: expected a number of seconds from 1, or 0 for none, found %d", f.timeLimit)
	}
	if wrong != "" {
		return c.Misuse(wrong, frontend.BadUsage), false
	}
	return 0, true
}

func (f *srunFlags) submit(ctx context.Context, c call) int {
	out := c.Out
	if f.interactive {
		out = c.Err // standard output is the job's
	}
	request := f.request()
	if err := f.checkValues(request.Jobs[0]); err != nil {
		return c.refused(out, err)
	}
	client, err := c.dial(ctx, true)
	if err != nil {
		return c.refused(out, err)
	}
	defer client.Close()
	reply, err := api.Call(ctx, client, api.Submit, request)
	if errors.Is(err, context.Canceled) {
		c.Complain("interrupted while submitting", "mgpu_queue shows whether the job is queued")
		return frontend.Interrupted
	}
	if err != nil {
		return c.refused(out, withSocket(err, client.Place()))
	}
	submitted := reply.Jobs[0]
	for _, note := range submitted.Notes {
		fmt.Fprintf(c.Err, "%s: note: %s\n", c.Name, frontend.OneLine(note))
	}
	fmt.Fprintf(out, "Job submitted. ID: %s (priority=%d)\n", job.Code(submitted.ID), f.priority)
	if f.interactive {
		return c.follow(ctx, client, submitted.ID)
	}
	return 0
}

// checkValues refuses what the server would refuse under its own name for the
// flag. An empty --gpu-ids is refused only here: to the server it means any GPU.
func (f *srunFlags) checkValues(spec api.Spec) error {
	if _, err := jobfile.ParseIDs(f.ids); err != nil {
		return problem.Newf(problem.Refused, "mgpu_srun --gpu-ids 0,1 -- python train.py", "--gpu-ids: %v", err)
	}
	if f.memGiven && f.mem == 0 {
		return problem.Newf(problem.Refused, "without --mem the job gets its GPUs to itself", "--mem: expected a number of MB from 1, found 0")
	}
	_, err := jobfile.Ask(spec.Pairs(), time.Now(), job.Defaults(), 1)
	if wrong, ok := errors.AsType[*jobfile.KeyError](err); ok {
		flags := map[string]string{"vram": "--mem", "timeout": "--time-limit", "priority": "--priority", "setup": "--env-setup-cmd"}
		return problem.Newf(problem.Invalid, "see mgpu_srun --help", "%s: %w", cmp.Or(flags[wrong.Key], wrong.Key), wrong.Err)
	}
	return nil
}

// withSocket makes berth's own commands in a hint find this server.
func withSocket(err error, socket string) error {
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		p.Hint = strings.ReplaceAll(p.Hint, "berth gpus", "berth gpus --socket "+socket)
	}
	return err
}

// refused reports a failed submission in the original's words, which scripts
// look for.
func (c call) refused(out io.Writer, err error) int {
	if errors.Is(err, context.Canceled) {
		return frontend.Interrupted
	}
	what, hint := problemOf(err)
	fmt.Fprintf(out, "Submit failed: %s\n", frontend.OneLine(what))
	if hint != "" {
		fmt.Fprintf(c.Err, "hint: %s\n", frontend.OneLine(hint))
	}
	return frontend.Failed
}

// request is the job with its caller's environment.
func (f *srunFlags) request() api.SubmitRequest {
	home := homeDir()
	spec := api.Spec{
		Command: api.Command{Argv: f.command}, IDs: api.Text(f.ids), Setup: api.Text(beforeGPUs(f.setup)), Dir: api.Text(home),
		Priority: api.Text(strconv.Itoa(f.priority)), OnTimeout: api.Text(job.TimeoutRequeue),
		Output: api.Text(strings.ReplaceAll(home, "%", "%%") + "/.mgpu_job_%c.log"),
	}
	if len(f.command) == 1 {
		spec.Command = api.Command{Shell: f.command[0]}
	}
	if f.mem > 0 {
		spec.VRAM = api.Text(strconv.FormatInt(f.mem, 10))
	}
	if f.timeLimit > 0 {
		spec.Timeout = api.Text(strconv.FormatInt(f.timeLimit, 10) + "s")
	}
	umask := site.Umask()
	return api.SubmitRequest{
		Jobs: []api.Spec{spec}, Environ: os.Environ(), Umask: &umask,
		Interactive: f.interactive, Term: os.Getenv("TERM"),
	}
}

// beforeGPUs is the set-up as it runs before the GPUs are set. berth sets them
// again after it.
func beforeGPUs(setup string) string {
	if setup == "" {
		return ""
	}
	return "unset CUDA_VISIBLE_DEVICES; " + setup
}

// homeDir is the caller's home directory, or "~" to let the server look it up:
// after sudo or su, HOME may still be another user's.
func homeDir() string {
	home := os.Getenv("HOME")
	info, err := os.Stat(home)
	if !filepath.IsAbs(home) || err != nil {
		return "~"
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return "~"
	}
	return filepath.Clean(home)
}
