package batch

import (
	"fmt"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// entry is the job of a line of the jobs file, with what the summary and the exit
// status need.
type entry struct {
	id      string
	state   job.State
	outcome job.Outcome
	status  int       // what it adds to the exit status
	earlier bool      // it ended before this berth run began
	begun   bool      // it started at least once
	away    bool      // Slurm has it
	seen    int       // the generation of the file that last had its line
	asOf    time.Time // it was asked for then; older events tell nothing new
}

// jobList is how far the jobs of a file are.
type jobList struct {
	byID       map[string]*entry
	generation int // counts the versions of the file
	total      int // lines in the file
	begun      int // how many of them have started
	counts     tally
}

func newJobList() *jobList { return &jobList{byID: map[string]*entry{}} }

// remember adds a job of an earlier run.
func (q *jobList) remember(j *job.Job) {
	q.byID[j.ID] = &entry{id: j.ID, state: j.State, outcome: j.Outcome, status: j.Outcome.StatusWith(j.ExitCode), earlier: j.State.Terminal(), begun: j.Attempt.Number > 0, away: away(j)}
}

func away(j *job.Job) bool { return j.Handover.Slurm != "" && !j.State.Terminal() }

// place counts the jobs that run on this machine, and those that Slurm has.
func (q *jobList) place() (here, there int) {
	here = q.counts.running
	for _, e := range q.byID {
		if e.away {
			there++
		}
		if e.away && e.state == job.Running {
			here--
		}
	}
	return here, there
}

// take notes which jobs the lines of a new version of the file have.
func (q *jobList) take(ids []string) {
	q.generation++
	q.total = len(ids)
	for _, id := range ids {
		if q.byID[id] == nil {
			q.byID[id] = &entry{id: id, state: job.Queued}
		}
		q.byID[id].seen = q.generation
	}
	q.recount()
}

// again makes a job of an earlier run one of this run.
func (q *jobList) again(id string) {
	if e := q.byID[id]; e != nil && e.earlier {
		*e = entry{id: id, state: job.Queued, seen: e.seen}
	}
}

// follow updates the entries with a committed event.
func (q *jobList) follow(ev job.Event) {
	if ev.Job == nil {
		return
	}
	e := q.byID[ev.Job.ID]
	if e != nil && ev.Kind == job.EventQueued {
		return // it is told beside the others, and may have started
	}
	if e == nil {
		e = &entry{id: ev.Job.ID, state: job.Queued, seen: -1}
		q.byID[e.id] = e
		q.count(e, 1)
	}
	q.count(e, -1)
	if ev.Kind == job.EventDequeued {
		delete(q.byID, e.id)
		return
	}
	if (ev.Kind == job.EventStarted || ev.Kind == job.EventEnded && !ev.Job.StartedAt.IsZero()) && !e.begun {
		e.begun = true
		if q.inFile(e) {
			q.begun++
		}
	}
	e.state, e.outcome, e.status = ev.Job.State, ev.Job.Outcome, ev.Job.Outcome.StatusWith(ev.Job.ExitCode)
	e.away = away(ev.Job)
	e.earlier = e.earlier && e.state.Terminal()
	q.count(e, 1)
}

// knows reports whether an event is from before its job was asked for.
func (q *jobList) knows(event *api.Event) bool {
	e := q.byID[event.Job.ID]
	return e != nil && !event.Time.After(e.asOf)
}

// untold is the event that tells how the state of a job has changed; empty: it has
// not.
func (q *jobList) untold(v *job.View) job.EventKind {
	e := q.byID[v.ID]
	switch {
	case e == nil && !v.State.Terminal() || e != nil && e.state == v.State && e.outcome == some(v.Outcome):
		return "" // a new job is told of when it starts
	case v.State.Terminal():
		return job.EventEnded
	case v.State == job.Parked:
		return job.EventParked
	case v.State == job.Queued:
		return job.EventRequeued
	case e.state == job.Parked:
		return job.EventResumed
	}
	return job.EventStarted
}

// gone lists the unfinished jobs that the queue no longer has.
func (q *jobList) gone(there map[string]bool) (ids []string) {
	for id, e := range q.byID {
		if !e.state.Terminal() && !there[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// forget removes a job that neither the queue nor the file has any more.
func (q *jobList) forget(id string) {
	q.count(q.byID[id], -1)
	delete(q.byID, id)
}

// count adds a job to the counts, if it is one that counts.
func (q *jobList) count(e *entry, n int) {
	if q.counted(e) {
		q.counts.add(e, n)
	}
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
func (q *jobList) counted(e *entry) bool { return q.inFile(e) || !e.earlier }

func (q *jobList) inFile(e *entry) bool { return e.seen == q.generation }

// recount computes the tally again, because a changed file may change what
// counts. Events keep it up to date in between.
func (q *jobList) recount() {
	q.counts = tally{}
	q.begun = 0
	for _, e := range q.byID {
		q.count(e, 1)
		if e.begun && q.inFile(e) {
			q.begun++
		}
	}
}

// status is the exit status for this queue, and how often each failing outcome
// occurred.
func (q *jobList) status() (code int, outcomes map[job.Outcome]int) {
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
