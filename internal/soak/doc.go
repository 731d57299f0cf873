// Package soak tries the whole program with real processes, real signals and
// kill -9. It holds tests and no code, and it may not import any room of
// berth but the client of its api: what it knows is what a user can see, and
// what the kernel says.
//
// The jobs keep the books themselves. Each is a small shell program that
// writes its start and its end into one append-only file, and holds a lock on
// a file for each of its cards for as long as any process of it lives. So
// "never twice", "never lost" and "never two on one card" are checked against
// what happened, not against what berth says happened.
package soak
