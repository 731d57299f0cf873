// Package store keeps the truth about every job in one SQLite file: jobs as
// they are, the events that led there, messages that wait to be sent, and a few
// named values. A Commit that returned nil survives kill -9 and a power cut; one
// that failed left nothing behind.
//
// One process has a store open at a time, and makes one commit at a time. Reads
// run concurrently and see only whole commits.
//
// The store may not decide: it uses no clock except for the time in its lock
// file, changes no job's state, and starts nothing. It imports package job and
// the SQLite driver.
package store
