package daemon

import (
	"path/filepath"

	"berth/internal/job"
	"berth/internal/text/problem"
)

// mpsHome is the directory for jobs' MPS servers. Users' programs must be able
// to reach the sockets in it.
func (o *Options) mpsHome() string {
	if o.Places.Shared {
		return filepath.Dir(o.Places.Socket)
	}
	return o.Places.StateDir
}

// capable refuses a job whose limits this machine cannot enforce.
func (s *service) capable(spec *job.Spec) error {
	if spec.To == job.ToSlurm {
		return nil // its node enforces them
	}
	if why := s.queue.Launcher.Refuses(spec); why != "" {
		return problem.Newf(problem.Refused, s.queue.Launcher.MPSHint, "%s", why)
	}
	return nil
}
