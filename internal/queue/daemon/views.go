package daemon

import (
	"berth/internal/api"
	"berth/internal/job"
)

// view is a job as the caller may see it. Other users' commands and paths are
// hidden.
func (s *service) view(c api.Caller, j *job.Job, reasons map[string]string) job.View {
	return s.viewFor(s.maySee(c, j), j, reasons)
}

func (s *service) viewFor(open bool, j *job.Job, reasons map[string]string) job.View {
	if !open {
		hidden := *j // quoting a long command for nobody would slow down everybody's lists
		hidden.Spec.Shell, hidden.Spec.Argv, hidden.Spec.Batch, hidden.Log, hidden.Spec.Trial = "", nil, "", "", job.Trial{}
		if j.Outcome == job.Launch {
			hidden.Detail = "" // it may name files
		}
		j = &hidden
	}
	v := j.View()
	if v.Batch != nil {
		whole := s.batchPath(*v.Batch)
		v.Batch = &whole
	}
	if reason, ok := reasons[j.ID]; ok && (isWaiting(j) || j.State == job.Running && j.Detail == "") {
		if s.over != "" && isWaiting(j) {
			reason = s.over
		}
		v.Reason = &reason
	}
	return v
}

// sweptCommand is the command of the sweep that a job is a trial of, with its
// placeholders; empty: it is of none, or the caller may not see it.
func (s *service) sweptCommand(c api.Caller, j *job.Job) string {
	if j.Array() == "" || j.Spec.Trial.Template == nil || !s.maySee(c, j) {
		return ""
	}
	return j.Spec.Whole().Command()
}

// isWaiting reports whether the engine knows the reason why a job does not run. One
// that was parked for another job has that as its reason.
func isWaiting(j *job.Job) bool {
	return j.State == job.Queued || j.State == job.Parked && j.Detail == ""
}
