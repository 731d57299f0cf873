package job

import (
	"fmt"
	"strconv"
	"strings"
)

// State is where a job stands. Users and their scripts see these six words.
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
	// A queued job is placed, refused (infeasible), or given up.
	Queued: {Running, Failed, Cancelled},
	// Running may return to Queued: its supervisor died before anything ran,
	// it is retried, requeued at its limit, set aside for another job, or
	// berth itself was interrupted.
	Running: {Queued, Parked, Finished, Failed, Cancelled},
	Parked:  {Queued, Running, Failed, Cancelled},
	// What is over starts again only when a person asks for it.
	Finished:  {Queued},
	Failed:    {Queued},
	Cancelled: {Queued},
}

// Terminal reports whether a job in this state is over.
func (s State) Terminal() bool { return s == Finished || s == Failed || s == Cancelled }

// To moves the job along the table. It is the only way a state changes.
func (j *Job) To(next State) error {
	for _, allowed := range table[j.State] {
		if allowed == next {
			j.State = next
			return nil
		}
	}
	return fmt.Errorf("job %s cannot go from %s to %s", j.ID, j.State, next)
}

// MustTo is To where any other move would be berth's own fault.
func (j *Job) MustTo(next State) {
	if err := j.To(next); err != nil {
		panic("bug: " + err.Error())
	}
}

// Outcome says how a job ended. It is empty until the job is terminal.
type Outcome string

// The outcomes that carry no number or name.
const (
	OK           Outcome = "ok"
	Timeout      Outcome = "timeout"
	OOM          Outcome = "oom"
	Infeasible   Outcome = "infeasible"
	Launch       Outcome = "launch" // it never started
	Lost         Outcome = "lost"   // its supervisor died with it
	WasCancelled Outcome = "cancelled"
	Depends      Outcome = "dependency" // a condition of its `after` cannot hold any more
)

// Exited is the outcome of a command that returned a non-zero code.
func Exited(code int) Outcome { return Outcome("exit:" + strconv.Itoa(code)) }

// Signalled is the outcome of a command that a signal ended, as in
// "signal:SEGV" (the name without SIG).
func Signalled(name string) Outcome { return Outcome("signal:" + name) }

// State is the terminal state that goes with the outcome.
func (o Outcome) State() State {
	switch o {
	case OK:
		return Finished
	case WasCancelled, Depends:
		return Cancelled
	}
	return Failed
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

// Status is the process exit status that stands for this outcome when many
// jobs are summed up in one number: 0 for ok, the command's own code for
// exit:N, otherwise 1.
func (o Outcome) Status() int {
	if o == OK {
		return 0
	}
	if code, ok := o.ExitCode(); ok && code > 0 {
		return code
	}
	return 1
}
