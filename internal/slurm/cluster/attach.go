package cluster

import (
	"fmt"
	"strconv"
	"syscall"

	"berth/internal/slurm/client"
	"berth/internal/slurm/handover"
	"berth/internal/text/problem"
)

// attachWord is the argument of the process that becomes srun.
const attachWord = "attach"

// attachMain becomes an srun that runs beside the job. It returns only if it cannot.
func attachMain(args []string, environ []string) error {
	if len(args) != 2 {
		return problem.Newf(problem.Invalid, "", "expected a directory and a number")
	}
	index, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	b, err := handover.ReadBegun(args[0], index)
	if err != nil {
		return err
	}
	if b == nil || b.Taken || b.Step == "" || b.Program == "" {
		return problem.Newf(problem.Refused, "", "the job has not started on a node of Slurm")
	}
	srun, err := client.Client{Environ: environ}.Find("srun")
	if err != nil {
		return err
	}
	argv := []string{
		srun, "--jobid=" + b.Step, "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--gres=none", "--unbuffered", "--quiet", "--export=NONE",
		"--chdir=/", b.Program, "__node", attachWord, args[0], args[1],
	}
	return fmt.Errorf("run srun: %w", syscall.Exec(srun, argv, environ))
}
