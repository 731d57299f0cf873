package api

import (
	"strings"

	"berth/internal/job"
	"berth/internal/keep"
)

// What stands for a job that ended without a status of its own.
const (
	exitFailed  = 1
	exitTimeout = 124
)

// ExitStatus is the status that stands for a job that is over, to whoever
// waited for it: its own code, 128 and the signal's number, 124 for a timeout,
// else 1.
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
	if code, isExit := v.Outcome.ExitCode(); isExit && code > 0 && code < 256 {
		return code
	}
	if name, isSignal := strings.CutPrefix(string(*v.Outcome), "signal:"); isSignal {
		if number, known := keep.SignalNumber(name); known {
			return 128 + number
		}
	}
	return exitFailed
}
