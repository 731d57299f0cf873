// Package journal holds what has happened and is not on disk yet, and commits it:
// one transaction with every change of a round and its events. Requests that wait
// for the disk are answered, and events published, once it succeeded.
//
// It knows no queue, no card and no supervisor. Start with journal.go.
package journal
