package predict

import "time"

// Source is what an estimate is based on.
type Source string

// The sources, the best first.
const (
	FromCommand Source = "command" // earlier runs of the same command with the same arguments
	FromProgram Source = "program" // the same with other numbers and paths
	FromUser    Source = "user"    // recent jobs of the same user, whatever they ran
	FromLimit   Source = "limit"   // the job's time limit, if there is no history
	FromNothing Source = "none"
)

// Past is one ended run.
type Past struct {
	User    string
	Command string // as written; "" if not known, as in some traces
	Key     string // Normalise(Command) if the caller has it; "": computed here
	GPUs    int
	Ran     time.Duration
	PeakMiB int64 // the highest on one card; 0: not measured
	OK      bool  // it succeeded: the time until a crash is not how long a job runs
	OOM     bool  // it ran out of memory: its peak is the least it needs
}

// Ask is a job to estimate.
type Ask struct {
	User    string
	Command string
	Key     string // as in Past
	GPUs    int
	Limit   time.Duration // 0: none
	Grace   time.Duration // how much longer it may run at its limit
	Ran     time.Duration // how long it has been running; 0: it has not started
}

// Estimate is how long a job runs: typically Mid, and in nine of ten cases
// between Low and High. All are 0 if there is no estimate.
type Estimate struct {
	Low, Mid, High time.Duration
	Source         Source
	Samples        int  // how many runs it is based on
	Longer         bool // of all runs, only those that took longer than the job so far
}

// Guess reports that no run of the same command with the same arguments is known,
// only others.
func (e Estimate) Guess() bool { return e.Source == FromProgram || e.Source == FromUser }

// Memory is an estimate of what a job needs on each of its cards. HighMiB is
// safe to declare, before the margin added to every measured peak.
type Memory struct {
	LowMiB, MidMiB, HighMiB int64
	Source                  Source
	Samples                 int
}

// key is the normalised command, computed if the caller did not give it.
func key(command, normalised string) string {
	if normalised != "" {
		return normalised
	}
	return Normalise(command)
}
