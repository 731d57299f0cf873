// Package store keeps the truth about every job in one SQLite file: jobs as
// they stand, the events that tell how they came there, and a few named
// values. A Commit that returned nil survives kill -9 and a power cut; one
// that failed left nothing behind.
//
// One process has a store open at a time, and within it one commit follows
// another. Reads go on beside them and see whole commits only.
//
// The store may not decide: it knows no clock beyond the stamp in its lock
// file, moves no job from state to state, and starts nothing. It imports
// package job and the SQLite driver.
package store
