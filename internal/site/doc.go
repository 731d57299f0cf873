// Package site is this machine and a berth's place on it: its users as the
// system's own databases know them, the limits they have at login, what host
// resources there are, the directories a berth keeps its things in, its log,
// what a service manager wants to hear, and what stands in the way of all that
// (the doctor).
//
// It may not know a job, a card or a configuration, may not decide who is
// allowed what, and may not answer from a guess: where the user database does
// not answer, that is an error and never "no such user".
package site
