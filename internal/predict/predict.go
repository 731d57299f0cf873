package predict

import "time"

// Source is what a guess rests on.
type Source string

// The sources, the best first.
const (
	FromLimit   Source = "limit"   // the job's own time limit, where nothing else is known
	FromCommand Source = "command" // earlier runs of the same command
	FromUser    Source = "user"    // what the same user's jobs did lately
	FromNothing Source = "none"
)

// Past is one run that is over.
type Past struct {
	User    string
	Command string // as it was given; "" where there is none, as in a trace
	GPUs    int
	Ran     time.Duration
	PeakMiB int64 // the highest on one card; 0: not measured
	OK      bool  // it ended well: one that crashed after a second says nothing of how long it takes
}

// Ask is a job that something is to be guessed of.
type Ask struct {
	User    string
	Command string
	GPUs    int
	Limit   time.Duration // 0: none
}

// Guess is how long a job runs: in nine of ten cases at least Low, as a rule
// Mid, in nine of ten at most High. All are 0 where nothing is known.
type Guess struct {
	Low, Mid, High time.Duration
	Source         Source
	Samples        int // how many runs it rests on
}

// Memory is what a job needs on each of its cards.
type Memory struct {
	LowMiB, MidMiB, HighMiB int64
	Source                  Source
	Samples                 int
}
