// Package daemon is the engine behind the API: a queue that many users share, or
// the own queue of a berth run (Own). It knows the callers and their permissions,
// turns requests into jobs, keeps a history, and behaves well as a service.
//
// It does not place jobs or judge how they ended: the engine does. As root it
// opens no path that a user controls: only processes that have become that user
// touch jobs, logs and directories.
//
// Read daemon.go first: it puts a daemon together from small types. handlers.go
// says which of them answers which request, service.go what they have in common,
// and select.go how they find the jobs that a request means. open.go and serve.go
// are a daemon's beginning, life.go and tidy.go what it does besides, and its end.
package daemon
