package tgpu

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
)

// Program is tgpu.
var Program = frontend.Program{Name: "tgpu", Usage: usage, Run: run}

const usage = `usage: tgpu submit [flags] -- cmd="COMMAND"
       tgpu submit [flags] -- COMMAND [ARG...]
       tgpu submit [flags] SPEC.yaml
       tgpu list [--all] [--json] [ID...]
       tgpu cancel ID...
       tgpu logs [-f] ID
       tgpu metrics [--since 7d] [--json]

A queue for jobs on this machine's GPUs: the highest priority first, then the
order of submission. A job that fits may overtake one that does not fit yet, but
not for ever. Each job has its GPUs to itself, and sees them in
CUDA_VISIBLE_DEVICES.

tgpu submit queues a job and prints its id. It starts the scheduler in the
background if none is running (one per user, unless the machine has one for
all).
  --gpus N         number of GPUs, 0 for none (default 1)
  --priority P     a higher number goes first (default 0)
  --file FILE      a job spec, like SPEC.yaml; - is standard input
  --name NAME      a name for the job
  --cpus N         CPUs to account for
  --mem SIZE       host memory to account for, as in 16G
  --preemptible    it may be stopped and requeued for a higher priority
cmd="..." is a shell command. Words after -- without cmd= are executed as they
are. A spec has the keys command, num_gpus and priority, and any other key of
berth's; flags are defaults for keys that it does not set:
  command: python train.py
  num_gpus: 2
  priority: 5
To run one job at a time, ask for all GPUs of the machine in every job.

tgpu list shows running jobs, queued jobs by priority, and the last 20 that have
ended. GPUS are the job's GPUs, or xN while it waits for N; WAIT is how long it
waited to start; EXIT is its exit status. States: queued, running, finished,
failed, cancelled. --all shows every job, --json prints berth's records of them.
berth why ID says why a job waits.

tgpu cancel ends jobs, queued or running, with all their processes.

tgpu logs prints a job's output; with -f it follows the output.

tgpu metrics shows waiting times and GPU utilisation.

BERTH_SIM=2 in the environment of the first tgpu gives two simulated GPUs.

Exit status: 0 done; 1 failed or refused; 2 bad usage; 130 interrupted.

Example: tgpu submit --gpus 2 --priority 5 -- cmd="python train.py"
`

func run(c *frontend.Call) int {
	verbs := map[string]func(*frontend.Call, []string) int{
		"submit": runSubmit, "list": runList, "cancel": runCancel, "logs": runLogs, "metrics": runMetrics,
	}
	if len(c.Args) == 0 {
		fmt.Fprint(c.Err, usage)
		return frontend.BadUsage
	}
	verb, args := c.Args[0], c.Args[1:]
	if verb == "--version" {
		fmt.Fprintf(c.Out, "tgpu (berth %s)\n", c.Version)
		return 0
	}
	run, known := verbs[verb]
	if !known {
		c.Complain(fmt.Sprintf("expected a command, found %q", verb), "the commands are submit, list, cancel, logs and metrics; see tgpu --help")
		return frontend.BadUsage
	}
	return run(c, args)
}

// berth runs one of berth's own commands and renames its messages.
func berth(c *frontend.Call, out io.Writer, args ...string) int {
	return c.Verb(out, args, "berth submit", "tgpu submit", "berth list", "tgpu list", "berth cancel", "tgpu cancel", "berth logs", "tgpu logs")
}

// reach runs a command of berth's that needs a daemon. A private daemon ends when
// idle; the next one has its jobs again.
func reach(c *frontend.Call, out io.Writer, args ...string) int {
	if _, err := c.Daemon(context.Background(), true); err != nil {
		c.Complain(frontend.Explain(err, "daemon", ""))
		return frontend.Failed
	}
	return berth(c, out, args...)
}

func runCancel(c *frontend.Call, args []string) int {
	flags := pflag.NewFlagSet("cancel", pflag.ContinueOnError)
	if status, ok := c.Parse(flags, args, usage); !ok {
		return status
	}
	if flags.NArg() == 0 {
		c.Complain("cancel: expected a job id, found none", "tgpu list shows the ids; tgpu cancel 3")
		return frontend.BadUsage
	}
	if !areIDs(c, flags.Args()) {
		return frontend.BadUsage
	}
	return reach(c, c.Out, append([]string{"cancel"}, flags.Args()...)...)
}

func runLogs(c *frontend.Call, args []string) int {
	flags := pflag.NewFlagSet("logs", pflag.ContinueOnError)
	follow := flags.BoolP("follow", "f", false, "")
	if status, ok := c.Parse(flags, args, usage); !ok {
		return status
	}
	if flags.NArg() != 1 {
		c.Complain("logs: expected one job id", "tgpu list shows the ids; tgpu logs 3")
		return frontend.BadUsage
	}
	if !areIDs(c, flags.Args()) {
		return frontend.BadUsage
	}
	words := []string{"logs", flags.Arg(0)}
	if *follow {
		words = append(words, "-f")
	}
	return reach(c, c.Out, words...)
}

// areIDs reports whether all words are ids. berth's own commands also accept
// all, names and ranges, which must not cancel jobs by accident here.
func areIDs(c *frontend.Call, words []string) bool {
	for _, word := range words {
		if word == "" || strings.Trim(word, "0123456789_") != "" {
			c.Complain(fmt.Sprintf("expected a job id, found %q", word), "ids are numbers; tgpu list shows them")
			return false
		}
	}
	return true
}
