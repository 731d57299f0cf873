// Package run is berth's side of the supervisors: it starts them, gives them
// their job, stops it, finds them again after a restart of berth, and kills
// what a dead one left behind.
//
// It may not decide anything about a job: it reports what happened as events,
// and never reports a job as gone while one of its processes lives.
//
// A Runner (runner.go) holds the supervisors of a queue (supervisors.go), each with a
// goroutine for all its life (supervisor.go, rejoin.go) and a directory (directory.go).
package run
