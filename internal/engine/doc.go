// Package engine is the loop that every way of using berth shares: observe,
// decide, commit, act. It turns what happened into durable facts, asks sched
// what to do, commits that, and only then lets the runner do it.
//
// It knows no terminal, no jobs file and no socket: those call it. All its
// methods belong to one goroutine, the one that runs Run (or, in a
// simulation, calls Step); Do is the way in for any other.
package engine
