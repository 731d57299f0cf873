// Package sim replays a workload in virtual time: jobs arrive, sched.Decide
// places and preempts them as it would on a live machine, and they end after
// their durations. It measures how long jobs waited, and computes lower bounds
// that no scheduler could beat. It also reads the workloads: a trace, the jobs
// that a daemon ran, and the snapshot of a daemon.
//
// It may not read a clock, draw a random number, open a file, log, or start a
// process. Time passes from event to event, chance and stopwatches are
// arguments, and the order of the input does not matter. It imports the
// standard library and pure packages.
package sim
