package slurm

import (
	"fmt"
	"os"
	"strings"

	"berth/internal/compat/frontend"
)

// scontrol tells a script where it runs, and acts on its job.
var scontrol = frontend.Program{Name: "scontrol", Usage: scontrolUsage, Run: runScontrol}

const scontrolUsage = `usage: scontrol show hostnames [LIST]
       scontrol show job [ID]
       scontrol requeue|hold|release ID

What scripts ask scontrol for inside a job, answered by berth. show hostnames
prints the machines of LIST, one a line, or the job's own. The others are berth
show, berth requeue, berth hold and berth release.

  -h, --help  print this

Exit status: 0 done; 1 failed, or not among these.

Example:
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
`

func runScontrol(c *frontend.Call) int {
	words := c.Args
	if len(words) > 1 && words[0] == "show" {
		words = append([]string{"show " + words[1]}, words[2:]...)
	}
	switch {
	case len(words) == 0:
	case len(words) <= 2 && strings.HasPrefix(words[0], "show hostname"):
		list := os.Getenv("SLURM_JOB_NODELIST")
		if len(words) == 2 {
			list = words[1]
		}
		for name := range strings.SplitSeq(list, ",") {
			fmt.Fprintln(c.Out, name)
		}
		return 0
	case len(words) <= 2 && words[0] == "show job":
		id := os.Getenv("SLURM_JOB_ID")
		if len(words) == 2 {
			id = words[1]
		}
		return c.Berth([]string{"show", id}, c.Out, c.Err)
	case len(words) >= 2 && (words[0] == "requeue" || words[0] == "hold" || words[0] == "release"):
		return c.Berth(words, c.Out, c.Err)
	}
	c.Complain("berth does not do this", "see scontrol --help")
	return frontend.Failed
}
