// Package batch is `berth run`: a live jobs file in front of the engine. It
// turns lines into jobs and edits into requests, resumes what an earlier run
// left, and shows the user what happens.
//
// It places nothing and starts nothing itself; that is the engine's.
package batch
