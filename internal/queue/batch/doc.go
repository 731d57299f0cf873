// Package batch is both ends of `berth run`. A follower is the command itself: it
// makes a queue match a live jobs file and shows the user what happens, in a
// daemon's queue or in one of its own. It has a source (the file), a voice (what it
// prints), a view (the live block) and a stop (how it ends before its jobs). A Host is what an own queue has that a
// daemon's has not: a log directory with a journal and a status board, and what
// earlier runs left there.
//
// Neither places or starts jobs; the engine does that.
package batch
