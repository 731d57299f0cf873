package batch

import (
	"fmt"
	"time"

	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/jobfile"
)

// entry is one line of the jobs file and the job that stands for it. The
// engine forgets a job when it is over; the entry is what the summary and the
// exit status need of it.
type entry struct {
	id      string
	key     string
	state   job.State
	outcome job.Outcome
	earlier bool // it was over before this run began
	inFile  bool
}

// queue is the jobs file as berth last understood it.
type queue struct {
	byKey  map[string]*entry
	byID   map[string]*entry
	total  int // lines in the file
	begun  int // of them, placed at least once
	counts tally
}

func newQueue() *queue {
	return &queue{byKey: map[string]*entry{}, byID: map[string]*entry{}}
}

func (q *queue) add(e *entry) {
	q.byKey[e.key] = e
	q.byID[e.id] = e
}

// remember takes over a job of an earlier run from the store.
func (q *queue) remember(j *job.Job) {
	q.add(&entry{id: j.ID, key: j.Key, state: j.State, outcome: j.Outcome, earlier: j.State.Terminal()})
}

// engineRequests is what a change of the file asks of the engine.
type engineRequests interface {
	Number(jobs []*job.Job)
	Submit(now time.Time, jobs []*job.Job)
	Edit(now time.Time, id string, spec job.Spec, rank int64)
	Withdraw(now time.Time, id string) bool
	Cancel(now time.Time, id, detail string) bool
}

var _ engineRequests = (*engine.Engine)(nil)

// apply brings the engine's queue in line with the file: new lines are
// submitted, lines that are gone dequeued, edits and order taken over. What
// runs or is over stays as it is, except that a running line may be marked
// `cancel`.
func (q *queue) apply(now time.Time, file jobfile.File, e engineRequests) {
	inFile := make(map[string]bool, len(file.Lines))
	var fresh []*job.Job
	for i, line := range file.Lines {
		inFile[line.Key] = true
		if _, known := q.byKey[line.Key]; !known {
			fresh = append(fresh, &job.Job{Key: line.Key, Spec: line.Spec, Rank: int64(i)})
		}
	}
	e.Number(fresh)
	for _, j := range fresh {
		q.add(&entry{id: j.ID, key: j.Key, state: job.Queued})
	}
	specs := q.named(file)
	for i := range fresh {
		fresh[i].Spec = specs[fresh[i].Key]
	}
	e.Submit(now, fresh)
	for i, line := range file.Lines {
		q.line(now, line, specs[line.Key], int64(i), e)
	}
	for key, entry := range q.byKey {
		entry.inFile = inFile[key]
		if entry.inFile || entry.state != job.Queued || !e.Withdraw(now, entry.id) {
			continue
		}
		delete(q.byKey, key)
		delete(q.byID, entry.id)
	}
	q.total = len(file.Lines)
	q.recount()
}

func (q *queue) line(now time.Time, line jobfile.Line, spec job.Spec, rank int64, e engineRequests) {
	entry := q.byKey[line.Key]
	if entry.state.Terminal() {
		return
	}
	if line.Spec.CancelMarked {
		e.Cancel(now, entry.id, "its line is marked cancel")
		return
	}
	e.Edit(now, entry.id, spec, rank)
}

// named is each line's spec with the names in `after` turned into ids.
func (q *queue) named(file jobfile.File) map[string]job.Spec {
	ids := map[string]string{}
	for _, line := range file.Lines {
		if line.Spec.Name != "" {
			ids[line.Spec.Name] = q.byKey[line.Key].id
		}
	}
	specs := make(map[string]job.Spec, len(file.Lines))
	for _, line := range file.Lines {
		spec := line.Spec
		spec.CancelMarked = false
		if len(spec.After) > 0 {
			deps := make([]job.Dependency, len(spec.After))
			for i, d := range spec.After {
				deps[i] = job.Dependency{Job: ids[d.Name], Name: d.Name, On: d.On}
			}
			spec.After = deps
		}
		specs[line.Key] = spec
	}
	return specs
}

// follow keeps the entries in step with what was committed.
func (q *queue) follow(ev job.Event) {
	if ev.Job == nil {
		return
	}
	e := q.byID[ev.Job.ID]
	if e == nil {
		return
	}
	if ev.Kind == job.EventStarted && ev.Job.Attempt == 1 {
		q.begun++
	}
	q.counts.add(e, -1)
	e.state, e.outcome = ev.Job.State, ev.Job.Outcome
	q.counts.add(e, 1)
}

// tally counts the jobs of a queue by how they stand.
type tally struct {
	ok, failed, cancelled, queued, running int
	earlierOK                              int // of ok, those of an earlier run
}

func (t *tally) add(e *entry, n int) {
	switch e.state {
	case job.Finished:
		t.ok += n
		if e.earlier {
			t.earlierOK += n
		}
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

// counted says whether the entry is part of what this run was asked for. What
// an earlier run did to a line that is not in the file any more is not.
func (e *entry) counted() bool { return e.inFile || !e.earlier }

// recount starts the tally over. Following events keeps it right; a changed
// file may change what counts.
func (q *queue) recount() {
	q.counts = tally{}
	q.begun = 0
	for _, e := range q.byID {
		if !e.counted() {
			continue
		}
		q.counts.add(e, 1)
		if e.state != job.Queued {
			q.begun++
		}
	}
}

// status is the exit status this queue amounts to, with how often each
// failing outcome occurred.
func (q *queue) status() (code int, outcomes map[job.Outcome]int) {
	outcomes = map[job.Outcome]int{}
	for _, e := range q.byID {
		if e.counted() && e.state.Terminal() && e.outcome != job.OK {
			outcomes[e.outcome]++
			code = max(code, e.outcome.Status())
		}
	}
	return code, outcomes
}

// done is how many are over.
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
