// Package job has the nouns that every other room uses: what a user asked for
// (Spec), what happened to it (Job), the one table of states, and the events. It
// knows no clock, no file, no process and no card, and imports only the standard
// library.
package job
