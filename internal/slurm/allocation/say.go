package allocation

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// record is one line of the front's journal.jsonl and of --json.
type record struct {
	Time       time.Time     `json:"time"`
	Event      job.EventKind `json:"event"`
	Text       string        `json:"text,omitempty"`
	Allocation int           `json:"allocation,omitempty"`
	Node       string        `json:"node,omitempty"`
	Seq        int64         `json:"seq,omitempty"` // in the allocation's own journal
	Job        *job.View     `json:"job,omitempty"`
}

// voice tells the user what happens, and keeps the journal.
type voice struct {
	out   io.Writer
	json  bool
	quiet bool
	file  *os.File
	seen  map[int]int64 // by allocation: the last event that is in the journal
	dir   string
}

// openVoice opens the journal. Events that are in it already are not reported
// again.
func openVoice(o *Options, logDir string) (*voice, error) {
	file, err := os.OpenFile(filepath.Join(logDir, "journal.jsonl"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	v := &voice{out: o.Out, json: o.JSON, quiet: o.Quiet, file: file, dir: o.Dir, seen: map[int]int64{}}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		var r record
		if json.Unmarshal(line, &r) == nil && r.Allocation > 0 {
			v.seen[r.Allocation] = max(v.seen[r.Allocation], r.Seq)
		}
		if err != nil {
			if len(line) > 0 {
				_, err = file.WriteString("\n") // a killed front's half line
				return v, err
			}
			return v, nil
		}
	}
}

func (v *voice) close() { _ = v.file.Close() }

// tell writes a record to the journal, and it or a sentence to the user.
func (v *voice) tell(r record, sentence string, important bool) {
	raw, err := json.Marshal(&r)
	if err != nil {
		panic("bug: " + err.Error())
	}
	line := string(text.JSON(raw))
	_, _ = fmt.Fprintln(v.file, line) // the ledger and the allocations' journals count
	switch {
	case v.json:
		fmt.Fprintln(v.out, line)
	case sentence != "" && (important || !v.quiet):
		fmt.Fprintln(v.out, "["+r.Time.Local().Format("15:04:05")+"] "+sentence)
	}
}

func (v *voice) say(sentence string) {
	v.tell(record{Time: time.Now(), Event: job.EventNotice, Text: sentence}, sentence, false)
}

// warn is for what the user may have to act on, with lines that explain it.
func (v *voice) warn(sentence string, more ...string) {
	v.tell(record{Time: time.Now(), Event: job.EventWarning, Text: strings.Join(append([]string{sentence}, more...), "\n")}, "WARN "+text.Line(sentence), true)
	for _, line := range more {
		if !v.json {
			fmt.Fprintln(v.out, "    | "+text.Line(line))
		}
	}
}

// allocation tells what happened to an allocation.
func (v *voice) allocation(what string, g *grant, sentence string) {
	r := record{Time: time.Now(), Event: job.EventKind("allocation_" + what), Allocation: g.number, Text: sentence}
	if g.began != nil {
		r.Node = g.began.Node
	}
	v.tell(r, sentence, false)
}

// broken tells that a job cannot run.
func (v *voice) broken(t *task) {
	state := t.outcome.State()
	view := job.View{ID: strconv.Itoa(t.id), Name: t.spec.Name, State: state, Outcome: &t.outcome, Reason: &t.detail}
	v.tell(record{Time: time.Now(), Event: job.EventEnded, Job: &view}, fmt.Sprintf("%s %s [%s] — %s", label(t), state, strings.ToUpper(string(t.outcome)), text.Line(t.detail)), true)
}

// job tells what happened to a job in an allocation, unless that was told before.
func (v *voice) job(g *grant, t *task, n news) {
	if n.Seq <= v.seen[g.number] {
		return
	}
	view := *n.Job
	view.ID = strconv.Itoa(t.id)
	r := record{Time: n.Time, Event: n.Event, Text: n.Text, Allocation: g.number, Node: t.node, Seq: n.Seq, Job: &view}
	sentence, important := "", false
	switch n.Event {
	case job.EventStarted:
		sentence = fmt.Sprintf("%s started on %s%s — %s", label(t), t.node, cards(&view), text.Line(t.spec.Command()))
	case job.EventRetry:
		sentence = fmt.Sprintf("%s failed, will retry: %s", label(t), text.Line(n.Text))
	case job.EventRequeued:
		sentence = fmt.Sprintf("%s is stopped: %s", label(t), text.Line(n.Text))
	case job.EventEnded:
		important = t.outcome.State() == job.Failed
		sentence = fmt.Sprintf("%s %s [%s] in %s on %s", label(t), t.outcome.State(), strings.ToUpper(string(t.outcome)), text.Seconds(t.took), t.node)
		if t.detail != "" {
			sentence += " — " + text.Line(t.detail)
		}
		if important && t.log != "" {
			sentence += " | log " + v.relative(t.log)
		}
	}
	v.tell(r, sentence, important)
}

func (v *voice) relative(path string) string {
	if rel, err := filepath.Rel(v.dir, path); err == nil && filepath.IsLocal(rel) {
		path = rel
	}
	return text.Line(path)
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

// greet says what is about to run.
func (f *front) greet() {
	jobs := 0
	for _, t := range f.tasks {
		if t.inFile {
			jobs++
		}
	}
	f.voice.say(fmt.Sprintf("%s in %s, up to %s with %s, logs in %s", text.Count(jobs, "job"), f.opt.File,
		text.Count(f.opt.Count, "allocation"), asked(&f.opt), f.opt.LogDir))
	if f.earlier > 0 {
		f.voice.say(fmt.Sprintf("skipping %s that ended in an earlier run (--retry-failed runs those that failed again)", text.Count(f.earlier, "job")))
	}
	if open := len(f.alive()); open > 0 {
		f.voice.say(fmt.Sprintf("taking over %s of an earlier run", text.Count(open, "allocation")))
	}
}

func asked(o *Options) string {
	if len(o.Slurm) == 0 {
		return "Slurm's defaults"
	}
	return text.Line(o.Asked)
}

// counts are the jobs by what became of them.
func (f *front) counts() (ok, failed, cancelled, left int, outcomes map[job.Outcome]int, status int) {
	outcomes = map[job.Outcome]int{}
	for _, t := range f.tasks {
		switch {
		case !t.ended() && t.in == 0 && !t.inFile: // its line is gone
		case !t.ended():
			left++
		case t.outcome == job.OK:
			ok++
		case t.outcome.State() == job.Cancelled:
			cancelled++
		default:
			failed++
		}
		if t.ended() && t.outcome.Status() > 0 {
			outcomes[t.outcome]++
			status = max(status, t.outcome.StatusWith(t.code))
		}
	}
	return ok, failed, cancelled, left, outcomes, status
}

// finish prints the summary and returns the exit status.
func (f *front) finish() int {
	ok, failed, cancelled, left, outcomes, status := f.counts()
	now := time.Now()
	switch {
	case f.stopping > 0:
		status = problem.Interrupted.ExitStatus()
	case left > 0:
		status = max(status, problem.Unable.ExitStatus())
	}
	f.board(time.Time{})
	if left > 0 && f.stopping == 0 && f.refusal == nil {
		f.voice.warn(fmt.Sprintf("%s left: %s; do they have enough time and GPUs? %s is what the last one printed. The same command goes on from here",
			text.Count(left, "job"), f.fruits(), f.voice.relative(f.grants[len(f.grants)-1].place.file(outName))))
	}
	if f.opt.JSON {
		raw, _ := json.Marshal(map[string]any{"time": now, "event": "summary", "ok": ok, "failed": failed, "cancelled": cancelled, "queued": left,
			"allocations": len(f.grants), "wall_seconds": now.Sub(f.began).Seconds(), "exit_status": status})
		fmt.Fprintln(f.opt.Out, string(raw))
		return status
	}
	sum := fmt.Sprintf("%s in %s: %d ok", text.Count(ok+failed+cancelled-f.earlier, "job"), text.Seconds(now.Sub(f.began)), ok)
	for _, part := range []struct {
		n    int
		word string
	}{{failed, "failed"}, {cancelled, "cancelled"}, {left, "left"}} {
		if part.n > 0 {
			sum += fmt.Sprintf(", %d %s", part.n, part.word)
		}
	}
	if f.earlier > 0 {
		sum += fmt.Sprintf(" (%d of them in an earlier run)", f.earlier)
	}
	fmt.Fprintln(f.opt.Out, sum)
	var kinds []string
	for outcome, n := range outcomes {
		kinds = append(kinds, fmt.Sprintf("%d %s", n, outcome))
	}
	if slices.Sort(kinds); len(kinds) > 0 {
		fmt.Fprintln(f.opt.Out, "not ok: "+strings.Join(kinds, ", "))
	}
	fmt.Fprintf(f.opt.Out, "%s lists every job and its log\n", filepath.Join(f.opt.LogDir, "status.txt"))
	return status
}

// How often the board is written; less often if it is long.
const (
	boardEvery  = 2 * time.Second
	boardPerJob = 100 * time.Microsecond
)

// board writes status.txt: every job, where it is, and where its log is. A zero
// time writes it in any case.
func (f *front) board(now time.Time) {
	if !now.IsZero() && now.Sub(f.boardAt) < boardEvery+time.Duration(len(f.tasks))*boardPerJob {
		return
	}
	f.boardAt = now
	table := text.Titled("JOB", "STATE", "ALLOCATION", "NODE", "LOG", "COMMAND")
	for _, t := range f.tasks {
		state, in := "queued", ""
		switch {
		case t.ended():
			state = string(t.outcome)
		case t.begun:
			state = "running"
		}
		if t.in > 0 {
			in = strconv.Itoa(t.in)
		}
		log := ""
		if t.log != "" {
			log = f.voice.relative(t.log)
		}
		table.Row(strconv.Itoa(t.id), state, in, t.node, log, text.Clip(text.Line(t.spec.Command()), 200))
	}
	path := filepath.Join(filepath.Dir(f.dir), "status.txt")
	if os.WriteFile(path+".new", []byte(table.String()), 0o644) == nil {
		_ = os.Rename(path+".new", path)
	}
}
