package batch

import (
	"fmt"
	"strconv"

	"berth/internal/engine"
	"berth/internal/engine/waiting"
	"berth/internal/job"
	"berth/internal/jobfile"
)

// entry is one line of the jobs file and its job. The engine forgets ended jobs;
// the entry keeps what the summary and the exit status need.
type entry struct {
	id      string
	key     string
	state   job.State
	outcome job.Outcome
	status  int  // what it adds to the exit status
	earlier bool // it ended before this berth run began
	begun   bool // it started at least once
	seen    int  // the generation of the file that last had its line

	code *job.Snapshot // what it runs; nil: none
	note string        // on its line, as last said
}

// queue is the last good version of the jobs file.
type queue struct {
	byKey      map[string]*entry
	byID       map[string]*entry
	generation int // counts the versions of the file
	total      int // lines in the file
	begun      int // how many of them have started
	counts     tally
	notes      []string // on lines, not said yet

	numbers map[string]string // of jobs whose lines were deleted before they started, by key
	unsaved map[string]string // what changed in numbers; "": given back
}

func newQueue() *queue {
	return &queue{byKey: map[string]*entry{}, byID: map[string]*entry{}, numbers: map[string]string{}, unsaved: map[string]string{}}
}

func (q *queue) add(e *entry) {
	q.byKey[e.key] = e
	q.byID[e.id] = e
}

// remember adds a job of an earlier run from the store, under the key of its line.
func (q *queue) remember(j *job.Job, key string) {
	e := &entry{id: j.ID, key: key, state: j.State, outcome: j.Outcome, status: j.Outcome.StatusWith(j.ExitCode), earlier: j.State.Terminal(), begun: j.Attempt.Number > 0}
	e.keepCode(&j.Spec)
	q.add(e)
}

// engineRequests are what a change of the file may ask of the engine.
type engineRequests interface {
	Number(jobs []*job.Job)
	Submit(jobs []*job.Job)
	Edit(id string, spec job.Spec, rank int64)
	Withdraw(id string) bool
	Cancel(id, detail string) bool
}

type canceller interface{ Cancel(id, detail string) bool }

// requestsOf is the engine as it takes them.
func requestsOf(t *engine.Turn) engineRequests {
	return struct {
		*waiting.Queue
		canceller
	}{t.Queue(), t.Requests()}
}

// apply makes the engine's queue match the file: it submits new lines, removes
// the jobs of deleted lines, and applies edits and the order. Running and ended
// jobs stay as they are, except that a running line may be marked `cancel`. It
// consumes the lines of the file.
func (q *queue) apply(file jobfile.File, e engineRequests) {
	q.generation++
	fresh := q.admit(file, e)
	ids := q.names(file)
	var unwanted []string // new, and marked `cancel` at once
	next := 0
	for i, line := range file.Lines {
		resolveAfter(&line.Spec, ids)
		if next == len(fresh) || fresh[next].Key != line.Key {
			continue
		}
		j := fresh[next]
		next++
		j.Spec, j.Spec.CancelMarked = line.Spec, false
		q.remark(line)
		q.byKey[line.Key].keepCode(&line.Spec)
		if line.Spec.CancelMarked {
			unwanted = append(unwanted, j.ID)
		}
		file.Lines[i] = nil // free it: the job has a copy
	}
	e.Submit(fresh)
	for _, id := range unwanted {
		e.Cancel(id, markedCancel)
	}
	for i, line := range file.Lines {
		if line != nil {
			q.line(line, int64(i), e)
		}
	}
	q.withdraw(e)
	q.total = len(file.Lines)
	q.recount()
}

// admit makes jobs of the new lines, in the order of the file. They have ids but
// are not submitted yet.
func (q *queue) admit(file jobfile.File, e engineRequests) []*job.Job {
	var fresh []*job.Job
	for i, line := range file.Lines {
		if known, ok := q.byKey[line.Key]; ok {
			known.seen = q.generation
			continue
		}
		fresh = append(fresh, &job.Job{Key: line.Key, Rank: int64(i)})
	}
	var unnumbered []*job.Job
	for _, j := range fresh {
		if id, back := q.numbers[j.Key]; back {
			delete(q.numbers, j.Key)
			q.unsaved[j.Key] = ""
			j.ID = id
			j.Seq, _ = strconv.ParseInt(id, 10, 64) // it was made from one
			continue
		}
		unnumbered = append(unnumbered, j)
	}
	e.Number(unnumbered)
	for _, j := range fresh {
		q.add(&entry{id: j.ID, key: j.Key, state: job.Queued, seen: q.generation})
	}
	return fresh
}

const markedCancel = "its line is marked cancel"

// line applies one line to a job that existed before.
func (q *queue) line(line *jobfile.Line, rank int64, e engineRequests) {
	entry := q.byKey[line.Key]
	switch {
	case entry.state.Terminal():
	case line.Spec.CancelMarked:
		e.Cancel(entry.id, markedCancel)
	default:
		// The jobs that wait when berth begins get the code of that moment. Later
		// versions of the file leave the code of their jobs as it is.
		if old := entry.code; old != nil && old.Tree == line.Spec.Snapshot.Tree && (q.generation > 1 || entry.state != job.Queued) {
			line.Spec.Snapshot = *old
		}
		entry.keepCode(&line.Spec)
		q.remark(line)
		e.Edit(entry.id, line.Spec, rank)
	}
}

