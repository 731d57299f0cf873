// Package batch is `berth run`: a live jobs file in front of the engine. It
// turns lines into jobs and edits into requests, resumes what an earlier run
// left, and shows the user what happens.
//
// It neither places nor starts jobs; the engine does that.
package batch
