// Package session is what every verb starts with: the queue that is meant, the
// connection to it, and the terminal it writes to. It starts a private daemon
// where there is none, and waits for one that restarts.
//
// It may not know a verb, or draw anything of its own.
//
// Its files are in groups, and each uses only those above it:
//
//	what a verb writes to: terminal screen exit
//	the queue that is meant: host connect queues runhere autostart
//	what outlasts a restart or a second: patience watch
package session
