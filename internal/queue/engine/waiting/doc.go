// Package waiting is the unfinished jobs, and what the queued ones wait for: a
// gate, or room. It knows their groups, their users' usage, and what to expect of
// them.
//
// It knows no card and no supervisor: Room and Cluster tell it what it needs.
// Start with line.go, which puts a job behind a gate or into the queue; queue.go
// has the requests, and how a job leaves the queue or comes back.
package waiting
