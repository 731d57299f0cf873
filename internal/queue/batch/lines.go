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

// painter colours text, or does not.
type painter bool

func (p painter) on(paint text.Paint, written string) string {
	if !p {
		return written
	}
	return paint.On(written)
}

// narrator writes one line per event, the same lines piped and above the live
// view.
type narrator struct {
	tolerance float64
	verbose   bool
	quiet     bool // only of jobs that failed
	paint     painter
	width     func() int // columns; nil: no limit
	dir       string     // log paths below it are shown relative to it
	exists    func(path string) bool
	tail      func(path string) []string // the last lines of a log
	theirs    *theirWords                // speak as gpusched; nil: as berth
}

// lines formats an event, if it is shown at all: one line, or as many as a failure
// or a warning needs on a terminal, and the last output of a job that failed.
func (n narrator) lines(ev job.Event, dispatched, total int) []string {
	failed := ev.Kind == job.EventEnded && ev.Job.State == job.Failed
	var before []string
	if n.theirs != nil && ev.Kind == job.EventEnded {
		before = n.signals(ev.Job, ev.At)
	}
	sentence := n.sentence(ev, dispatched, total)
	if n.quiet && !failed || sentence == "" {
		return nil
	}
	lines := []string{n.fit(stamp(ev.At, sentence))}
	if colour := colourOf(ev); colour != text.Plain {
		lines = n.wrap(colour, stamp(ev.At, sentence))
	} else if ev.Kind == job.EventEnded && ev.Job.State == job.Finished {
		ok := string(job.Finished)
		lines[0] = strings.Replace(lines[0], " "+ok+" [", " "+n.paint.on(text.Green, ok)+" [", 1)
	}
	if failed && n.theirs == nil && ev.Job.Log != "" && !ev.Job.StartedAt.IsZero() {
		lines = append(lines, n.last(ev.Job)...)
	}
	return append(before, lines...)
}

// signals are gpusched's lines about a job that is being stopped.
func (n narrator) signals(j *job.Job, now time.Time) (lines []string) {
	for _, said := range n.theirs.signals(j, now) {
		lines = append(lines, n.wrap(text.Yellow, stamp(now, said))...)
	}
	return lines
}

// last is what a job said last, and where the rest is, if the line has no room
// for that.
func (n narrator) last(j *job.Job) (lines []string) {
	for _, said := range n.tail(j.Log) {
		lines = append(lines, n.fit("    | "+text.Line(said)))
	}
	if where := n.logOf(j); where != "" && n.width != nil {
		lines = append(lines, "    "+where)
	}
	return lines
}

// narrowest is the width below which lines are not made to fit.
const narrowest = 20

// fit cuts a line to the terminal.
func (n narrator) fit(line string) string {
	if n.width == nil {
		return line
	}
	return text.Cut(line, max(n.width(), narrowest))
}

// wrap breaks a line that must not be cut.
func (n narrator) wrap(colour text.Paint, line string) []string {
	lines := []string{line}
	if n.width != nil && text.Width(line) > n.width() {
		const indent = "    "
		lines = text.Wrap(line, max(n.width(), narrowest)-len(indent))
		for i := range lines[1:] {
			lines[i+1] = indent + lines[i+1]
		}
	}
	for i := range lines {
		lines[i] = n.paint.on(colour, lines[i])
	}
	return lines
}

// warn formats a warning of berth's own.
func (n narrator) warn(at time.Time, warning string) []string {
	return n.wrap(text.Yellow, stamp(at, n.mark()+warning))
}

// mark begins a warning.
func (n narrator) mark() string {
	if n.theirs != nil {
		return "WARN  "
	}
	return "WARN "
}

// colourOf is the colour of an event's whole line.
func colourOf(ev job.Event) text.Paint {
	switch {
	case ev.Kind == job.EventEnded && ev.Job.State == job.Failed:
		return text.Red
	case ev.Kind == job.EventRetry, isWarning(ev):
		return text.Yellow
	}
	return text.Plain
}

// isWarning reports whether an event's line begins with WARN.
func isWarning(ev job.Event) bool {
	switch ev.Kind {
	case job.EventExceeds, job.EventOveruse, job.EventWarning, job.EventIdle, job.EventGPUsLost:
		return true
	case job.EventCard:
		return ev.Job != nil || ev.Card != nil && ev.Card.Bad
	}
	return false
}

func (n narrator) sentence(ev job.Event, dispatched, total int) string {
	sentence := n.plain(ev, dispatched, total)
	if isWarning(ev) {
		return n.mark() + sentence
	}
	return sentence
}

func (n narrator) plain(ev job.Event, dispatched, total int) string {
	if n.theirs != nil {
		if said, known := n.theirs.sentence(ev, dispatched, total); known {
			return said
		}
	}
	j := ev.Job
	switch ev.Kind {
	case job.EventStarted:
		return n.started(j, dispatched, total)
	case job.EventAdopted:
		if j.State == job.Parked {
			return fmt.Sprintf("%s adopted: still parked since %s — %s", label(j), j.Parking.Since.Local().Format("15:04:05"), text.Line(j.Spec.Command()))
		}
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
	case job.EventParked:
		return fmt.Sprintf("%s parked: %s", label(j), text.Line(ev.Text))
	case job.EventResumed:
		return fmt.Sprintf("%s %s", label(j), text.Line(ev.Text))
	case job.EventExceeds:
		return fmt.Sprintf("%s EXCEEDS declared VRAM: %s; neighbors may OOM", label(j), ev.Text)
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
	case job.EventWarning, job.EventOveruse:
		if j != nil {
			return fmt.Sprintf("%s: %s", label(j), text.Line(ev.Text))
		}
		return text.Line(ev.Text)
	case job.EventCard:
		return text.Line(ev.Text)
	case job.EventIdle:
		return fmt.Sprintf("%s %s", label(j), text.Line(ev.Text))
	case job.EventGPUsLost:
		return "the GPUs cannot be read; no job starts until they can: " + text.Line(ev.Text)
	case job.EventGPUsFound:
		return "the GPUs can be read again"
	}
	return ""
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
		head += " in " + text.Seconds(j.Worked(j.EndedAt))
		facts = appendSome(facts, peaks(j), verdict(j, n.tolerance))
		if j.AvgUtil != nil {
			facts = append(facts, fmt.Sprintf("avg gpu util %.0f%%", *j.AvgUtil))
		}
	}
	facts = appendSome(facts, text.Line(j.Detail))
	if j.State == job.Failed && j.Outcome != job.Infeasible && n.width == nil {
		facts = appendSome(facts, n.logOf(j))
	}
	if len(facts) == 0 {
		return head
	}
	return head + " — " + strings.Join(facts, " | ")
}

// logOf names the log, unless it does not exist: a job that could not be
// launched may have none.
func (n narrator) logOf(j *job.Job) string {
	if j.Log == "" || !n.exists(j.Log) {
		return ""
	}
	return "log " + Relative(n.dir, j.Log)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Relative shows a path below a directory relative to it.
func Relative(dir, path string) string {
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
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

// stamp puts the time in front of a line.
func stamp(at time.Time, line string) string {
	return "[" + at.Local().Format("15:04:05") + "] " + line
}
