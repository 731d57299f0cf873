// Package sim replays a workload in virtual time: jobs arrive, sched.Decide
// places them as it would on a live machine and sets them aside, and they end
// when they have run for their durations. It says how long everybody waited, and
// what no scheduler could have bettered. It also reads what can be replayed: a
// trace, the jobs that a daemon ran, and the snapshot of a daemon.
//
// It may not look at a clock, draw a random number, open a file, log, or start
// anything. Time passes from event to event, chance and stopwatches are
// arguments, and the order of the input decides nothing. It imports the
// standard library and pure rooms.
package sim
