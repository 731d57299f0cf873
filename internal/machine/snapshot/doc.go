// Package snapshot keeps the code that jobs were submitted with. It knows which
// files of a directory are code (git's view of a work tree, or ignore rules), makes
// a read-only copy of them, stores each content once, and removes copies that no
// queue needs any more.
//
// It acts with the rights of the user who submits, in a directory of that user.
// It may not run in a daemon for other users, and knows no job.
package snapshot
