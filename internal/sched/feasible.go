package sched

import (
	"berth/internal/job/reason"
)

// Feasible reports whether the request could be placed on this machine if nothing
// else ran on it, and otherwise why not. Current use, paused or sick cards, and
// users' limits do not matter.
func Feasible(s State, r Request) (reason.Reason, bool) {
	m := s.machine()
	k := newCandidates(m, &r)
	if a := r.amounts(); m.possible(&k, &a) {
		return reason.Reason{}, true
	}
	return m.impossible(&k, &r), false
}

// FeasibleFor is Feasible for a job of a user, whose limit may be less than the
// machine has.
func FeasibleFor(s State, p Pending) (reason.Reason, bool) {
	if why, ok := Feasible(s, p.Request); !ok {
		return why, false
	}
	a, asked := newAccount(&s, p.User), p.Request.amounts()
	g := &class{classKey: classKey{neverBorrows: s.Rules.neverBorrows(&p), unproven: p.Unproven}}
	if !a.allows(g, &asked) {
		return a.overLimit(g, &asked), false
	}
	return reason.Reason{}, true
}

// CapMiB is the most VRAM per GPU that a retry of the request may declare and still
// be placed: what the largest cards it allows can hold beside the margin, as many
// of them as it needs. It is 0 if no card is known.
func CapMiB(s State, r Request) int64 {
	k := newCandidates(s.machine(), &r)
	return max(0, k.roomMiB(r.GPUs)-s.Rules.MarginMiB)
}
