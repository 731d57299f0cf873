// Package siege attacks the real programs as hostile users of one machine: a
// daemon that root runs for all users, and users who want each other's jobs,
// logs, permissions and turns. It has tests only, and needs root to create its
// users; without root they are skipped.
//
// It may not know more than an attacker does: apart from the wire types of the
// api and the frames of a terminal it imports no package of berth.
// docs/studies/attacks.md lists what is defended; each of its lines names a
// test of this package.
package siege
