package engine

import (
	"fmt"

	"berth/internal/job"
)

// A job can represent a process that berth did not start. The process is where
// it is, so the job does not queue: it starts on those cards whether it fits or
// not, and its supervisor only watches.

// startText is the text of a job's start event.
func startText(j *job.Job) string {
	if j.Spec.Adopt == nil {
		return ""
	}
	return fmt.Sprintf("berth accounts for process %d from now on", j.Spec.Adopt.PID)
}
