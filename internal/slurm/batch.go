package slurm

import (
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// Batch is what one sbatch submits: an array, or a job alone.
type Batch struct {
	Name    string
	Comment string // by which berth recognises the job again
	Script  string // path of the batch script
	Tasks   []int  // indices of the array; nil: not an array
	Limit   int    // how many tasks may run at a time; 0: all
	Log     string // of the script itself
}

// Arguments is the complete command line of sbatch. What berth relies on comes
// last, because the last of a repeated option counts.
func Arguments(options []string, b Batch) []string {
	args := append([]string{"--parsable"}, options...)
	args = append(args,
		"--job-name="+line(b.Name), "--comment="+line(b.Comment),
		"--nodes=1", "--ntasks=1",
		"--export=ALL", // see Environ
		"--chdir=/",
		"--output="+pattern(b.Log), "--error="+pattern(b.Log), "--open-mode=append")
	if len(b.Tasks) > 0 {
		array := "--array=" + indices(b.Tasks)
		if b.Limit > 0 {
			array += "%" + strconv.Itoa(b.Limit)
		}
		args = append(args, array)
	}
	return append(args, b.Script)
}

// indices is a list for --array. They are in order.
func indices(list []int) string {
	first, last := list[0], list[len(list)-1]
	if last-first+1 == len(list) {
		return strconv.Itoa(first) + "-" + strconv.Itoa(last)
	}
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// line makes a text fit into one row of squeue.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, s)
}

// pattern is a path that Slurm reads as it is.
func pattern(path string) string { return strings.ReplaceAll(path, "%", "%%") }

// Script is the batch script. It fails before the job has begun if berth is not on
// the node.
func Script(program, dir string) []byte {
	return []byte(`#!/bin/sh
# Written by berth: runs one job of a batch.
program=` + job.Quote(program) + `
if [ ! -f "$program" ] || [ ! -x "$program" ]; then
	echo "berth: node ${SLURMD_NODENAME:-$(uname -n)} has no program $program; the job was not started" >&2
	echo "hint: put berth into a directory that all nodes share, and set slurm.program in the config" >&2
	exit 127
fi
exec "$program" __node ` + job.Quote(dir) + ` "${SLURM_ARRAY_TASK_ID:-0}"
`)
}

// Submitted reads the id from what sbatch --parsable prints: "120" or
// "120;cluster".
func Submitted(stdout string) (id string, err error) {
	// A site's plugin may print lines of its own before it.
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	id, _, _ = strings.Cut(strings.TrimSpace(lines[len(lines)-1]), ";")
	if _, whole := text.Digits(id, 10); !whole {
		return "", problem.Newf(problem.Unable, "", "sbatch: expected a job id, found %s", text.Found(stdout))
	}
	return id, nil
}

// Environ is the environment for Slurm's programs: the little that they need. Others
// would set options and formats (SBATCH_PARTITION, SLURM_TIME_FORMAT). With sbatch it
// is also what the batch script begins with: --export=NONE would start the user's
// login shell on the node instead, and every srun of the job would inherit NONE.
func Environ(environ []string) []string {
	var kept []string
	for _, variable := range environ {
		if name, _, _ := strings.Cut(variable, "="); slices.Contains(keptVariables, name) {
			kept = append(kept, variable)
		}
	}
	return append(kept, "LC_ALL=C")
}

// keptVariables are what Slurm's programs find themselves, their cluster and the user by.
var keptVariables = []string{"PATH", "HOME", "USER", "LOGNAME", "TZ", "LD_LIBRARY_PATH", "KRB5CCNAME", "SLURM_CONF", "SLURM_CONF_SERVER"}
