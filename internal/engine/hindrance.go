package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/run"
	"berth/internal/text"
)

// hindrances follows supervisors and processes that do not do what they should.
type hindrances struct{ set *attempts }

// hindrance is what keeps a running job from ending, or may.
type hindrance struct {
	stuck  string // a process that outlived KILL
	silent string // its supervisor, while it does not answer
}

func (h hindrance) String() string {
	return strings.Join(slices.DeleteFunc([]string{h.stuck, h.silent}, func(s string) bool { return s == "" }), "; ")
}

// Hindrance is what keeps a running job from ending, or may; empty: nothing.
func (s *attempts) Hindrance(id string) string {
	if a := s.active[id]; a != nil {
		return a.hindrance.String()
	}
	return ""
}

// survived reports a process that outlived KILL. It may still use the cards,
// so they take no other job until it is gone.
func (h *hindrances) survived(now time.Time, a *attempt, p keep.Stuck) {
	what := "process"
	if identity, ok := h.set.runner.Identity(a.token); ok && identity.KeepPID == p.PID {
		what = "supervisor process"
	}
	a.hindrance.stuck = fmt.Sprintf("%s %d does not end (%s), %s after KILL", what, p.PID, stateText(p.State), text.Brief(keep.UnkillableAfter))
	if p.Others > 0 {
		a.hindrance.stuck += "; nor " + plural(p.Others, "does", "do") + " " + text.Count(p.Others, "other")
	}
	h.set.changes.tell(now, job.EventWarning, a.job, a.hindrance.stuck)
	h.closeCards(now, a)
}

func plural(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// closeCards makes the cards of a job that does not end suspect.
func (h *hindrances) closeCards(now time.Time, a *attempt) {
	for _, uuid := range a.job.Grant.UUIDs {
		h.set.cards.heed(now, h.set.cards.book.health.Stuck(now, uuid, fmt.Sprintf("job %s: %s", a.job.ID, a.hindrance.stuck)))
	}
}

// openCards ends that for the cards of a job that has ended, unless another on
// them does not end either.
func (h *hindrances) openCards(now time.Time, cards []string) {
	for _, uuid := range cards {
		h.set.cards.heed(now, h.set.cards.book.health.Stuck(now, uuid, ""))
	}
	for _, id := range h.set.ids() {
		if a := h.set.active[id]; a.hindrance.stuck != "" && slices.ContainsFunc(cards, func(uuid string) bool { return slices.Contains(a.job.Grant.UUIDs, uuid) }) {
			h.closeCards(now, a)
		}
	}
}

// forgetStuck opens cards that an earlier berth closed for a job that has ended
// since. The runner reports again what still does not end.
func (h *hindrances) forgetStuck(now time.Time) {
	for _, d := range h.set.cards.book.known {
		if !h.set.inUse(d.Index) {
			h.openCards(now, []string{d.UUID})
		}
	}
}

// fellSilent reports a supervisor that does not answer. Its job keeps running:
// it may only be slow.
func (h *hindrances) fellSilent(now time.Time, a *attempt, p keep.Stuck) {
	does := "does not answer"
	if p.State == 'T' || p.State == 't' {
		does = "does not answer: it is stopped"
	}
	a.hindrance.silent = fmt.Sprintf("its supervisor (process %d) %s (%s)", p.PID, does, stateText(p.State))
	h.set.changes.tell(now, job.EventWarning, a.job, a.hindrance.silent)
}

func (h *hindrances) answers(now time.Time, a *attempt) {
	if a.hindrance.silent != "" {
		a.hindrance.silent = ""
		h.set.changes.tell(now, job.EventNotice, a.job, "its supervisor answers again")
	}
}

// stateText is a process's state as in /proc, explained where it matters.
func stateText(state byte) string {
	switch state {
	case 0:
		return "state unknown"
	case 'D':
		return "state D: waiting in the kernel"
	case 'T':
		return "state T: stopped by a signal"
	case 't':
		return "state t: stopped by a debugger"
	}
	return "state " + string(rune(state))
}

// note takes in an event that changes nothing yet about the job.
func (h *hindrances) note(now time.Time, a *attempt, ev run.Event) {
	switch ev.Kind {
	case run.Stuck:
		h.survived(now, a, ev.Process)
	case run.Silent:
		h.fellSilent(now, a, ev.Process)
	case run.Answers:
		h.answers(now, a)
	}
}
