package daemon

import (
	"path/filepath"

	"berth/internal/job"
	"berth/internal/problem"
)

// mpsHome is where jobs' MPS servers have their directory: users' programs
// have to get there, and the way to its socket is one that they can go.
func (d *Daemon) mpsHome() string {
	if d.opt.Places.Shared {
		return filepath.Dir(d.opt.Places.Socket)
	}
	return d.opt.Places.StateDir
}

// capable refuses a job that this machine could not hold to what it asks for.
func (d *Daemon) capable(spec *job.Spec) error {
	if why := d.machine.Launcher.Refuses(spec); why != "" {
		return problem.Newf(problem.Refused, d.machine.Launcher.MPSHint, "%s", why)
	}
	return nil
}
