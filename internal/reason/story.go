package reason

import (
	"fmt"
	"time"

	"berth/internal/text"
)

// Story is all there is to say of why a job waits, and for how long. It is what
// the API sends: values for programs, and the same in words for people.
type Story struct {
	ID       string `json:"id"`
	Text     string `json:"text" doc:"one sentence for people"`
	Position int    `json:"position,omitempty" doc:"in the order in which jobs are considered, from 1"`
	Queued   int    `json:"queued"`

	Kind     Kind      `json:"kind,omitempty" doc:"what it waits for, in a word: gpus, cpus, memory, behind, turn, array, user_limit, unreadable, starts, or why it can never run"`
	User     string    `json:"user,omitempty"`
	Priority int       `json:"priority,omitempty"`
	Needs    string    `json:"needs,omitempty" doc:"what it asks for, in words"`
	Since    time.Time `json:"since,omitzero" doc:"since when it waits"`

	Cards        []CardStory  `json:"gpus,omitempty" doc:"every card, as it stands to the job now"`
	Behind       *Behind      `json:"behind,omitempty" doc:"the job that has to go first"`
	Kept         *Reservation `json:"kept,omitempty" doc:"the cards that are kept for it"`
	PreemptedFor string       `json:"aside_for,omitempty" doc:"the job that it was set aside for"`
	Victims      []string     `json:"gives_way,omitempty" doc:"running jobs that are set aside for it"`

	MaxBypassS  float64   `json:"max_bypass_s,omitempty" doc:"how long the oldest waiting job of a user is passed by others at most"`
	OldestSince time.Time `json:"oldest_since,omitzero" doc:"since when it has been its user's oldest: from then on the bound counts"`

	Expected *Forecast  `json:"expected,omitempty" doc:"when it is expected to start; of a running job, to end"`
	NoStart  NoForecast `json:"no_start,omitempty" doc:"why no start is expected: gate, user_limit, array, unreadable, closed, infeasible"`
}

// Reservation is the cards that are kept for a job that waits.
type Reservation struct {
	Cards []int     `json:"gpus,omitempty"`
	At    time.Time `json:"at" doc:"when it is expected to have them"`
	Hard  bool      `json:"hard,omitempty" doc:"nothing starts there that may outlast the wait"`
}

// Expect takes over when the job is expected to start, or why that is not known.
func (t *Story) Expect(f Forecast) {
	if t.NoStart = f.None; f.None == "" {
		t.Expected = &f
	}
}

// Forecast is when the job is expected to start, or why that is not known.
func (t Story) Forecast() Forecast {
	if t.Expected == nil {
		return Forecast{None: t.NoStart}
	}
	return *t.Expected
}

// Say puts what the values say into words as well.
func (t *Story) Say(why Reason, asked Request) {
	t.Kind, t.Text, t.Needs = why.Kind, why.String(), asked.Words()
	for i := range t.Cards {
		t.Cards[i].say()
	}
	if t.Behind != nil {
		t.Behind.Because = t.Behind.because()
	}
}

// WasPreempted says first that the job was set aside; it may not have been.
func (t *Story) WasPreempted(other string) {
	t.PreemptedFor, t.Text = other, AfterPreemption(other, t.Text)
}

// String is the story in one line, for people. What the job waits behind says
// more than what is free just now, unless nothing is expected: then what is
// wrong is told.
func (t Story) String() string {
	line := t.Text
	if b := t.Behind; b != nil && t.Expected != nil && t.Kind != WaitsBehind {
		line = AfterPreemption(t.PreemptedFor, "waits behind "+b.String()+" for "+t.Needs)
	}
	if expected := t.Forecast().String(); expected != "" {
		line += "; " + expected
	}
	return line + t.passed()
}

// bound is how long others may go before the job.
func (t *Story) bound() time.Duration { return text.OfSeconds(t.MaxBypassS) }

// passed says how much is over of the time for which others may go before a job
// that is its user's oldest; it follows a line. It is said from a quarter of
// that on, of what is expected to wait on.
func (t *Story) passed() string {
	bound := t.bound()
	if t.OldestSince.IsZero() || bound <= 0 || t.Expected == nil || t.Expected.now() {
		return ""
	}
	switch over := t.Expected.Now.Sub(t.OldestSince); {
	case over < bound/4:
		return ""
	case over >= bound:
		return fmt.Sprintf("; it was passed for %s, the most there is, and goes first", text.Hours(bound))
	default:
		return fmt.Sprintf("; it may be passed for %s in all, %s so far", text.Hours(bound), text.Hours(over))
	}
}

// Passed is the bound on how long others may go first, and when it is reached.
func (t Story) Overtaking(now time.Time) string {
	bound := t.bound()
	if bound <= 0 {
		return ""
	}
	if t.OldestSince.IsZero() {
		return "for " + text.Hours(bound) + " at most, counted once it is its user's oldest"
	}
	over := now.Sub(t.OldestSince)
	if over >= bound {
		return "for " + text.Hours(bound) + ", the most there is: it goes first now"
	}
	return fmt.Sprintf("for %s in all, %s so far; it goes first from %s on", text.Hours(bound), text.Hours(max(0, over)), clock(t.OldestSince.Add(bound), now))
}

// Words is what is kept, and from when on.
func (k *Reservation) Words(now time.Time) string {
	if k == nil {
		return ""
	}
	what := "its share of the host"
	if len(k.Cards) > 0 {
		what = "gpu " + text.Numbers(k.Cards)
	}
	words := what + ", from about " + clock(k.At, now)
	if !k.At.After(now) {
		words = what + ", from now"
	}
	if k.Hard {
		words += "; nothing starts there that may run for longer"
	}
	return words
}
