package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
)

// jobFlag is a flag that says something about a job. Its key in a spec is
// the one that the grammar of submissions knows it by.
type jobFlag struct {
	name, short string
	alone       string // what the flag without a value means; empty: it needs one
	word        string // for the value, in the help
	help        string
}

// jobFlagTable is in the order of the help.
var jobFlagTable = []jobFlag{
	{name: "name", short: "n", word: "text", help: "for people and logs (default job<id>)"},
	{name: "gpus", short: "g", word: "n", help: "how many GPUs; 0: a CPU job; 0.5: half of one (default 1)"},
	{name: "vram", word: "size", help: "memory it needs on each GPU: 18G, 18432 (MiB), auto; it may then share a GPU (default: a whole idle one)"},
	{name: "gpu-type", word: "text", help: "only cards whose name contains this"},
	{name: "gpu-ids", word: "ids", help: "exactly these cards, in this order: 1,3"},
	{name: "allow", word: "ids", help: "any of these cards: 0-3,5"},
	{name: "exclusive", alone: "true", help: "share its GPUs with no other job of berth"},
	{name: "cpus", short: "c", word: "n", help: "host CPUs"},
	{name: "mem", word: "size", help: "host memory: 32G"},
	{name: "pin", alone: "true", help: "run on the CPUs next to its cards only"},
	{name: "inject-gpus", word: "flag=what", help: "tell the command its cards in this flag of it: --cuda=physical (their numbers), --gpus=local (from 0)"},
	{name: "priority", short: "p", word: "n", help: "higher starts first (default 0)"},
	{name: "time", short: "t", word: "time", help: "time limit: 90 (seconds), 15m, 2h, 1d, 1:30:00 (default none)"},
	{name: "signal", word: "name@s", help: "warn it before its limit: USR1@60"},
	{name: "on-timeout", word: "what", help: "kill, or requeue (default kill)"},
	{name: "max-requeues", word: "n", help: "at most so often (default 10)"},
	{name: "retries", word: "n", help: "try again after a failure (default 0)"},
	{name: "retry-on", word: "what", help: "what is tried again: oom, or fail (default oom)"},
	{name: "after", word: "jobs", help: "start when these have ended: 12:ok,13:any,@ (ok, any or fail)"},
	{name: "array", word: "range", help: "many tasks of one job: 0-99%4 (four at a time)"},
	{name: "begin", word: "when", help: "not before: now+2h, 16:00, 2026-03-01T16:00"},
	{name: "hold", alone: "true", help: "not until it is released"},
	{name: "chdir", short: "C", word: "dir", help: "working directory (default this one)"},
	{name: "export", word: "what", help: "of this environment: all, none, or names A,B (default all)"},
	{name: "venv", word: "dir", help: "Python environment to activate first"},
	{name: "conda", word: "name", help: "conda environment to activate first"},
	{name: "setup", word: "command", help: "shell command to run first, in the same shell"},
	{name: "output", short: "o", word: "pattern", help: "log file: %j id, %n name, %u user, %a array index"},
	{name: "pty", alone: "true", help: "give it a terminal: colours, progress bars, berth attach"},
	{name: "dedup", alone: "true", help: "refuse if the same job is queued, running or finished well"},
	{name: "requeue", alone: "true", help: "run again if the machine went down under it"},
	{name: "grace", word: "time", help: "between TERM and KILL (default 10s)"},
	{name: "preemptible", alone: "park", word: "how", help: "may be set aside for a higher priority: park, or requeue"},
	{name: "cap", word: "how", help: "limit on device memory: none, soft (asked of frameworks) or mps (enforced)"},
}

// jobFlags are the flags of submit and edit that describe a job.
type jobFlags struct {
	env   []string
	flags *pflag.FlagSet
}

func (f *jobFlags) register(cmd *cobra.Command) {
	f.flags = cmd.Flags()
	f.flags.SortFlags = false
	for _, flag := range jobFlagTable {
		value := &jobValue{word: flag.word}
		if flag.alone == "true" {
			value.word = "bool"
		}
		f.flags.VarPF(value, flag.name, flag.short, flag.help).NoOptDefVal = flag.alone
		if flag.name == "export" {
			f.flags.StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE: set a variable; may be repeated")
		}
	}
}

// jobValue is text that the daemon will read.
type jobValue struct{ text, word string }

func (v *jobValue) Set(text string) error { v.text = text; return nil }

func (v *jobValue) String() string { return v.text }

// Type is the word for the value in the help.
func (v *jobValue) Type() string { return v.word }

// pairs are the flags that were given, in the order of the table.
func (f *jobFlags) pairs() []jobfile.Pair {
	var pairs []jobfile.Pair
	for _, flag := range jobFlagTable {
		if f.flags.Changed(flag.name) {
			pairs = append(pairs, jobfile.Pair{Key: flag.name, Value: f.flags.Lookup(flag.name).Value.String()})
		}
	}
	for _, variable := range f.env {
		pairs = append(pairs, jobfile.Pair{Key: "env", Value: variable})
	}
	return pairs
}

// apply puts the flags into a spec, once each was seen to make sense.
func (f *jobFlags) apply(spec *api.Spec) error {
	for _, pair := range f.pairs() {
		if err := checkPair(pair); err != nil {
			return &problem.Problem{Kind: problem.Invalid, What: "--" + err.Error(), Hint: "see berth submit --help"}
		}
		if err := setPair(spec, pair); err != nil {
			return &problem.Problem{Kind: problem.Invalid, What: "--" + err.Error(), Hint: "see berth submit --help"}
		}
	}
	return nil
}

// checkPair reads a value the way the daemon will, so that a slip of the
// fingers is told at once and starts nothing. An array is left to the daemon,
// which knows how large one may be.
func checkPair(pair jobfile.Pair) error {
	if pair.Value == "" {
		return fmt.Errorf("%s: found nothing, allowed a value", pair.Key)
	}
	if pair.Key == "array" {
		return nil
	}
	// Alone, a key may contradict a default it was never meant to stand
	// beside; only its own form is looked at here.
	_, err := jobfile.Ask([]jobfile.Pair{pair}, time.Now(), job.Spec{GPUs: 1}, 1)
	if err != nil && !strings.HasPrefix(err.Error(), pair.Key+": ") {
		return nil
	}
	return err
}

// setPair gives a spec one key under the name the daemon knows.
func setPair(spec *api.Spec, pair jobfile.Pair) error {
	key, err := jobfile.AskKey(pair.Key)
	if err != nil {
		return err
	}
	value := pair.Value
	if key == "env" {
		name, content, found := strings.Cut(value, "=")
		if !found || name == "" {
			return fmt.Errorf("%s: found %q, allowed NAME=VALUE", pair.Key, value)
		}
		key, value = "env."+name, content
	}
	if !spec.Set(key, value) {
		return fmt.Errorf("%s: this berth cannot send it", pair.Key)
	}
	return nil
}

// commandOf reads what follows --: one word is a shell line, several are
// executed as they are.
func commandOf(words []string) api.Command {
	if len(words) == 1 {
		return api.Command{Shell: words[0]}
	}
	return api.Command{Argv: words}
}
