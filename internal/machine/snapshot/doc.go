// Package snapshot keeps the code that jobs were submitted with. It knows which
// files of a directory are code (git's view of a work tree, or ignore rules), makes
// a read-only copy of them, stores each content once, and removes copies that no
// queue needs any more.
//
// It acts with the rights of the user who submits, in a directory of that user.
// It may not run in a daemon for other users, and knows no job.
//
// # How long a copy stays
//
// An id is a hash of names, contents, executable bits and link targets, so equal
// trees share one copy. A copy is built under another name, synced and renamed, so
// one that exists is complete. It has a file for each queue that may need it, which
// goes when none of that queue's jobs refers to the copy any more; a copy without
// such a file is removed. The daemon stores only the reference and never opens the
// path: the job's own process changes to the same place inside the copy.
package snapshot
