package notify

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"berth/internal/text"
)

// Whole is what a job is part of: an array, or the lines of a jobs file.
type Whole struct {
	Array string `json:"array,omitempty"`
	File  string `json:"file,omitempty"` // its path; in a message only its name
}

// Fact is one thing that happened, with what a message says about it. The
// command and the log are not part of it: messages leave the machine.
type Fact struct {
	On      On            `json:"on,omitempty"` // empty: about the machine, for administrators
	At      time.Time     `json:"at"`
	Job     string        `json:"job,omitempty"`
	Whole                 // of a task or a line
	Name    string        `json:"name,omitempty"`
	User    string        `json:"user,omitempty"`
	State   string        `json:"state,omitempty"`
	Outcome string        `json:"outcome,omitempty"`
	Detail  string        `json:"detail,omitempty"` // or the whole of what is said about the machine
	GPUs    []int         `json:"gpus,omitempty"`
	Ran     time.Duration `json:"ran_ns,omitempty"`
	PeakMiB int64         `json:"peak_mib,omitempty"` // the highest of its cards
	Attempt int           `json:"attempt,omitempty"`
}

// Bad reports whether a person may have to do something.
func (f Fact) Bad() bool {
	return f.On == "" || f.On == OnOOM || f.On == OnIdle || (f.On == OnEnd || f.On == OnFail) && f.Outcome != "ok"
}

// Clean bounds the fact's texts and makes them safe to show anywhere: a job's
// name is what its user typed, a detail may quote a program.
func (f Fact) Clean() Fact {
	for _, s := range []*string{&f.Job, &f.Array, &f.Name, &f.User, &f.State, &f.Outcome} {
		*s = text.Clip(text.Words(*s), maxName)
	}
	f.Detail = text.Clip(text.Words(f.Detail), maxDetail)
	return f
}

// Bounds on a message.
const (
	maxName   = 80
	maxDetail = 300
	maxFacts  = 20 // told one by one; the rest is counted
)

// Batch is what one message is about.
type Batch struct {
	Facts []Fact  `json:"facts"`           // the first maxFacts, bad ones before others
	Tally []Tally `json:"tally,omitempty"` // of all

	// From the first start of a job to the last end.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
}

