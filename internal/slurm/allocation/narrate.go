package allocation

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/queue/batch"
	"berth/internal/text"
)

// narrator tells the user what happens, and keeps the journal.
type narrator struct {
	out   io.Writer
	json  bool
	quiet bool
	file  *os.File
	seen  map[int]int64 // by allocation: the last event that is in the journal
	dir   string
}

// newNarrator opens the journal. Events that are in it already are not reported
// again.
func newNarrator(o *Options, logDir string) (*narrator, error) {
	path := filepath.Join(logDir, journalName)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	n := &narrator{out: o.Out, json: o.JSON, quiet: o.Quiet, file: file, dir: o.Dir, seen: map[int]int64{}}
	var told journal
	err = told.read(path, func(r record) { n.seen[r.Allocation] = max(n.seen[r.Allocation], r.Seq) })
	if info, unknown := file.Stat(); err == nil && unknown == nil && info.Size() > told.at {
		_, err = file.WriteString("\n") // a killed front's half line
	}
	return n, err
}

func (n *narrator) close() { _ = n.file.Close() }

// tell writes a record to the journal, and it or a sentence to the user.
func (n *narrator) tell(r record, sentence string, important bool) {
	line := string(text.JSON(text.MustJSON(&r)))
	_, _ = fmt.Fprintln(n.file, line) // the ledger and the allocations' journals count
	switch {
	case n.json:
		fmt.Fprintln(n.out, line)
	case sentence != "" && (important || !n.quiet):
		fmt.Fprintln(n.out, "["+r.Time.Local().Format("15:04:05")+"] "+sentence)
	}
}

func (n *narrator) say(sentence string) {
	n.tell(record{Time: time.Now(), Event: job.EventNotice, Text: sentence}, sentence, false)
}

// warn is for what the user may have to act on, with lines that explain it.
func (n *narrator) warn(sentence string, more ...string) {
	n.tell(record{Time: time.Now(), Event: job.EventWarning, Text: strings.Join(append([]string{sentence}, more...), "\n")}, "WARN "+text.Line(sentence), true)
	for _, line := range more {
		if !n.json {
			fmt.Fprintln(n.out, "    | "+text.Line(line))
		}
	}
}

// allocation tells what happened to an allocation.
func (n *narrator) allocation(what string, a *allocation, sentence string) {
	r := record{Time: time.Now(), Event: job.EventKind("allocation_" + what), Allocation: a.number, Text: sentence}
	if a.marker != nil {
		r.Node = a.marker.Node
	}
	n.tell(r, sentence, false)
}

// broken tells that a job cannot run.
func (n *narrator) broken(t *task) {
	state := t.outcome.State()
	view := job.View{ID: strconv.Itoa(t.id), Name: t.spec.Name, State: state, Outcome: &t.outcome, Reason: &t.detail}
	n.tell(record{Time: time.Now(), Event: job.EventEnded, Job: &view}, fmt.Sprintf("%s %s [%s] — %s", label(t), state, strings.ToUpper(string(t.outcome)), text.Line(t.detail)), true)
}

// job tells what happened to a job in an allocation, unless that was told before.
func (n *narrator) job(a *allocation, t *task, r record) {
	if r.Seq <= n.seen[a.number] {
		return
	}
	view := *r.Job
	view.ID = strconv.Itoa(t.id)
	r.Allocation, r.Node, r.Job = a.number, t.node, &view
	sentence, important := "", false
	switch r.Event {
	case job.EventStarted:
		sentence = fmt.Sprintf("%s started on %s%s — %s", label(t), t.node, cards(&view), text.Line(t.spec.Command()))
	case job.EventRetry:
		sentence = fmt.Sprintf("%s failed, will retry: %s", label(t), text.Line(r.Text))
	case job.EventRequeued:
		sentence = fmt.Sprintf("%s is stopped: %s", label(t), text.Line(r.Text))
	case job.EventEnded:
		important = t.outcome.State() == job.Failed
		sentence = fmt.Sprintf("%s %s [%s] in %s on %s", label(t), t.outcome.State(), strings.ToUpper(string(t.outcome)), text.Seconds(t.took), t.node)
		if t.detail != "" {
			sentence += " — " + text.Line(t.detail)
		}
		if important && t.log != "" {
			sentence += " | log " + batch.Relative(n.dir, t.log)
		}
	}
	n.tell(r, sentence, important)
}

func label(t *task) string {
	if t.spec.Name == "" {
		return fmt.Sprintf("job %d", t.id)
	}
	return fmt.Sprintf("job %d (%s)", t.id, text.Line(t.spec.Name))
}

func cards(view *job.View) string {
	if len(view.GPUIDs) == 0 {
		return ""
	}
	return " gpu [" + text.Numbers(view.GPUIDs) + "]"
}
