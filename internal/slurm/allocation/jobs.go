package allocation

import (
	"errors"
	"fmt"
	"time"

	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue"
)

// task is one line of the jobs file.
type task struct {
	id     int    // from 1, in the order in which berth first saw them
	text   string // the line as an allocation gets it, without its dependencies
	spec   job.Spec
	inFile bool // its line is still there

	after []dependency

	in      int // the allocation that has it; 0: none
	begun   bool
	node    string
	log     string
	outcome job.Outcome // empty: it has not ended
	code    *int        // what it exited with; nil: it did not
	detail  string
	took    time.Duration
}

// dependency is another line, and how it has to end.
type dependency struct {
	on   *task
	cond job.Condition
}

func (t *task) ended() bool { return t.outcome != "" }

// waits reports whether a task can be dealt out, apart from its dependencies.
func (t *task) waits() bool { return !t.ended() && t.in == 0 && t.inFile }

// isReady reports whether a task can be dealt out now.
func (t *task) isReady() bool {
	ready, _ := t.ready()
	return ready && t.waits()
}

// ready reports whether the dependencies of a task hold, and which can never hold.
func (t *task) ready() (ready bool, broken *dependency) {
	ready = true
	for i, d := range t.after {
		switch {
		case !d.on.ended():
			ready = false
		case d.cond.Holds(d.on.outcome):
		default:
			return false, &t.after[i]
		}
	}
	return ready, nil
}

// jobList is all lines that the jobs file ever had.
type jobList struct {
	all     []*task
	byKey   map[string]*task
	pace    pace
	earlier int // that ended in an earlier run
}

func (l *jobList) add(key string) *task {
	t := &task{id: len(l.all) + 1}
	l.all = append(l.all, t)
	l.byKey[key] = t
	return t
}

func (l *jobList) count(is func(*task) bool) (n int) {
	for _, t := range l.all {
		if is(t) {
			n++
		}
	}
	return n
}

// left is how many jobs are still to be dealt out, ready how many of them now.
func (l *jobList) left() int  { return l.count((*task).waits) }
func (l *jobList) ready() int { return l.count((*task).isReady) }

// unknown are the keys of lines that are new.
func (l *jobList) unknown(lines []*jobfile.Line) (keys []string) {
	for _, line := range lines {
		if l.byKey[line.Key] == nil {
			keys = append(keys, line.Key)
		}
	}
	return keys
}

// accept brings the tasks up to date with the jobs file, all of whose lines are known.
func (l *jobList) accept(lines []*jobfile.Line, texts []string) {
	for _, t := range l.all {
		t.inFile = false
	}
	named := jobfile.Named(lines)
	for i, line := range lines {
		t := l.byKey[line.Key]
		t.inFile, t.spec, t.text, t.after = true, line.Spec, texts[i], nil
		for _, d := range line.Spec.After {
			t.after = append(t.after, dependency{on: l.byKey[lines[named[d.Name][0]].Key], cond: d.On})
		}
		if line.Spec.CancelMarked && t.waits() {
			t.outcome, t.detail = job.WasCancelled, "its line is marked cancel"
		}
	}
}

// forget makes jobs run again that have ended.
func (l *jobList) forget(ids []int) {
	for _, id := range ids {
		t := l.all[id-1]
		t.outcome, t.code, t.in = "", nil, 0
	}
}

// failed are the ids of the jobs in the file that did not end well.
func (l *jobList) failed() (ids []int) {
	for _, t := range l.all {
		if t.ended() && t.outcome.Status() != 0 && t.inFile {
			ids = append(ids, t.id)
		}
	}
	return ids
}

// endBroken ends the jobs whose dependencies can no longer hold, and those that lack
// what their dependencies should have made.
func (l *jobList) endBroken(from queue.Origin, tell func(*task)) {
	for changed := true; changed; {
		changed = false
		for _, t := range l.all {
			if len(t.after) == 0 || !t.waits() {
				continue
			}
			switch ready, broken := t.ready(); {
			case broken != nil:
				t.outcome = job.Depends
				t.detail = fmt.Sprintf("it needed job %d to %s, but that job %s", broken.on.id, broken.cond.Words(), broken.on.outcome.Words())
			case ready:
				spec := t.spec
				spec.After = nil
				if lacks := errors.Join(queue.Unusable(&spec, from)...); lacks != nil {
					t.outcome, t.detail = job.Launch, lacks.Error()
				}
			}
			if t.ended() {
				tell(t)
				changed = true
			}
		}
	}
}

// tally is the jobs by what became of them.
type tally struct {
	ok, failed, cancelled, left int
	outcomes                    map[job.Outcome]int // of those that did not end well
	status                      int                 // the exit status
}

func (l *jobList) tally() tally {
	sum := tally{outcomes: map[job.Outcome]int{}}
	for _, t := range l.all {
		switch {
		case !t.ended() && t.in == 0 && !t.inFile: // its line is gone
		case !t.ended():
			sum.left++
		case t.outcome == job.OK:
			sum.ok++
		case t.outcome.State() == job.Cancelled:
			sum.cancelled++
		default:
			sum.failed++
		}
		if t.ended() && t.outcome.Status() > 0 {
			sum.outcomes[t.outcome]++
			sum.status = max(sum.status, t.outcome.StatusWith(t.code))
		}
	}
	return sum
}

// possible returns what of a line cannot be kept.
func possible(s *job.Spec) error {
	switch {
	case s.To == job.ToSlurm:
		return errors.New("to= is not possible")
	case s.Slurm != "":
		return errors.New("slurm= is not possible")
	case s.Snapshot.Tree != "":
		return errors.New("snapshot= is not possible")
	case s.Group != "":
		return errors.New("group= is not possible")
	}
	return nil
}

// over reports which lines have a job that has ended: it needs no place any more.
func (l *jobList) over(lines []*jobfile.Line) func(i int) bool {
	return func(i int) bool {
		t := l.byKey[lines[i].Key]
		return t != nil && t.ended()
	}
}

// warning is how long before its end an allocation is told: its jobs have their
// grace period to end.
func (l *jobList) warning() time.Duration {
	grace := 10 * time.Second
	for _, t := range l.all {
		grace = max(grace, t.spec.Grace)
	}
	return grace + 50*time.Second
}
