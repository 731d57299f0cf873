// Package soak tests the whole program with real processes, real signals and
// kill -9. It has tests only, and may not import any package of berth except
// the client of its api: it knows what a user can see, and what the kernel
// reports.
//
// The jobs keep the records themselves. Each is a small shell program that
// writes its start and its end into one append-only file, and holds a lock on
// a file for each of its cards while any of its processes lives. So "never
// twice", "never lost" and "never two on one card" are checked against what
// happened, not against what berth reports.
package soak
