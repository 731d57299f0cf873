package job

import (
	"fmt"
	"strconv"
	"strings"
)

// State is the state of a job. Users and their scripts see these six words.
type State string

// The states.
const (
	Queued    State = "queued"
	Running   State = "running"
	Parked    State = "parked"
	Finished  State = "finished"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// table is the only place that says which state may follow which.
var table = map[State][]State{
	// A queued job is placed, refused (infeasible) or cancelled.
	Queued: {Running, Failed, Cancelled},
	// Running may return to Queued: its supervisor died before anything ran, it
	// is retried, requeued at its time limit, preempted, or berth itself was
	// interrupted.
	Running: {Queued, Parked, Finished, Failed, Cancelled},
	Parked:  {Queued, Running, Failed, Cancelled},
	// An ended job runs again only when a user requests it.
	Finished:  {Queued},
	Failed:    {Queued},
	Cancelled: {Queued},
}

// Terminal reports whether a job in this state has ended.
func (s State) Terminal() bool { return s == Finished || s == Failed || s == Cancelled }

// To changes the state along the table. It is the only way a state changes.
func (j *Job) To(next State) error {
	for _, allowed := range table[j.State] {
		if allowed == next {
			j.State = next
			return nil
		}
	}
	return fmt.Errorf("job %s cannot go from %s to %s", j.ID, j.State, next)
}

// MustTo is To where a refusal would be a bug.
func (j *Job) MustTo(next State) {
	if err := j.To(next); err != nil {
		panic("bug: " + err.Error())
	}
}

// Outcome is how a job ended. It is empty until then.
type Outcome string

// The outcomes without a number or name.
const (
	OK           Outcome = "ok"
	Timeout      Outcome = "timeout"
	OOM          Outcome = "oom"
	Overuse      Outcome = "overuse" // it used far more GPU memory than it declared
	Infeasible   Outcome = "infeasible"
	Launch       Outcome = "launch" // it never started
	Lost         Outcome = "lost"   // its supervisor died
	Resume       Outcome = "resume" // it was parked, and could not be resumed
	WasCancelled Outcome = "cancelled"
	Depends      Outcome = "dependency" // a dependency failed
)

// Exited is the outcome of a command that returned a non-zero code.
func Exited(code int) Outcome { return Outcome("exit:" + strconv.Itoa(code)) }

// Signalled is the outcome of a command killed by a signal, as in "signal:SEGV"
// (the name without SIG).
func Signalled(name string) Outcome { return Outcome("signal:" + name) }

// State is the terminal state of the outcome.
func (o Outcome) State() State {
	switch o {
	case OK:
		return Finished
	case WasCancelled, Depends:
		return Cancelled
	}
	return Failed
}

// Words is the outcome as the end of a sentence: "failed with exit code 3".
func (o Outcome) Words() string {
	switch o {
	case OK:
		return "finished successfully"
	case Timeout:
		return "reached its time limit"
	case OOM:
		return "ran out of memory"
	case Overuse:
		return "used more GPU memory than it declared"
	case Infeasible:
		return "can never run on this machine"
	case Launch:
		return "could not be started"
	case Lost:
		return "was lost"
	case Resume:
		return "could not be resumed"
	case WasCancelled, Depends:
		return "was cancelled"
	}
	if name, found := strings.CutPrefix(string(o), "signal:"); found {
		return "was killed by SIG" + name
	}
	return "failed with exit code " + strings.TrimPrefix(string(o), "exit:")
}

// Ending is how a job ended, with the detail recorded for it, if any.
func (o Outcome) Ending(detail string) string {
	switch {
	case detail == "":
		return o.Words()
	case o == WasCancelled && strings.HasPrefix(detail, "cancelled"):
		return "was " + detail
	case strings.HasPrefix(detail, o.Words()): // "reached its time limit of 3s"
		return detail
	}
	return o.Words() + ": " + detail
}

// ExitCode is the number in "exit:N".
func (o Outcome) ExitCode() (int, bool) {
	digits, found := strings.CutPrefix(string(o), "exit:")
	if !found {
		return 0, false
	}
	code, err := strconv.Atoi(digits)
	return code, err == nil
}

// Status is the exit status for this outcome when many jobs are summed up in one
// number: 0 for ok and for a job that the user cancelled, the command's own code
// for exit:N, otherwise 1.
func (o Outcome) Status() int {
	if o == OK || o == WasCancelled {
		return 0
	}
	if code, ok := o.ExitCode(); ok && code > 0 {
		return code
	}
	return 1
}

// StatusWith is Status for a job with this exit code, which counts whatever the
// reason it failed. That of a set-up is not the job's.
func (o Outcome) StatusWith(exitCode *int) int {
	status := o.Status()
	if status > 0 && o != Launch && exitCode != nil {
		return max(status, *exitCode)
	}
	return status
}
