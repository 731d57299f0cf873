// Package job has the nouns that every other package uses: what a user asked for
// (Spec), what happened to it (Job), the one table of states, and the events. It
// knows no clock, no file, no process and no card, and imports only the standard
// library.
//
// Below it, jobfile is the grammar in which users write jobs, and reason why a job
// waits. Start with spec.go, then state.go.
package job
