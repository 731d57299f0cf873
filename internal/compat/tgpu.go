package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

var tgpu = program{name: "tgpu", usage: tgpuUsage, run: runTgpu}

const tgpuUsage = `usage: tgpu submit [flags] -- cmd="COMMAND"
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

func runTgpu(c *Call) int {
	verbs := map[string]func(*Call, []string) int{
		"submit": tgpuSubmit, "list": tgpuList, "cancel": tgpuCancel, "logs": tgpuLogs, "metrics": tgpuMetrics,
	}
	if len(c.Args) == 0 {
		fmt.Fprint(c.Err, tgpuUsage)
		return exitUsage
	}
	verb, args := c.Args[0], c.Args[1:]
	if verb == "--version" {
		fmt.Fprintf(c.Out, "tgpu (berth %s)\n", c.Version)
		return 0
	}
	run, known := verbs[verb]
	if !known {
		c.complain(fmt.Sprintf("there is no command %q", verb), "tgpu has submit, list, cancel, logs and metrics; see tgpu --help")
		return exitUsage
	}
	return run(c, args)
}

// tgpuFlags is an empty set of flags for one of the commands.
func tgpuFlags(verb string) *pflag.FlagSet {
	flags := pflag.NewFlagSet(verb, pflag.ContinueOnError)
	flags.SetOutput(io.Discard) // mistakes are told by tgpuParse
	return flags
}

// tgpuParse reads the flags of a command. Where there is nothing more to do,
// because help was asked for or a flag is wrong, done is true.
func tgpuParse(c *Call, flags *pflag.FlagSet, args []string) (code int, done bool) {
	err := flags.Parse(args)
	switch {
	case err == nil:
		return 0, false
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(c.Out, tgpuUsage)
		return 0, true
	}
	c.complain(flags.Name()+": "+err.Error(), "see tgpu --help")
	return exitUsage, true
}

// tgpuBerth runs one of berth's own commands. What that has to say, tgpu says.
func tgpuBerth(c *Call, out io.Writer, args ...string) int {
	said := newInItsName(c.Err, c.Name, "berth submit", "tgpu submit", "berth list", "tgpu list", "berth cancel", "tgpu cancel", "berth logs", "tgpu logs")
	defer said.flush()
	return c.Berth(args, out, said)
}

// tgpuReach runs one of berth's commands that ask about jobs. A private daemon
// goes when it has been idle; what it kept is there again with the next one.
func tgpuReach(c *Call, out io.Writer, args ...string) int {
	if _, err := c.Daemon(context.Background(), true); err != nil {
		hint := ""
		var next interface{ Hint() string }
		if errors.As(err, &next) {
			hint = next.Hint()
		}
		c.complain(err.Error(), hint)
		return exitFailed
	}
	return tgpuBerth(c, out, args...)
}

func tgpuCancel(c *Call, args []string) int {
	flags := tgpuFlags("cancel")
	if code, done := tgpuParse(c, flags, args); done {
		return code
	}
	if flags.NArg() == 0 {
		c.complain("cancel which job?", "tgpu list shows the ids; tgpu cancel 3")
		return exitUsage
	}
	if !tgpuIDs(c, flags.Args()) {
		return exitUsage
	}
	return tgpuReach(c, c.Out, append([]string{"cancel"}, flags.Args()...)...)
}

func tgpuLogs(c *Call, args []string) int {
	flags := tgpuFlags("logs")
	follow := flags.BoolP("follow", "f", false, "")
	if code, done := tgpuParse(c, flags, args); done {
		return code
	}
	if flags.NArg() != 1 {
		c.complain("logs takes one job", "tgpu list shows the ids; tgpu logs 3")
		return exitUsage
	}
	if !tgpuIDs(c, flags.Args()) {
		return exitUsage
	}
	words := []string{"logs", flags.Arg(0)}
	if *follow {
		words = append(words, "-f")
	}
	return tgpuReach(c, c.Out, words...)
}

// tgpuIDs tells whether all words are ids. berth's own commands know more
// ways to say which jobs (all, names, ranges), and nobody should cancel by one
// of those by accident.
func tgpuIDs(c *Call, words []string) bool {
	for _, word := range words {
		if word == "" || strings.Trim(word, "0123456789_") != "" {
			c.complain(fmt.Sprintf("%q is not the id of a job", word), "ids are numbers; tgpu list shows them")
			return false
		}
	}
	return true
}
