package slurm

import (
	"os"
	"strings"

	"berth/internal/compat/frontend"
	"berth/internal/job"
)

// byNumber is a call with berth's ids in place of those of SLURM_ variables.
func byNumber(c *frontend.Call) *frontend.Call {
	own, id := os.Getenv("SLURM_JOB_ID"), os.Getenv("BERTH_JOB_ID")
	asked := *c
	asked.Args = make([]string, len(c.Args))
	for i, word := range c.Args {
		if own != "" && strings.Contains(id, "_") { // only a task's number needs it
			word = strings.ReplaceAll(word, own, id)
		}
		asked.Args[i] = job.FromSlurm(word)
	}
	return &asked
}
