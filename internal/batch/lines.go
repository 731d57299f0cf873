package batch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

// narrator writes one line per thing that happened, the same lines piped and
// above the live view.
type narrator struct {
	tolerance float64
	verbose   bool
	dir       string // log paths below it are shown relative to it
	exists    func(path string) bool
}

// line is what is said of an event; empty: nothing.
func (n narrator) line(ev job.Event, dispatched, total int) string {
	text := n.sentence(ev, dispatched, total)
	if text == "" {
		return ""
	}
	return "[" + ev.At.Local().Format("15:04:05") + "] " + text
}

func (n narrator) sentence(ev job.Event, dispatched, total int) string {
	j := ev.Job
	switch ev.Kind {
	case job.EventStarted:
		return n.started(j, dispatched, total)
	case job.EventAdopted:
		return fmt.Sprintf("%s adopted: still running on %s since %s — %s", label(j), where(j), j.StartedAt.Local().Format("15:04:05"), text.Line(j.Spec.Command()))
	case job.EventEnded:
		return n.ended(j)
	case job.EventRetry:
		facts := appendSome([]string{text.Line(ev.Text)}, n.logOf(j))
		return fmt.Sprintf("%s failed, will retry: %s", label(j), strings.Join(facts, " | "))
	case job.EventRequeued:
		return fmt.Sprintf("%s back in the queue: %s", label(j), text.Line(ev.Text))
	case job.EventPreempted:
		return fmt.Sprintf("%s back in the queue: %s", label(j), text.Line(ev.Text))
	case job.EventExceeds:
		return fmt.Sprintf("WARN %s EXCEEDS declared VRAM: %s; neighbors may OOM", label(j), ev.Text)
	case job.EventDequeued:
		return fmt.Sprintf("%s dequeued: its line is gone — %s", label(j), text.Line(j.Spec.Command()))
	case job.EventStopping:
		if j.Leaving() {
			return fmt.Sprintf("%s %s", label(j), text.Line(j.Detail))
		}
		return fmt.Sprintf("%s is being stopped (%s)", label(j), ev.Text)
	case job.EventUsage:
		if !n.verbose {
			return ""
		}
		return fmt.Sprintf("%s uses %s", label(j), ev.Text)
	case job.EventNotice:
		return text.Line(ev.Text)
	case job.EventWarning:
		if j != nil {
			return fmt.Sprintf("WARN %s: %s", label(j), text.Line(ev.Text))
		}
		return "WARN " + text.Line(ev.Text)
	case job.EventCard:
		return n.card(ev)
	case job.EventIdle:
		return fmt.Sprintf("WARN %s %s", label(j), text.Line(ev.Text))
	case job.EventGPUsLost:
		return "WARN the GPUs cannot be read, nothing starts until they can: " + text.Line(ev.Text)
	case job.EventGPUsFound:
		return "the GPUs can be read again"
	}
	return ""
}

// card tells of a card as such, and of one beneath a job.
func (n narrator) card(ev job.Event) string {
	line := text.Line(ev.Text)
	if ev.Job != nil || ev.Card != nil && ev.Card.Bad {
		return "WARN " + line
	}
	return line
}

func (n narrator) started(j *job.Job, dispatched, total int) string {
	facts := fmt.Sprintf("%d/%d dispatched", dispatched, total)
	if d := declaration(j); d != "" {
		facts += ", " + d
	}
	if j.Attempt.Number > 1 {
		facts += fmt.Sprintf(", attempt %d", j.Attempt.Number)
	}
	return fmt.Sprintf("%s started on %s (%s) — %s", label(j), where(j), facts, text.Line(j.Spec.Command()))
}

func (n narrator) ended(j *job.Job) string {
	head := fmt.Sprintf("%s %s [%s]", label(j), j.State, strings.ToUpper(string(j.Outcome)))
	if j.State == job.Failed && (strings.HasPrefix(string(j.Outcome), "exit:") || strings.HasPrefix(string(j.Outcome), "signal:")) {
		head = fmt.Sprintf("%s failed [%s]", label(j), j.Outcome)
	}
	var facts []string
	if !j.StartedAt.IsZero() {
		head += " in " + text.Seconds(j.EndedAt.Sub(j.StartedAt))
		facts = appendSome(facts, peaks(j), verdict(j, n.tolerance))
		if j.AvgUtil != nil {
			facts = append(facts, fmt.Sprintf("avg gpu util %.0f%%", *j.AvgUtil))
		}
	}
	facts = appendSome(facts, text.Line(j.Detail))
	if j.State == job.Failed && j.Outcome != job.Infeasible {
		facts = appendSome(facts, n.logOf(j))
	}
	if len(facts) == 0 {
		return head
	}
	return head + " — " + strings.Join(facts, " | ")
}

// logOf says where to look. A job that could not be launched may have no log:
// nobody is sent to a file that is not there.
func (n narrator) logOf(j *job.Job) string {
	if j.Log == "" || !n.exists(j.Log) {
		return ""
	}
	return "log " + n.relative(j.Log)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (n narrator) relative(path string) string {
	if rel, err := filepath.Rel(n.dir, path); err == nil && !strings.HasPrefix(rel, "..") {
		path = rel
	}
	return text.Line(path)
}

func appendSome(list []string, texts ...string) []string {
	for _, t := range texts {
		if t != "" {
			list = append(list, t)
		}
	}
	return list
}

// stamp is a line of berth's own, in the same form.
func stamp(at time.Time, text string) string {
	return "[" + at.Local().Format("15:04:05") + "] " + text
}
