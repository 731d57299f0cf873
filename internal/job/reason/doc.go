// Package reason says why a job waits, for how long, and what keeps it off each
// card: as values, as JSON and as sentences for people. The scheduler fills in
// the values, and every view prints the same sentences. The package decides
// nothing and has no clock, no randomness and no files.
package reason
