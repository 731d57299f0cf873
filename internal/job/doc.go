// Package job holds the nouns every other room speaks: what a user asked for
// (Spec), what became of it (Job), the one table of states, and the events
// that tell the story.
//
// It knows no clock, no file, no process and no card. It imports the standard
// library only.
package job
