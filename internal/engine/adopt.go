package engine

import (
	"fmt"

	"berth/internal/engine/journal"
	"berth/internal/job"
)

// A job can represent a process that berth did not start. The process is where
// it is, so the job does not queue: it starts on those cards whether it fits or
// not, and its supervisor only watches.

// Adopt accepts such a job, numbered and with the process in its spec. Like any
// other it exists once it is on disk, which done reports.
func (t *Turn) Adopt(j *job.Job, grant job.Grant, done func(error)) {
	if j.Spec.Adopt == nil {
		panic("bug: job " + j.ID + " is adopted and names no process")
	}
	t.Accept(journal.Batch{Jobs: []*job.Job{j}, Done: done})
	j.Grant = grant
}

// Adopted is the job that represents this process, if there is one.
func (t *Turn) Adopted(p job.Process) (id string, found bool) {
	for id, j := range t.line.Roster.Jobs {
		if j.Spec.Adopt != nil && *j.Spec.Adopt == p {
			return id, true
		}
	}
	t.changes.EachStaged(func(j *job.Job) {
		if j.Spec.Adopt != nil && *j.Spec.Adopt == p {
			id, found = j.ID, true
		}
	})
	return id, found
}

// startText is the text of a job's start event.
func startText(j *job.Job) string {
	if j.Spec.Adopt == nil {
		return ""
	}
	return fmt.Sprintf("berth accounts for process %d from now on", j.Spec.Adopt.PID)
}
