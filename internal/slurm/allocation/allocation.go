package allocation

import (
	"time"

	"berth/internal/job"
)

// doubtTime is how long the end of a job by a signal is in doubt: the notice that
// its allocation ends may come a little later.
const doubtTime = 10 * time.Second

// allocation is one that was asked for.
type allocation struct {
	number    int
	tag       string // its name in Slurm
	directory directory
	narrator  *narrator
	jobs      *jobList
	slurm     string // Slurm's id; empty: not known
	tasks     []*task
	lines     []string // jobs.txt
	marker    *startMarker
	closed    bool

	journal  journal
	heard    int64     // the last event of it
	ends     time.Time // when its jobs are stopped; zero: not known, or no limit
	whole    time.Duration
	started  bool      // a job started in it
	finished int       // jobs that ended in it
	state    string    // as Slurm last said; empty: it does not know it
	absent   int       // how often in a row Slurm did not list it
	alive    string    // its last sign of life
	silent   time.Time // since when that is the last
	why      string    // why it waits, as last said
	noMore   bool
	doubt    map[*task]doubtful // jobs that may have been stopped with it
}

// doubtful is how a job seems to have ended, and since when that is known.
type doubtful struct {
	end   record
	since time.Time
}

// take gives a task to the allocation.
func (a *allocation) take(t *task) {
	a.tasks = append(a.tasks, t)
	t.in, t.begun = a.number, false
}

// complete gives the allocation the jobs that the ledger says it has: a front that
// was killed may not have come to it.
func (a *allocation) complete() error {
	if a.closed || len(a.lines) == len(a.tasks) {
		return nil
	}
	for _, t := range a.tasks[len(a.lines):] {
		text := t.text
		if text == "" { // its line was deleted meanwhile; the others keep their places
			text = "[cancel] true"
		}
		a.lines = append(a.lines, text)
	}
	return a.directory.give(a.lines)
}

// backlog are its jobs that have not ended.
func (a *allocation) backlog() (list []*task) {
	for _, t := range a.tasks {
		if _, doubted := a.doubt[t]; !doubted && t.in == a.number && !t.ended() {
			list = append(list, t)
		}
	}
	return list
}

// open reports whether it takes jobs.
func (a *allocation) open() bool {
	d := a.directory
	return a.marker != nil && !a.noMore && !d.has(stopName) && d.told().IsZero() && !d.has(endName)
}

// room is what it has for more jobs.
func (a *allocation) room(now time.Time) *room {
	r := &room{gpus: a.marker.GPUs, gpuMiB: a.marker.GPUMiB, cpus: a.marker.CPUs, backlog: a.backlog(), whole: a.whole}
	if !a.ends.IsZero() {
		r.left = max(a.ends.Sub(now), time.Nanosecond)
	}
	return r
}

// enough lets it end when its jobs have ended.
func (a *allocation) enough() error {
	a.noMore = true
	return a.directory.mark(noMoreName)
}

// release takes back the jobs that it did not finish.
func (a *allocation) release() (n int) {
	for _, t := range a.tasks {
		if t.in == a.number && !t.ended() {
			t.in, t.begun, n = 0, false, n+1
		}
	}
	return n
}

// follow takes in what its jobs did.
func (a *allocation) follow() (err error) {
	if !a.directory.has(journalName) {
		return nil
	}
	if a.marker == nil {
		if a.marker, err = a.directory.begun(); err != nil {
			return err
		}
	}
	err = a.journal.read(a.directory.file(journalName), func(r record) {
		if r.Seq <= a.heard {
			return
		}
		a.heard = r.Seq
		if index := r.index(); index > 0 && index <= len(a.tasks) {
			a.happened(a.tasks[index-1], r)
		}
	})
	if err != nil {
		return err
	}
	if a.closed {
		a.resolve(time.Now(), true)
	}
	return nil
}

// happened takes in one event of a job.
func (a *allocation) happened(t *task, r record) {
	if t.in != a.number || t.ended() {
		return
	}
	if a.marker != nil {
		t.node = a.marker.Node
	}
	if r.Job.Log != nil {
		t.log = *r.Job.Log
	}
	switch r.Event {
	case job.EventStarted:
		t.begun, a.started = true, true
	case job.EventEnded:
		told := a.directory.told()
		switch {
		case r.Job.Outcome == nil || stoppedWith(told, r.Job):
		case signalled(*r.Job.Outcome) && told.IsZero():
			a.doubt[t] = doubtful{r, time.Now()}
		default:
			a.jobEnds(t, r)
		}
		return
	}
	a.narrator.job(a, t, r)
}

// jobEnds takes in that a job has ended.
func (a *allocation) jobEnds(t *task, r record) {
	t.outcome, t.code, t.begun = *r.Job.Outcome, r.Job.ExitCode, true
	if r.Job.Reason != nil {
		t.detail = *r.Job.Reason
	}
	if r.Job.StartedAt != nil && r.Job.EndedAt != nil {
		t.took = r.Job.EndedAt.Sub(*r.Job.StartedAt)
		a.jobs.pace.ended++
		a.jobs.pace.total += t.took
	}
	a.finished++
	a.narrator.job(a, t, r)
}

// resolve decides about jobs that ended by a signal: with their allocation, or by
// themselves.
func (a *allocation) resolve(now time.Time, final bool) {
	if len(a.doubt) == 0 {
		return
	}
	told := a.directory.told()
	for t, d := range a.doubt {
		switch {
		case stoppedWith(told, d.end.Job):
			delete(a.doubt, t)
		case final || now.Sub(d.since) >= doubtTime:
			delete(a.doubt, t)
			a.jobEnds(t, d.end)
		}
	}
}
