package batch

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
)

// How long the output waits for a slow reader before it drops lines. A program that
// reads events gets more time than a terminal.
const (
	linePatience  = 250 * time.Millisecond
	eventPatience = time.Second
)

// voice is how a run speaks: in lines for a person, or in events for a program.
type voice struct {
	json, quiet bool
	screen      *screen
	narrator    narrator
	remarked    map[string]bool // the notes on lines that were said
}

func newVoice(o *Options) *voice {
	v := &voice{json: o.JSON, quiet: o.Quiet, remarked: map[string]bool{}}
	v.screen = &screen{
		out: o.Out, live: o.Terminal && !o.JSON && !o.Quiet, colour: o.Colour && !o.JSON,
		width: o.Width, height: o.Height, patience: linePatience,
	}
	if o.JSON {
		v.screen.patience, v.screen.notice = eventPatience, missedEvents
	}
	v.narrator = narrator{
		tolerance: o.Tolerance, verbose: o.Verbose, quiet: o.Quiet, paint: painter(v.screen.colour),
		dir: o.Dir, exists: isThere, tail: LastLines,
	}
	if o.Terminal && !o.AsGpusched {
		v.narrator.width = o.Width
	}
	return v
}

// say prints a notice of berth's own.
func (v *voice) say(notice string) {
	if v.quiet {
		return
	}
	now := time.Now()
	if v.json {
		v.emit(record{Time: now, Event: job.EventNotice, Text: notice})
		return
	}
	v.screen.print(v.narrator.wrap(text.Plain, stamp(now, text.Line(notice)))...)
}

// warn prints a warning of berth's own.
func (v *voice) warn(warning string) {
	now := time.Now()
	if v.json {
		v.emit(record{Time: now, Event: job.EventWarning, Text: warning})
		return
	}
	v.screen.print(v.narrator.warn(now, text.Line(warning))...)
}

// emit writes one JSON line on stdout.
func (v *voice) emit(r any) {
	line, err := encodeLine(r)
	if err != nil {
		panic("bug: " + err.Error())
	}
	v.screen.print(string(line))
}

// missedEvents replaces dropped events in --json.
func missedEvents(missed int) string {
	line, err := encodeLine(record{Time: time.Now(), Event: job.EventWarning,
		Text: fmt.Sprintf("%s not shown because the output was not read; journal.jsonl has all stored events", text.Count(missed, "line"))})
	if err != nil {
		panic("bug: " + err.Error())
	}
	return string(line)
}

// remarks are the notes on lines that were not said before.
func (v *voice) remarks(file jobfile.File, reply api.SubmitReply) (notes []string) {
	for i, line := range file.Lines {
		said := appendSome(nil, line.Note)
		said = append(said, reply.Jobs[i].Notes...)
		for _, note := range said {
			if key := line.Key + note; !v.remarked[key] {
				v.remarked[key] = true
				notes = append(notes, fmt.Sprintf("line %d: %s", line.Number, note))
			}
		}
	}
	if more := len(notes) - maxNamed; more > 0 {
		notes = append(notes[:maxNamed], fmt.Sprintf("and %s more", text.Count(more, "note")))
	}
	return notes
}

// saySkipped names the jobs that do not run again.
func (v *voice) saySkipped(jobs []*job.Job, ended string) {
	if len(jobs) == 0 {
		return
	}
	names := make([]string, 0, maxNamed+1)
	for i, j := range jobs {
		if i == maxNamed {
			names = append(names, fmt.Sprintf("and %d more", len(jobs)-i))
			break
		}
		names = append(names, strings.TrimPrefix(label(j), "job "))
	}
	v.say(fmt.Sprintf("skipping %s %s in an earlier run (--retry all runs them again): %s", text.Count(len(jobs), "job"), ended, strings.Join(names, ", ")))
}

// sayEach says a sentence about each job, up to a bound.
func (v *voice) sayEach(jobs []*job.Job, sentence func(*job.Job) string) {
	for i, j := range jobs {
		if i == maxNamed {
			v.say(fmt.Sprintf("and %d more", len(jobs)-i))
			return
		}
		v.say(sentence(j))
	}
}

// ask prints a question, or the answer to one, even where little else is.
func (v *voice) ask(words string) {
	v.screen.print(v.narrator.wrap(text.Bold, stamp(time.Now(), words))...)
}

// narrate tells of an event, as ev has it too.
func (v *voice) narrate(event *api.Event, ev job.Event, begun, total int) {
	if v.json {
		v.emit(event)
		return
	}
	v.screen.print(v.narrator.lines(ev, begun, total)...)
}

// wrapped makes lines fit.
func (v *voice) wrapped(lines []string) (fit []string) {
	for _, line := range lines {
		fit = append(fit, v.narrator.wrap(text.Plain, line)...)
	}
	return fit
}
