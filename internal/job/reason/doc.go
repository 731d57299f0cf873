// Package reason says why a job waits, for how long, and what keeps it off each
// card: as values, as JSON and as sentences for people. The scheduler fills in
// the values, and every view prints the same sentences. What a job waits for before
// the scheduler sees it, such as a time, a dependency or the disk of berth's
// state, is worded in queue/engine (waiting/gates.go, ask.go). The package decides nothing
// and has no clock, no randomness and no files.
package reason