// remark adds the note on a line, unless it was said before.
func (q *queue) remark(line *jobfile.Line) {
	e := q.byKey[line.Key]
	if line.Note != "" && line.Note != e.note {
		q.notes = append(q.notes, fmt.Sprintf("line %d: %s", line.Number, line.Note))
	}
	e.note = line.Note
}

func (e *entry) keepCode(spec *job.Spec) {
	if e.code = nil; spec.Snapshot.Path != "" {
		code := spec.Snapshot
		e.code = &code
	}
}

// withdraw removes the queued jobs whose lines were deleted.
func (q *queue) withdraw(e engineRequests) {
	for key, entry := range q.byKey {
		// Let the engine decide what is queued: it may have requeued a job
		// that the entry still shows as running.
		if q.inFile(entry) || entry.state.Terminal() || !e.Withdraw(entry.id) {
			continue
		}
		delete(q.byKey, key)
		delete(q.byID, entry.id)
		if !entry.begun && len(q.numbers) < maxNumbers {
			q.numbers[key], q.unsaved[key] = entry.id, entry.id
		}
	}
}

// maxNumbers bounds the numbers that are kept for lines that may come back. One
// beyond it gets a new number.
const maxNumbers = 100_000

// wanted reports whether a job should be requeued if that comes up; one whose
// line was deleted while it ran should not.
func (q *queue) wanted(id string) bool {
	e := q.byID[id]
	return e == nil || q.inFile(e)
}

func (q *queue) inFile(e *entry) bool { return e.seen == q.generation }

// names maps the names in the file to the ids of their jobs.
func (q *queue) names(file jobfile.File) map[string]string {
	ids := map[string]string{}
	for _, line := range file.Lines {
		ids[strconv.Itoa(line.Number)] = q.byKey[line.Key].id
	}
	for _, line := range file.Lines {
		if name := line.Spec.Name; name != "" {
			ids[name] = q.byKey[line.Key].id
		}
	}
	return ids
}

// resolveAfter turns the names in `after` into ids.
func resolveAfter(spec *job.Spec, ids map[string]string) {
	if len(spec.After) == 0 {
		return
	}
	deps := make([]job.Dependency, len(spec.After))
	for i, d := range spec.After {
		deps[i] = job.Dependency{Job: ids[d.Name], Name: d.Name, On: d.On}
	}
	spec.After = deps
}

// follow updates the entries with a committed event.
func (q *queue) follow(ev job.Event) {
	if ev.Job == nil {
		return
	}
	e := q.byID[ev.Job.ID]
	if e == nil {
		return
	}
	if ev.Kind == job.EventDequeued {
		if !e.begun && q.inFile(e) {
			return // its line has come back since
		}
		q.counts.add(e, -1)
		delete(q.byKey, e.key)
		delete(q.byID, e.id)
		return
	}
	if ev.Kind == job.EventStarted && !e.begun {
		e.begun = true
		if q.inFile(e) {
			q.begun++
		}
	}
	q.counts.add(e, -1)
	e.state, e.outcome, e.status = ev.Job.State, ev.Job.Outcome, ev.Job.Outcome.StatusWith(ev.Job.ExitCode)
	q.counts.add(e, 1)
}

// tally counts the jobs of a queue by state.
type tally struct {
	ok, failed, cancelled, queued, running int
	earlier                                int // of the ended ones, those of an earlier run
}

func (t *tally) add(e *entry, n int) {
	if e.earlier {
		t.earlier += n
	}
	switch e.state {
	case job.Finished:
		t.ok += n
	case job.Failed:
		t.failed += n
	case job.Cancelled:
		t.cancelled += n
	case job.Running, job.Parked:
		t.running += n
	default:
		t.queued += n
	}
}

// counted reports whether the entry counts for this berth run. A job of an
// earlier run whose line was deleted does not.
func (q *queue) counted(e *entry) bool { return q.inFile(e) || !e.earlier }

// recount computes the tally again, because a changed file may change what
// counts. Events keep it up to date in between.
func (q *queue) recount() {
	q.counts = tally{}
	q.begun = 0
	for _, e := range q.byID {
		if !q.counted(e) {
			continue
		}
		q.counts.add(e, 1)
		if e.begun && q.inFile(e) {
			q.begun++
		}
	}
}

// status is the exit status for this queue, and how often each failing outcome
// occurred.
func (q *queue) status() (code int, outcomes map[job.Outcome]int) {
	outcomes = map[job.Outcome]int{}
	for _, e := range q.byID {
		if q.counted(e) && e.state.Terminal() && e.status > 0 {
			outcomes[e.outcome]++
			code = max(code, e.status)
		}
	}
	return code, outcomes
}

// done is how many have ended.
func (t tally) done() int { return t.ok + t.failed + t.cancelled }

func (t tally) String() string {
	text := fmt.Sprintf("%d ok", t.ok)
	for _, part := range []struct {
		n    int
		word string
	}{{t.failed, "failed"}, {t.cancelled, "cancelled"}, {t.running, "running"}, {t.queued, "queued"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.word)
		}
	}
	return text
}
