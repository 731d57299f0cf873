package node

import (
	"errors"
	"fmt"
	"io"
	"os"

	"berth/internal/machine/run"
	"berth/internal/queue"
	"berth/internal/slurm/handover"
	"berth/internal/text/problem"
)

// attach connects its input and output to the job's supervisor on this node: what
// `berth attach` speaks to a supervisor of its own machine goes through srun as it
// is. It returns when either side ends.
func attach(dir string, index int, in io.Reader, out, errs io.Writer) int {
	err := relay(dir, index, in, out)
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, "berth:", err)
	if p, ok := errors.AsType[*problem.Problem](err); ok && p.Hint != "" {
		fmt.Fprintln(errs, "hint:", p.Hint)
	}
	return 1
}

func relay(dir string, index int, in io.Reader, out io.Writer) error {
	n, err := load(dir, index, os.Environ(), io.Discard)
	if err != nil {
		return err
	}
	id := n.order.Job.ID
	begun, err := handover.ReadBegun(dir, index)
	switch {
	case err != nil:
		return err
	case begun == nil || begun.Taken:
		return problem.Newf(problem.Refused, "", "job %s has not started", id)
	}
	conn, err := run.AttachIn(queue.KeepDir(begun.Dir), id)
	if err != nil {
		return problem.Newf(problem.Unable, "berth logs "+id+" shows its output", "the terminal of job %s cannot be reached: %w", id, err)
	}
	defer conn.Close()
	over := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(conn, in) // the other direction says what happened
		over <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(out, conn)
		over <- struct{}{}
	}()
	<-over
	return nil
}
