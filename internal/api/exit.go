package api

import (
	"strings"

	"berth/internal/job"
	"berth/internal/machine/keep"
)

// The status of a job that ended without one of its own.
const (
	exitFailed  = 1
	exitTimeout = 124
)

// ExitStatus is the exit status for a caller that waited for a job: the job's
// own code, also if it ran out of GPU memory, 128 plus the signal's number, 124 for a timeout, otherwise 1.
func ExitStatus(v job.View) int {
	if v.Outcome == nil {
		return exitFailed
	}
	switch *v.Outcome {
	case job.OK:
		return 0
	case job.Timeout:
		return exitTimeout
	}
	code, isExit := v.Outcome.ExitCode()
	if *v.Outcome == job.OOM && v.ExitCode != nil {
		code, isExit = *v.ExitCode, true
	}
	if isExit && code > 0 && code < 256 {
		return code
	}
	if name, isSignal := strings.CutPrefix(string(*v.Outcome), "signal:"); isSignal {
		if number, known := keep.SignalNumber(name); known {
			return 128 + number
		}
	}
	return exitFailed
}
