package allocation

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"berth/internal/queue/batch"
	"berth/internal/slurm"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// Options are the flags of `berth run`, with those that concern allocations.
type Options struct {
	batch.Options
	Count int      // how many allocations at a time
	Alloc []string // options for sbatch, as ParseSlurm returns them
	Asked string   // the same as the user wrote them
	Inner []string // flags for the berth run of each allocation

	Program   string // berth itself
	Installed string // berth on the nodes; empty: a copy in the log directory

	Idle   time.Duration // how long an allocation without a job waits for more
	Silent time.Duration // how long an allocation that Slurm does not know has to be silent before it counts as ended
}

// The defaults of the last two.
const (
	DefaultIdle   = 5 * time.Minute
	DefaultSilent = time.Minute
)

// refused are options of sbatch that would change what an allocation is, each with
// what to use instead; empty: nothing.
var refused = map[string]string{
	"array": "use --allocations for their number", "nodes": oneNode, "ntasks": oneNode, "ntasks-per-node": oneNode, "ntasks-per-gpu": oneNode, "test-only": "use --dry-run",
	"chdir": "", "comment": "", "error": "", "export": "", "export-file": "", "get-user-env": "", "input": "", "job-name": "", "no-requeue": "", "requeue": "", "open-mode": "",
	"output": "", "parsable": "", "signal": "", "wait": "", "wrap": "", "quiet": "", "verbose": "", "help": "", "usage": "", "version": "", "uid": "", "gid": "", "clusters": "",
	"kill-on-invalid-dep": "",
}

const (
	oneNode = "each allocation is one task on one node; use --cpus-per-task for more CPUs"
	example = `--alloc "--gres=gpu:2 --time=8:00:00"`
)

// ParseSlurm reads the options for sbatch: words, with quotes as in a shell.
// Options that berth sets itself are refused.
func ParseSlurm(line string) ([]string, error) {
	words, err := slurm.Split(line)
	if err != nil {
		return nil, problem.Newf(problem.Invalid, example, "--alloc: %w", err)
	}
	for i := 0; i < len(words); i++ {
		name, valueNext := slurm.OptionOf(words[i])
		if name == "" {
			return nil, problem.Newf(problem.Invalid, example, "--alloc: expected options of sbatch, found %s", text.Found(words[i]))
		}
		if instead, bad := refused[name]; bad {
			return nil, problem.Newf(problem.Invalid, cmp.Or(instead, "leave it out"), "--alloc: berth sets --%s itself", name)
		}
		if valueNext {
			if i++; i == len(words) {
				return nil, problem.Newf(problem.Invalid, example, "--alloc: expected a value after --%s, found none", name)
			}
		}
		if name == "time" {
			words[i] = slurmTime(words[i])
		}
	}
	return words, nil
}

// slurmTime writes a time limit such as 8h, --time=90m or -t2d as Slurm reads it.
// Slurm's own forms stay as they are.
func slurmTime(word string) string {
	at := strings.LastIndexAny(word, "=t") + 1
	if strings.HasPrefix(word, "--") {
		at = strings.IndexByte(word, '=') + 1
	}
	value := word[at:]
	if value == "" || !strings.ContainsAny(value[len(value)-1:], "smhd") {
		return word
	}
	limit, err := text.ParseDuration(value)
	if err != nil {
		return word // Slurm says what is wrong with it
	}
	return word[:at] + strconv.Itoa(int((limit+time.Minute-1)/time.Minute))
}
