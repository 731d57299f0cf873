package allocation

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// Options are the flags of `berth run` that concern allocations, checked and
// turned into values.
type Options struct {
	File     string
	Count    int      // how many allocations at a time
	Slurm    []string // options for sbatch, as ParseSlurm returns them
	Asked    string   // the same as the user wrote them
	LogDir   string
	Defaults job.Spec      // of a line without a block
	Poll     time.Duration // how often files are read
	Inner    []string      // flags for the berth run of each allocation
	Sim      int           // simulated GPUs of each allocation; 0: real ones
	SimMiB   int64         // memory of each

	Fresh       bool
	RetryFailed bool
	Quiet       bool
	JSON        bool

	Program   string // berth itself
	Installed string // berth on the nodes; empty: a copy in the log directory
	Out       io.Writer
	Signals   <-chan os.Signal
	Env       []string
	Dir       string // the caller's working directory

	Idle   time.Duration // how long an allocation without a job waits for more
	Silent time.Duration // how long an allocation that Slurm does not know has to be silent before it counts as ended
}

// The defaults of the last two.
const (
	DefaultIdle   = 5 * time.Minute
	DefaultSilent = time.Minute
)

// refused are options of sbatch that would change what an allocation is.
var refused = map[string]string{
	"array": "use --allocations for their number", "a": "use --allocations for their number",
	"chdir": "", "D": "", "comment": "", "error": "", "e": "", "export": "", "export-file": "", "get-user-env": "", "input": "", "i": "",
	"job-name": "", "J": "", "no-requeue": "", "requeue": "", "open-mode": "", "output": "", "o": "", "parsable": "", "signal": "",
	"nodes": oneNode, "N": oneNode, "ntasks": oneNode, "n": oneNode, "ntasks-per-node": oneNode, "ntasks-per-gpu": oneNode,
	"wait": "", "W": "", "wrap": "", "test-only": "use --dry-run", "quiet": "", "Q": "", "verbose": "", "v": "", "help": "", "h": "",
	"usage": "", "version": "", "V": "", "uid": "", "gid": "", "clusters": "", "M": "", "kill-on-invalid-dep": "",
}

const (
	oneNode = "each allocation is one task on one node; use --cpus-per-task for more CPUs"
	example = `--alloc "--gres=gpu:2 --time=8:00:00"`
)

// withoutValue are the options of sbatch that take none.
var withoutValue = map[string]bool{"contiguous": true, "exclusive": true, "hold": true, "H": true, "overcommit": true, "O": true,
	"oversubscribe": true, "s": true, "reboot": true, "use-min-nodes": true, "nice": true, "propagate": true}

// ParseSlurm reads the options for sbatch: words, with quotes as in a shell.
// Options that berth sets itself are refused.
func ParseSlurm(line string) ([]string, error) {
	words, err := split(line)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(words); i++ {
		name, attached, isOption := cutOption(words[i])
		if !isOption {
			return nil, problem.Newf(problem.Invalid, example, "--alloc: expected options of sbatch, found %s", text.Found(words[i]))
		}
		if instead, bad := refused[name]; bad {
			if instead == "" {
				instead = "leave it out"
			}
			return nil, problem.Newf(problem.Invalid, instead, "--alloc: berth sets %s itself", shown(name))
		}
		if !attached && !withoutValue[name] {
			if i++; i == len(words) {
				return nil, problem.Newf(problem.Invalid, example, "--alloc: expected a value after %s, found none", shown(name))
			}
		}
		if name == "time" || name == "t" {
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

// cutOption is the name of an option, and whether its value is in the same word.
func cutOption(word string) (name string, attached, ok bool) {
	if long, is := strings.CutPrefix(word, "--"); is {
		name, _, attached = strings.Cut(long, "=")
		return name, attached, name != ""
	}
	short, is := strings.CutPrefix(word, "-")
	if !is || short == "" {
		return "", false, false
	}
	return short[:1], len(short) > 1, true
}

func shown(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// split cuts a line into words; quotes group.
func split(line string) (words []string, err error) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, r := range line {
		switch {
		case r < ' ' && r != '\t':
			return nil, problem.Newf(problem.Invalid, example, "--alloc: expected options on one line, found a control character")
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, problem.Newf(problem.Invalid, example, "--alloc: expected a closing %c, found the end of the line", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
