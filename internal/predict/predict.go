package predict

import "time"

// Source is what a guess rests on.
type Source string

// The sources, the best first.
const (
	FromCommand Source = "command" // earlier runs of the same command
	FromUser    Source = "user"    // what the same user's jobs did lately
	FromLimit   Source = "limit"   // the job's own time limit, where nothing else is known
	FromNothing Source = "none"
)

// Past is one run that is over.
type Past struct {
	User    string
	Command string // as it was given; "" where there is none, as in a trace
	Key     string // Normalise(Command), where the caller has it; "": it is worked out
	GPUs    int
	Ran     time.Duration
	PeakMiB int64 // the highest on one card; 0: not measured
	OK      bool  // it ended well: one that crashed after a second says nothing of how long it takes
	OOM     bool  // it ran out of memory: what it had by then is the least it needs
}

// Ask is a job that something is to be guessed of.
type Ask struct {
	User    string
	Command string
	Key     string // as in Past
	GPUs    int
	Limit   time.Duration // 0: none
}

// Guess is how long a job runs: as a rule Mid, and in nine of ten cases between
// Low and High. All are 0 where nothing is known.
type Guess struct {
	Low, Mid, High time.Duration
	Source         Source
	Samples        int // how many runs it rests on
}

// Memory is what a job needs on each of its cards. HighMiB is what it is safe to
// declare before the margin that every measured peak gets.
type Memory struct {
	LowMiB, MidMiB, HighMiB int64
	Source                  Source
	Samples                 int
}

// key is the normalised command of a run or a question.
func key(command, normalised string) string {
	if normalised != "" {
		return normalised
	}
	return Normalise(command)
}
