// Package siege attacks the real programs as hostile users of one machine: a
// daemon that root runs for everybody, and people with accounts of their own
// who want one another's jobs, logs, rights and turns. It holds tests and no
// code, needs root to make its users, and says so where it has none.
//
// It may not know more than an attacker does: beside the wire types of the api
// and the frames of a terminal it imports no room of berth. docs/studies/attacks.md
// lists what is defended; each of its lines names a test of this package.
package siege
