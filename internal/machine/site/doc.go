// Package site knows this machine and berth's place on it: its users as the
// user database lists them, their limits at login, the CPUs and memory of the
// host, berth's directories and log, the service manager's protocol, and the
// checks of `berth doctor`.
//
// It may not know a job, a card or a configuration, decide what a user may do,
// or invent an answer: if the user database does not answer, that is an error
// and never "no such user".
package site