// Tally counts facts that read the same.
type Tally struct {
	On      On     `json:"on,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Whole
	Name  string `json:"name,omitempty"` // of the array
	Count int    `json:"count"`
}

// maxTallies bounds the kinds of fact that are counted apart; the outcomes, arrays
// and files beyond it are counted together.
const maxTallies = 50

// Add puts a fact into the batch.
func (b *Batch) Add(f Fact) {
	f = f.Clean()
	key := Tally{On: f.On, Outcome: f.Outcome, Whole: f.Whole}
	if f.Array != "" && f.Name != "job"+f.Job {
		key.Name = f.Name
	}
	at := slices.IndexFunc(b.Tally, func(t Tally) bool { return t.On == key.On && t.Outcome == key.Outcome && t.Whole == key.Whole })
	if at < 0 && len(b.Tally) >= maxTallies {
		at = slices.IndexFunc(b.Tally, func(t Tally) bool { return t.On == key.On && t.Outcome == "other" && t.Whole == Whole{} })
		key = Tally{On: f.On, Outcome: "other"}
	}
	if at < 0 {
		b.Tally = append(b.Tally, key)
		at = len(b.Tally) - 1
	}
	b.Tally[at].Count++
	if began := f.At.Add(-f.Ran); f.On == OnEnd && (b.From.IsZero() || began.Before(b.From)) {
		b.From = began
	}
	if f.On == OnEnd && f.At.After(b.To) {
		b.To = f.At
	}
	b.Facts = append(b.Facts, f)
	// A failure among a thousand ends must be among those that are named.
	slices.SortStableFunc(b.Facts, func(x, y Fact) int { return cmp.Compare(b2i(y.Bad()), b2i(x.Bad())) })
	b.Facts = b.Facts[:min(len(b.Facts), maxFacts)]
}

// dropFailures removes the jobs of a whole that failed, and reports whether there
// were any. What happened while a job ran stays.
func (b *Batch) dropFailures(whole Whole) bool {
	failed := func(on On, of Whole, outcome string) bool {
		return of == whole && outcome != "" && (on == OnFail || on == OnOOM)
	}
	count := b.Count()
	b.Facts = slices.DeleteFunc(b.Facts, func(f Fact) bool { return failed(f.On, f.Whole, f.Outcome) })
	b.Tally = slices.DeleteFunc(b.Tally, func(t Tally) bool { return failed(t.On, t.Whole, t.Outcome) })
	return b.Count() < count
}

func b2i(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Count is how many facts were added.
func (b *Batch) Count() (n int) {
	for _, t := range b.Tally {
		n += t.Count
	}
	return n
}

// Message is what a sender delivers. A repeated message has the same ID.
type Message struct {
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	At    time.Time `json:"at"` // when it was sealed
	Title string    `json:"title"`
	Body  string    `json:"body"`
	Bad   bool      `json:"bad"`
	Batch
}

// Compose says a batch in words.
func Compose(id, host string, at time.Time, b Batch) Message {
	b.Facts, b.Tally = slices.Clone(b.Facts), slices.Clone(b.Tally)
	for i := range b.Facts { // a message leaves the machine
		b.Facts[i].File = fileName(b.Facts[i].File)
	}
	for i := range b.Tally {
		b.Tally[i].File = fileName(b.Tally[i].File)
	}
	m := Message{ID: id, Host: text.Clip(text.Line(host), maxName), At: at, Batch: b}
	lines := make([]string, 0, len(b.Facts)+1)
	for _, f := range b.Facts {
		m.Bad = m.Bad || f.Bad()
		lines = append(lines, sentence(f))
	}
	if more := b.Count() - len(b.Facts); more > 0 {
		lines = append(lines, "and "+text.CountGrouped(more, "more event")+": "+tallied(&b))
	}
	m.Body = strings.Join(lines, "\n")
	switch {
	case len(b.Facts) == 0:
		m.Title = "berth"
	case b.Count() == 1:
		m.Title = short(b.Facts[0])
	default:
		m.Title = tallied(&b)
	}
	m.Title = text.Clip(m.Title, maxTitle)
	if m.Host != "" {
		m.Title = "[" + m.Host + "] " + m.Title
	}
	return m
}

const maxTitle = 160

func fileName(file string) string {
	if file == "" {
		return ""
	}
	return text.Clip(text.Words(path.Base(file)), maxName)
}

// called is how a message names a job: "train (17)", or "job 17" if it has no
// name of its own.
func called(f Fact) string {
	if f.Name == "" || f.Name == "job"+f.Job {
		return "job " + f.Job
	}
	return f.Name + " (" + f.Job + ")"
}

// did is what happened, as a verb.
func did(on On, outcome string) string {
	switch on {
	case OnStart:
		return "started"
	case OnOOM:
		return "ran out of GPU memory"
	case OnIdle:
		return "does not use its GPUs"
	}
	switch outcome {
	case "ok":
		return "finished"
	case "": // it runs, and fails unless something changes
		return "is about to be ended"
	}
	return cmp.Or(map[string]string{
		"timeout": "reached its time limit", "oom": "ran out of GPU memory", "cancelled": "was cancelled",
		"dependency": "was cancelled with a job it depends on", "lost": "was lost", "infeasible": "can never run here",
		"launch": "could not be started",
	}[outcome], "failed")
}

func short(f Fact) string {
	if f.On == "" {
		return f.Detail
	}
	line := called(f) + " " + did(f.On, f.Outcome)
	if code, found := strings.CutPrefix(f.Outcome, "exit:"); found && f.On != OnStart {
		line += " with exit code " + code
	} else if name, found := strings.CutPrefix(f.Outcome, "signal:"); found && f.On != OnStart {
		line += " by signal " + name
	}
	return line
}

// sentence is one line of a body.
func sentence(f Fact) string {
	if f.On == "" {
		return f.At.UTC().Format(time.RFC3339) + " " + f.Detail
	}
	parts := []string{short(f)}
	if f.Ran > 0 {
		parts = append(parts, "ran "+text.Span(f.Ran))
	}
	if len(f.GPUs) > 0 {
		parts = append(parts, "GPU "+text.Numbers(f.GPUs))
	}
	if f.PeakMiB > 0 {
		parts = append(parts, fmt.Sprintf("peak %d MiB", f.PeakMiB))
	}
	if f.Attempt > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", f.Attempt))
	}
	line := strings.Join(parts, ", ")
	if f.Detail != "" {
		line += ": " + f.Detail
	}
	return line
}

// tallied sums a batch up: "array sweep (17): 998 finished, 2 failed", or
// "jobs.txt: 57 finished, 2 failed (3, 17) in 2h05m". The order does not depend on
// which job was first.
func tallied(b *Batch) string {
	list := b.Tally
	counts := map[string]int{}
	wholes := map[Whole]bool{}
	for _, t := range list {
		word := did(t.On, t.Outcome)
		if t.On == "" {
			word = "from the machine"
		}
		counts[word] += t.Count
		wholes[t.Whole] = true
	}
	first := []string{did(OnEnd, "ok"), did(OnStart, "")} // in reverse
	order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Index(first, b), slices.Index(first, a)), cmp.Compare(a, b))
	})
	for i, word := range order {
		order[i] = text.Grouped(counts[word]) + " " + word
		if len(wholes) == 1 && !wholes[Whole{}] {
			order[i] += b.failedIDs(word, counts[word])
		}
	}
	line := strings.Join(order, ", ")
	if len(wholes) > 1 || wholes[Whole{}] {
		return line
	}
	if ran := b.To.Sub(b.From); ran >= time.Second {
		line += " in " + text.Span(ran)
	}
	switch first := list[0]; {
	case first.File != "":
		return first.File + ": " + line
	case first.Name != "":
		return fmt.Sprintf("array %s (%s): %s", first.Name, first.Array, line)
	default:
		return "array " + first.Array + ": " + line
	}
}

// fewFailed is how many failed jobs a title names.
const fewFailed = 5

// failedIDs names the jobs that failed, if they are few: " (3, 17)".
func (b *Batch) failedIDs(word string, count int) string {
	var ids []string
	for _, f := range b.Facts {
		if f.Bad() && did(f.On, f.Outcome) == word {
			ids = append(ids, f.Job)
		}
	}
	if len(ids) != count || count > fewFailed {
		return ""
	}
	return " (" + strings.Join(ids, ", ") + ")"
}
