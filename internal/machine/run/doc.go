// Package run is berth's side of the supervisors: it starts them, gives them
// their job, stops it, finds them again after a restart of berth, and kills
// what a dead one left behind.
//
// It may not decide anything about a job: it reports what happened as events,
// and never reports a job as gone while one of its processes lives.
package run
