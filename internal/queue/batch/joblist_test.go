package batch

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"berth/internal/job"
)

// model is the jobs that a queue has heard of, and what it should know of them.
type model struct {
	*jobList
	jobs   map[string]*job.Job
	before map[string]bool // ended before this run
	begun  map[string]bool
	file   []string // the ids of its lines
}

// tell lets an event happen.
func (m *model) tell(kind job.EventKind, j *job.Job) {
	m.follow(job.Event{At: at0, Kind: kind, Job: j.Clone()})
}

// some is a random job in one of the states, or nil.
func (m *model) some(t *rapid.T, states ...job.State) *job.Job {
	var ids []string
	for id, j := range m.jobs {
		if slices.Contains(states, j.State) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		return nil
	}
	return m.jobs[rapid.SampledFrom(ids).Draw(t, "job")]
}

// expected is the counts, the slow way.
func (m *model) expected() (counts tally, begun, status int) {
	for id, j := range m.jobs {
		inFile := slices.Contains(m.file, id)
		if inFile && m.begun[id] {
			begun++
		}
		if !inFile && m.before[id] {
			continue
		}
		counts.add(&entry{state: j.State, earlier: m.before[id]}, 1)
		if j.State.Terminal() {
			status = max(status, j.Outcome.Status())
		}
	}
	return counts, begun, status
}

// TestAQueueCountsTheJobsOfItsFile, whatever happens to them and in whichever order it
// hears of it.
func TestAQueueCountsTheJobsOfItsFile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{jobList: newJobList(), jobs: map[string]*job.Job{}, before: map[string]bool{}, begun: map[string]bool{}}
		rt.Repeat(map[string]func(*rapid.T){
			"add a line": func(rt *rapid.T) {
				j := &job.Job{ID: strconv.Itoa(len(m.begun) + 1), State: job.Queued}
				m.jobs[j.ID], m.begun[j.ID] = j, false
				if rapid.Bool().Draw(rt, "heard first") {
					m.tell(job.EventQueued, j)
				}
				m.file = append(m.file, j.ID)
				m.take(m.file)
			},
			"delete a line": func(rt *rapid.T) {
				if len(m.file) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.file)-1).Draw(rt, "line")
				j := m.jobs[m.file[i]]
				m.file = slices.Delete(m.file, i, i+1)
				m.take(m.file)
				if j.State == job.Queued {
					delete(m.jobs, j.ID)
					m.tell(job.EventDequeued, j)
				}
			},
			"start": func(rt *rapid.T) {
				if j := m.some(rt, job.Queued); j != nil {
					j.MustTo(job.Running)
					j.Attempt.Number++
					m.begun[j.ID] = true
					m.tell(job.EventStarted, j)
				}
			},
			"go back": func(rt *rapid.T) {
				if j := m.some(rt, job.Running); j != nil {
					j.MustTo(job.Queued)
					m.tell(job.EventRequeued, j)
				}
			},
			"end": func(rt *rapid.T) {
				if j := m.some(rt, job.Queued, job.Running); j != nil {
					j.Outcome = rapid.SampledFrom([]job.Outcome{job.OK, "exit:3", job.OOM, job.WasCancelled}).Draw(rt, "outcome")
					j.State = j.Outcome.State()
					m.tell(job.EventEnded, j)
				}
			},
			"again": func(rt *rapid.T) {
				if j := m.some(rt, job.Finished, job.Failed, job.Cancelled); j != nil {
					m.before[j.ID] = false
					j.State, j.Outcome = job.Queued, ""
					m.tell(job.EventRequeued, j)
				}
			},
			"another run": func(*rapid.T) {
				m.jobList = newJobList()
				for id, j := range m.jobs {
					m.before[id], m.begun[id] = j.State.Terminal(), j.Attempt.Number > 0
					m.remember(j.Clone())
				}
				m.take(m.file)
			},
			"": func(rt *rapid.T) {
				counts, begun, status := m.expected()
				if code, _ := m.status(); m.counts != counts || m.jobList.begun != begun || m.total != len(m.file) || code != status {
					rt.Fatalf("counted %+v, %d of %d begun, status %d; want %+v, %d of %d, %d", m.counts, m.jobList.begun, m.total, code, counts, begun, len(m.file), status)
				}
			},
		})
	})
}

// TestAnotherAttemptIsNotAnotherLine of the file that has begun. A job of an earlier
// run that runs again is one of this run.
func TestAnotherAttemptIsNotAnotherLine(t *testing.T) {
	t.Parallel()
	q, j := newJobList(), ended(started("1", "a"), "exit:3", 0)
	q.remember(j)
	q.take([]string{"1", "2"})
	if q.counts != (tally{failed: 1, queued: 1, earlier: 1}) || q.begun != 1 {
		t.Errorf("before: %+v, %d begun", q.counts, q.begun)
	}
	q.again("1")
	q.take([]string{"1", "2"})
	for range 2 {
		q.follow(job.Event{Kind: job.EventStarted, Job: started("1", "a")})
		q.follow(job.Event{Kind: job.EventRequeued, Job: &job.Job{ID: "1", State: job.Queued}})
	}
	if code, _ := q.status(); q.counts != (tally{queued: 2}) || q.begun != 1 || code != 0 {
		t.Errorf("again: %+v, %d begun, status %d", q.counts, q.begun, code)
	}
}

func TestTallyReadsAsASentence(t *testing.T) {
	t.Parallel()
	tests := []struct {
		tally tally
		want  string
	}{
		{tally{}, "0 ok"},
		{tally{ok: 3}, "3 ok"},
		{tally{ok: 1, failed: 2, cancelled: 3, running: 4, queued: 5}, "1 ok, 2 failed, 3 cancelled, 4 running, 5 queued"},
	}
	for _, test := range tests {
		if got := test.tally.String(); got != test.want {
			t.Errorf("%+v reads %q, want %q", test.tally, got, test.want)
		}
	}
}
