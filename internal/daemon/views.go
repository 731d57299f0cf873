package daemon

import (
	"berth/internal/api"
	"berth/internal/job"
)

// view is a job as the caller may see it. What others run and where they
// write it is theirs.
func (d *Daemon) view(c api.Caller, j *job.Job, reasons map[string]string) job.View {
	v := j.View()
	if reason, ok := reasons[j.ID]; ok && j.State == job.Queued {
		v.Reason = &reason
	}
	if !d.maySee(c, j) {
		v.Command, v.Log = nil, nil
		if j.Outcome == job.Launch {
			v.Reason = nil // it may name files
		}
	}
	return v
}

// maySee says whether the caller may know what a job runs.
func (d *Daemon) maySee(c api.Caller, j *job.Job) bool {
	return mayTouch(c, j) || !d.opt.Places.Shared || d.config().ShowCommands == showAll
}

// showAll is the setting under which users see one another's commands.
const showAll = "all"
