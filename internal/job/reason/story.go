package reason

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/text"
)

// Story is everything known about why a job waits, and for how long. It is what
// the API sends: values for programs, and the same as sentences for people.
type Story struct {
	ID       string `json:"id"`
	Text     string `json:"text" doc:"why it waits, as a sentence"`
	Position int    `json:"position,omitempty" doc:"its place in the queue, from 1"`
	Queued   int    `json:"queued" doc:"number of jobs in the queue"`

	Kind     Kind      `json:"kind,omitempty" doc:"what it waits for: gpus, cpus, memory, behind, turn, array, group, group_paused, user_limit, user_share, unreadable, starts, or why it can never run"`
	User     string    `json:"user,omitempty"`
	Priority int       `json:"priority,omitempty"`
	Needs    string    `json:"needs,omitempty" doc:"what it asks for, as a phrase"`
	Since    time.Time `json:"since,omitzero" doc:"when it began to wait"`

	Cards        []CardStory  `json:"gpus,omitempty" doc:"every GPU, and what keeps the job off it"`
	Behind       *Behind      `json:"behind,omitempty" doc:"the job that has to go first"`
	Kept         *Reservation `json:"kept,omitempty" doc:"its reservation"`
	PreemptedFor string       `json:"aside_for,omitempty" doc:"the job it was preempted for"`
	Victims      []string     `json:"gives_way,omitempty" doc:"running jobs that are being preempted for it"`
	Leaves       *Leave       `json:"leaves,omitempty" doc:"the running job that can first be preempted for it, and when"`
	NotParked    []string     `json:"not_parked,omitempty" doc:"running jobs that would be parked for it if the host had memory for them"`

	MaxBypassS  float64   `json:"max_bypass_s,omitempty" doc:"the overtake limit: how long other jobs may overtake a user's oldest waiting job"`
	OldestSince time.Time `json:"oldest_since,omitzero" doc:"when it became its user's oldest waiting job: the overtake limit counts from then"`

	Expected *Forecast  `json:"expected,omitempty" doc:"when it is expected to start; for a running job, to end"`
	NoStart  NoForecast `json:"no_start,omitempty" doc:"why no start is expected: gate, user_limit, array, group, group_paused, unreadable, closed, infeasible"`
}

// Leave is a running job that can be preempted for a waiting one once it has run for
// long enough.
type Leave struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	AfterS  float64   `json:"after_s" doc:"how long it will have run by then"`
	Requeue bool      `json:"requeue,omitempty" doc:"it is stopped and queued again; otherwise it is parked"`
	Saves   bool      `json:"saves,omitempty" doc:"it saves its own work, and goes on from there"`
}

// Words says when the job can leave; empty if it can at once, or no job can.
func (l *Leave) Words(now time.Time) string {
	if l == nil || !l.At.After(now) {
		return ""
	}
	how := "can be parked for it in"
	switch {
	case l.Saves:
		how = "gives way at its next checkpoint, in"
	case l.Requeue:
		how = "can be stopped and queued again for it in"
	}
	return fmt.Sprintf("job %s %s %s, once it has run for %s", l.ID, how, text.Brief(l.At.Sub(now).Round(time.Second)), text.Brief(text.OfSeconds(l.AfterS).Round(time.Second)))
}

// Reservation is the cards reserved for a waiting job.
type Reservation struct {
	Cards []int     `json:"gpus,omitempty"`
	At    time.Time `json:"at" doc:"when the job is expected to start on them"`
	Hard  bool      `json:"hard,omitempty" doc:"no job starts there that may still run at that time"`
}

// Expect records when the job is expected to start, or why that is not known.
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

// Say adds the sentences to the values.
func (t *Story) Say(why Reason, asked Request) {
	t.Kind, t.Text, t.Needs = why.Kind, why.String(), asked.Words()
	for i := range t.Cards {
		t.Cards[i].say()
	}
	if t.Behind != nil {
		t.Behind.Because = t.Behind.because()
	}
}

// WasPreempted puts the preemption, if there was one, before the reason.
func (t *Story) WasPreempted(other string) {
	t.PreemptedFor, t.Text = other, AfterPreemption(other, t.Text)
}

// String is the story in one line. The job ahead explains more than the free
// memory of the moment, unless no start is expected: then the reason says what
// is wrong.
func (t Story) String() string {
	line := t.Text
	if b := t.Behind; b != nil && t.Expected != nil && t.Kind != WaitsBehind {
		line = AfterPreemption(t.PreemptedFor, "waits behind "+b.String()+" for "+strings.TrimPrefix(t.Needs, "no GPU, "))
	}
	if expected := t.Forecast().String(); expected != "" {
		line += "; " + expected
	}
	if t.Expected != nil {
		if words := t.Leaves.Words(t.Expected.Now); words != "" {
			line += "; " + words
		}
	}
	if words := t.Unparked(); words != "" {
		line += "; " + words
	}
	return line + t.overtaken()
}

// Unparked says which jobs cannot be parked for this one; empty: none.
func (t Story) Unparked() string {
	if len(t.NotParked) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s cannot be parked for it: parked jobs may take no more host memory (scheduling.park_memory, limits.parked_memory)",
		text.Plural(len(t.NotParked), "job"), text.Some(t.NotParked, maxJobsNamed))
}

// overtakeLimit is how long other jobs may go first.
func (t *Story) overtakeLimit() time.Duration { return text.OfSeconds(t.MaxBypassS) }

// overtaken ends the line of a job that is still expected to wait once a quarter
// of its overtake limit has passed.
func (t *Story) overtaken() string {
	limit := t.overtakeLimit()
	if t.OldestSince.IsZero() || limit <= 0 || t.Expected == nil || t.Expected.now() {
		return ""
	}
	switch spent := t.Expected.Now.Sub(t.OldestSince); {
	case spent < limit/4:
		return ""
	case spent >= limit:
		return fmt.Sprintf("; it has reached its overtake limit of %s and goes first", text.Hours(limit))
	default:
		return fmt.Sprintf("; other jobs may overtake it for %s in all (%s so far)", text.Hours(limit), text.Hours(spent))
	}
}

// Overtaking is the overtake limit, and when it is reached.
func (t Story) Overtaking(now time.Time) string {
	limit := t.overtakeLimit()
	if limit <= 0 {
		return ""
	}
	if t.OldestSince.IsZero() {
		return "other jobs may overtake it for at most " + text.Hours(limit) + ", counted once it is its user's oldest waiting job"
	}
	spent := now.Sub(t.OldestSince)
	if spent >= limit {
		return "it has reached its overtake limit of " + text.Hours(limit) + " and goes first"
	}
	return fmt.Sprintf("other jobs may overtake it for %s in all (%s so far); it goes first from %s", text.Hours(limit), text.Hours(max(0, spent)), clock(t.OldestSince.Add(limit), now))
}

// Words is what is reserved, and from when.
func (k *Reservation) Words(now time.Time) string {
	if k == nil {
		return ""
	}
	what := "host CPUs and memory"
	if len(k.Cards) > 0 {
		what = "gpu " + text.Numbers(k.Cards)
	}
	words := what + ", from about " + clock(k.At, now)
	if !k.At.After(now) {
		words = what + ", from now"
	}
	if k.Hard {
		words += "; no job starts there that may still run then"
	}
	return words
}
