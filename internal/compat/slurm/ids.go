package slurm

import (
	"os"
	"strings"

	"berth/internal/compat/frontend"
	"berth/internal/job"
)

// byNumber lets a program take the ids of SLURM_ variables for berth's.
func byNumber(run func(*frontend.Call) int) func(*frontend.Call) int {
	return func(c *frontend.Call) int {
		own, id := os.Getenv("SLURM_JOB_ID"), os.Getenv("BERTH_JOB_ID")
		asked := *c
		asked.Args = make([]string, len(c.Args))
		for i, word := range c.Args {
			if own != "" && id != "" && strings.Contains(id, "_") { // only a task's number needs it
				word = strings.ReplaceAll(word, own, id)
			}
			asked.Args[i] = job.FromSlurm(word)
		}
		return run(&asked)
	}
}
