// Package daemon is the engine behind the API: a queue that many users share, or
// the own queue of a berth run (Own). It knows the callers and their permissions,
// turns requests into jobs, runs each job as its user, keeps a history, and
// behaves well as a service.
//
// It does not place jobs or judge how they ended: the engine does. As root it
// opens no path that a user controls: only processes that have become that user
// touch jobs, logs and directories.
package daemon
