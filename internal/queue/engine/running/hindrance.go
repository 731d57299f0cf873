package running

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/text"
)

// hindrances follows supervisors and processes that do not do what they should.
type hindrances struct{ set *Set }

// hindrance is what keeps a running job from ending, or may.
type hindrance struct {
	stuck  string // a process that outlived KILL
	Silent string // its supervisor, while it does not answer
}

func (h hindrance) String() string {
	return strings.Join(slices.DeleteFunc([]string{h.stuck, h.Silent}, func(s string) bool { return s == "" }), "; ")
}

// Hindrance is what keeps a running job from ending, or may; empty: nothing.
func (s *Set) Hindrance(id string) string {
	if a := s.Active[id]; a != nil {
		return a.Hindrance.String()
	}
	return ""
}

// survived reports a process that outlived KILL. It may still use the cards,
// so they take no other job until it is gone.
func (h *hindrances) survived(now time.Time, a *Attempt, p keep.Stuck) {
	what := "process"
	if identity, ok := h.set.Runner.Identity(a.Token); ok && identity.KeepPID == p.PID {
		what = "supervisor process"
	}
	a.Hindrance.stuck = fmt.Sprintf("%s %d does not end (%s), %s after KILL", what, p.PID, stateText(p.State), text.Brief(keep.UnkillableAfter))
	if p.Others > 0 {
		a.Hindrance.stuck += "; nor " + plural(p.Others, "does", "do") + " " + text.Count(p.Others, "other")
	}
	h.set.changes.Tell(now, job.EventWarning, a.Job, a.Hindrance.stuck)
	h.closeCards(now, a)
}

func plural(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// closeCards makes the cards of a job that does not end suspect.
func (h *hindrances) closeCards(now time.Time, a *Attempt) {
	for _, uuid := range a.Job.Grant.UUIDs {
		h.set.cards.Heed(now, h.set.cards.Book.Health.Stuck(now, uuid, fmt.Sprintf("job %s: %s", a.Job.ID, a.Hindrance.stuck)))
	}
}

// openCards ends that for the cards of a job that has ended, unless another on
// them does not end either.
func (h *hindrances) openCards(now time.Time, cards []string) {
	for _, uuid := range cards {
		h.set.cards.Heed(now, h.set.cards.Book.Health.Stuck(now, uuid, ""))
	}
	for _, id := range h.set.IDs() {
		if a := h.set.Active[id]; a.Hindrance.stuck != "" && slices.ContainsFunc(cards, func(uuid string) bool { return slices.Contains(a.Job.Grant.UUIDs, uuid) }) {
			h.closeCards(now, a)
		}
	}
}

// ForgetStuck opens cards that an earlier berth closed for a job that has ended
// since. The runner reports again what still does not end.
func (h *hindrances) ForgetStuck(now time.Time) {
	for _, d := range h.set.cards.Book.Known {
		if !h.set.InUse(d.Index) {
			h.openCards(now, []string{d.UUID})
		}
	}
}

// fellSilent reports a supervisor that does not answer. Its job keeps running:
// it may only be slow.
func (h *hindrances) fellSilent(now time.Time, a *Attempt, p keep.Stuck) {
	does := "does not answer"
	if p.State == 'T' || p.State == 't' {
		does = "does not answer: it is stopped"
	}
	a.Hindrance.Silent = fmt.Sprintf("its supervisor (process %d) %s (%s)", p.PID, does, stateText(p.State))
	h.set.changes.Tell(now, job.EventWarning, a.Job, a.Hindrance.Silent)
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

// Note takes in an event that changes nothing yet about the job.
func (h *hindrances) Note(now time.Time, a *Attempt, ev run.Event) {
	switch ev.Kind {
	case run.Stuck:
		h.survived(now, a, ev.Process)
	case run.Silent:
		h.fellSilent(now, a, ev.Process)
	case run.Answers:
		if a.Hindrance.Silent != "" {
			a.Hindrance.Silent = ""
			h.set.changes.Tell(now, job.EventNotice, a.Job, "its supervisor answers again")
		}
	}
}
