package slurm

import (
	"fmt"

	"berth/internal/compat/frontend"
)

// Programs are those that such jobs find in their PATH.
func Programs() []frontend.Program {
	list := []frontend.Program{srun, scontrol, sbatch, squeue, scancel, sinfo, sacct, salloc, sacctmgr, sshare}
	for i, p := range list {
		list[i].Run = func(c *frontend.Call) int {
			if len(c.Args) == 1 && (c.Args[0] == "--version" || c.Args[0] == "-V") {
				fmt.Fprintf(c.Out, "slurm %s (berth %s)\n", release, c.Version)
				return 0
			}
			return p.Run(c)
		}
	}
	return list
}
