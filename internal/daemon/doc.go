// Package daemon is the engine behind the api: a queue that many people share.
// It knows who asks and what they may, turns requests into jobs, runs each as
// the person it belongs to, remembers what happened, and is a good service.
//
// It places no job and judges no end: that is the engine's. As root it opens
// no path that a user controls: jobs, logs and directories are touched by
// processes that have become that user first.
package daemon
