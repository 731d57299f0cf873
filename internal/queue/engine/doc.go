// Package engine is the loop that every way of using berth shares: observe,
// decide, commit, act. It turns what happened into durable facts, asks sched
// what to do, commits that, and only then lets the runner do it.
//
// Its parts are packages of their own: settings, judge, launch, journal, cards,
// waiting, running, remote.
// Each knows those above it in this list at most; what takes several of them is
// done here.
//
// It knows no terminal, no jobs file and no socket: those call it. The only ways
// in are Do and Change, which give a function its Turn in the goroutine of the
// loop, and Outside while no loop runs. Start with round.go.
package engine
