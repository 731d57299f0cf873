// Package session is what every verb starts with: the queue that is meant, the
// connection to it, and what it says besides its result. It starts a private daemon
// where there is none, and waits for one that restarts.
//
// It may not know a verb, or draw anything of its own.
//
// Its files are in groups, and each uses only those above it:
//
//	the queue that is meant: exit host connect queues runhere autostart
//	what outlasts a restart or a second: patience watch
package session
