package daemon

import (
	"path/filepath"

	"berth/internal/job"
	"berth/internal/text/problem"
)

// mpsHome is the directory for jobs' MPS servers. Users' programs must be able
// to reach the sockets in it.
func (d *Daemon) mpsHome() string {
	if d.opt.Places.Shared {
		return filepath.Dir(d.opt.Places.Socket)
	}
	return d.opt.Places.StateDir
}

// capable refuses a job whose limits this machine cannot enforce.
func (d *Daemon) capable(spec *job.Spec) error {
	if spec.To == job.ToSlurm {
		return nil // its node enforces them
	}
	if why := d.machine.Launcher.Refuses(spec); why != "" {
		return problem.Newf(problem.Refused, d.machine.Launcher.MPSHint, "%s", why)
	}
	return nil
}
