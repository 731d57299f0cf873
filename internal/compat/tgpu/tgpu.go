// Package tgpu is tgpu in front of berth's own commands: it rewrites what was
// typed, runs `berth submit`, `list`, `cancel`, `logs` or `stats`, and shows
// what came of it as tgpu does. It keeps nothing.
package tgpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
	"berth/internal/problem"
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
order of submission. A job that does not fit yet may be passed by one that
does, but not for ever. Each job has its GPUs to itself, and sees them in
CUDA_VISIBLE_DEVICES.

tgpu submit queues a job and prints its id. The scheduler starts by itself, in
the background (one for each user, unless the machine has one for all).
  --gpus N         how many GPUs, 0 for none (default 1)
  --priority P     a higher number goes first (default 0)
  --file FILE      a job spec, the same as SPEC.yaml; - is standard input
  --name NAME      a name for it
  --cpus N         CPUs to account for
  --mem SIZE       host memory to account for, as in 16G
  --preemptible    it may be stopped and queued again for a higher priority
cmd="..." is a line for the shell. Words that follow -- without cmd= are
executed as they are. A spec has the keys command, num_gpus and priority, and
any other of berth's; flags beside it count where it says nothing:
  command: python train.py
  num_gpus: 2
  priority: 5
One job at a time: give every job all the GPUs of the machine.

tgpu list shows what runs, what waits by its priority, and the last 20 jobs that
are over. GPUS are the ones a job has, or xN while it waits for N; WAIT is how
long it waited to start; EXIT is its exit status. States: queued, running,
finished, failed, cancelled. --all shows every job, --json berth's records of
them. berth why ID says what a job waits for.

tgpu cancel ends jobs, queued or running, with all their processes.

tgpu logs prints what a job printed, with -f as it comes.

tgpu metrics sums up how long jobs waited and how much the GPUs were used.

BERTH_SIM=2 in the environment of the first tgpu: two simulated GPUs.

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
		c.Complain(fmt.Sprintf("there is no command %q", verb), "tgpu has submit, list, cancel, logs and metrics; see tgpu --help")
		return frontend.BadUsage
	}
	return run(c, args)
}

// berth runs one of berth's own commands. What that has to say, tgpu says.
func berth(c *frontend.Call, out io.Writer, args ...string) int {
	said := frontend.InItsName(c.Err, c.Name, "berth submit", "tgpu submit", "berth list", "tgpu list", "berth cancel", "tgpu cancel", "berth logs", "tgpu logs")
	defer said.Flush()
	return c.Berth(args, out, said)
}

// reach runs one of berth's commands that ask about jobs. A private daemon
// goes when it has been idle; what it kept is there again with the next one.
func reach(c *frontend.Call, out io.Writer, args ...string) int {
	if _, err := c.Daemon(context.Background(), true); err != nil {
		hint := ""
		if p, ok := errors.AsType[*problem.Problem](err); ok {
			hint = p.Hint
		}
		c.Complain(err.Error(), hint)
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
		c.Complain("cancel which job?", "tgpu list shows the ids; tgpu cancel 3")
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
		c.Complain("logs takes one job", "tgpu list shows the ids; tgpu logs 3")
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

// areIDs tells whether all words are ids. berth's own commands know more
// ways to say which jobs (all, names, ranges), and nobody should cancel by one
// of those by accident.
func areIDs(c *frontend.Call, words []string) bool {
	for _, word := range words {
		if word == "" || strings.Trim(word, "0123456789_") != "" {
			c.Complain(fmt.Sprintf("%q is not the id of a job", word), "ids are numbers; tgpu list shows them")
			return false
		}
	}
	return true
}
