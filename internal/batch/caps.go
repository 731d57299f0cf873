package batch

import (
	"errors"
	"fmt"

	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
)

// capable refuses a jobs file with a job whose limits this machine cannot
// enforce.
func (s *session) capable(file jobfile.File) error {
	for _, line := range file.Lines {
		if err := s.place(line); err != nil {
			return fmt.Errorf("%s:%d: %w", s.opt.File, line.Number, err)
		}
		if line.Spec.To == job.ToSlurm {
			continue // its node enforces them
		}
		if why := s.machine.Launcher.Refuses(&line.Spec); why != "" {
			return fmt.Errorf("%s:%d: %s", s.opt.File, line.Number, why)
		}
	}
	return nil
}

// openCaps checks that this machine can enforce the limits of the jobs, now and
// whenever the file changes.
func (s *session) openCaps() error {
	s.watcher.check = s.capable
	if err := s.capable(s.file); err != nil {
		hint := "use cap=soft, or install CUDA MPS; berth doctor says what is missing"
		if p, ok := errors.AsType[*problem.Problem](err); ok {
			hint = p.Hint
		}
		return problem.Wrap(problem.Invalid, hint, err)
	}
	return nil
}
