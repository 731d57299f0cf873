package node

import (
	"fmt"
	"io"
	"os"
	"strconv"
)

// Word makes berth's own program the wrapper of a job on a node.
const Word = "__node"

// The first arguments of its other processes.
const (
	attachWord = "attach"
	guardWord  = "guard"
)

// Main is `berth __node DIR INDEX`, which Slurm's script executes, and
// `berth __node attach DIR INDEX`, which srun executes to reach the job's terminal. It returns
// the exit status.
func Main(args []string, in *os.File, out, errs io.Writer) int {
	what := ""
	if len(args) > 0 && (args[0] == attachWord || args[0] == guardWord) {
		what, args = args[0], args[1:]
	}
	index, err := -1, error(nil)
	if len(args) >= 2 {
		index, err = strconv.Atoi(args[1])
	}
	switch {
	case err != nil || index < 0 || len(args) > 3 || len(args) == 3 && what != guardWord:
	case what == "" && len(args) == 2:
		return runJob(args[0], index, errs)
	case what == attachWord:
		return attach(args[0], index, in, out, errs)
	case what == guardWord && len(args) == 3:
		return guardJob(args[0], index, args[2], in, errs)
	}
	fmt.Fprintln(errs, "berth: this is started by Slurm, not by hand")
	return 2
}
