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
func (s *attempts) survived(now time.Time, a *attempt, p keep.Stuck) {
	what := "process"
	if identity, ok := s.runner.Identity(a.token); ok && identity.KeepPID == p.PID {
		what = "supervisor process"
	}
	a.hindrance.stuck = fmt.Sprintf("%s %d does not end (%s), %s after KILL", what, p.PID, stateText(p.State), text.Brief(keep.UnkillableAfter))
	if p.Others > 0 {
		a.hindrance.stuck += "; nor " + plural(p.Others, "does", "do") + " " + text.Count(p.Others, "other")
	}
	s.changes.tell(now, job.EventWarning, a.job, a.hindrance.stuck)
	s.closeCards(now, a)
}

func plural(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// closeCards makes the cards of a job that does not end suspect.
func (s *attempts) closeCards(now time.Time, a *attempt) {
	for _, uuid := range a.job.Grant.UUIDs {
		s.cards.heed(now, s.cards.book.health.Stuck(now, uuid, fmt.Sprintf("job %s: %s", a.job.ID, a.hindrance.stuck)))
	}
}

// openCards ends that for the cards of a job that has ended, unless another on
// them does not end either.
func (s *attempts) openCards(now time.Time, cards []string) {
	for _, uuid := range cards {
		s.cards.heed(now, s.cards.book.health.Stuck(now, uuid, ""))
	}
	for _, id := range s.ids() {
		if a := s.active[id]; a.hindrance.stuck != "" && slices.ContainsFunc(cards, func(uuid string) bool { return slices.Contains(a.job.Grant.UUIDs, uuid) }) {
			s.closeCards(now, a)
		}
	}
}

// forgetStuck opens cards that an earlier berth closed for a job that has ended
// since. The runner reports again what still does not end.
func (s *attempts) forgetStuck(now time.Time) {
	for _, d := range s.cards.book.known {
		if !s.inUse(d.Index) {
			s.openCards(now, []string{d.UUID})
		}
	}
}

// fellSilent reports a supervisor that does not answer. Its job keeps running:
// it may only be slow.
func (s *attempts) fellSilent(now time.Time, a *attempt, p keep.Stuck) {
	does := "does not answer"
	if p.State == 'T' || p.State == 't' {
		does = "does not answer: it is stopped"
	}
	a.hindrance.silent = fmt.Sprintf("its supervisor (process %d) %s (%s)", p.PID, does, stateText(p.State))
	s.changes.tell(now, job.EventWarning, a.job, a.hindrance.silent)
}

func (s *attempts) answers(now time.Time, a *attempt) {
	if a.hindrance.silent != "" {
		a.hindrance.silent = ""
		s.changes.tell(now, job.EventNotice, a.job, "its supervisor answers again")
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

// hinders takes in an event that changes nothing yet about the job.
func (s *attempts) hinders(now time.Time, a *attempt, ev run.Event) {
	switch ev.Kind {
	case run.Stuck:
		s.survived(now, a, ev.Process)
	case run.Silent:
		s.fellSilent(now, a, ev.Process)
	case run.Answers:
		s.answers(now, a)
	}
}
