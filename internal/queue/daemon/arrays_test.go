package daemon

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/store"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// rows is a page in the order of the queue: ids, arrays with their counts.
func (l *lab) rows(q api.Query) (rows []string, page api.JobPage) {
	l.t.Helper()
	q.Queue, q.Arrays = true, true
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, q)
	if err != nil {
		l.t.Fatalf("%+v: %v", q, err)
	}
	for _, v := range page.Jobs {
		array, _, _ := strings.Cut(v.ID, "_")
		if tasks, folded := page.Arrays[array]; folded {
			rows = append(rows, fmt.Sprintf("%s(%v)", array, tasks))
		} else {
			rows = append(rows, v.ID)
		}
	}
	return rows, page
}

// TestTheQueueIsListedInOrder: running, then as they come up, then what is behind
// a gate, then what ended, the latest first; an array is one row.
func TestTheQueueIsListedInOrder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	gone := l.submit(sh("true", "hold", "yes"), sh("true", "hold", "yes"))
	l.act(api.ActCancel, gone[1])
	l.act(api.ActCancel, gone[0])
	first := l.one(sh(line, "ids", "0"))
	l.untilState(first, job.Running)
	held := l.one(sh("x", "hold", "yes"))
	waits := l.one(sh("x", "after", first))
	low := l.one(sh("x", "ids", "0"))
	array := l.one(sh(line, "ids", "1", "array", "0-3"))
	l.until("a task runs", func() bool { return l.count(job.Running) == 2 })
	high := l.one(sh("x", "ids", "0", "priority", "3"))
	l.act(api.ActCancel, array+"_3")

	sum := array + "(1 running, 2 queued, 1 cancelled)"
	live := []string{first, sum, high, low, held, waits}
	all := append(slices.Clone(live), gone[0], gone[1])
	for _, row := range []struct {
		q    api.Query
		want []string
	}{
		{api.Query{}, live},
		{api.Query{Over: true}, all},
		{api.Query{Select: api.Select{States: []string{"queued"}}}, []string{high, low, array + "(2 queued)", held, waits}},
		{api.Query{Select: api.Select{States: []string{"held"}}}, []string{held}},
		{api.Query{Select: api.Select{States: []string{"cancelled"}}}, []string{array + "(1 cancelled)", gone[0], gone[1]}},
		{api.Query{Select: api.Select{Words: []string{held, low, gone[1]}}}, []string{low, held, gone[1]}},
		{api.Query{Select: api.Select{User: "nobody"}}, nil},
	} {
		for limit := range len(row.want) + 2 {
			row.q.Limit = limit
			want := row.want
			if limit > 0 {
				want = want[:min(limit, len(want))]
			}
			got, page := l.rows(row.q)
			if !slices.Equal(got, want) || page.Next != "" {
				t.Errorf("%+v: %v, want %v; next %q", row.q, got, want, page.Next)
			}
		}
	}
	_, page := l.rows(api.Query{Limit: 1, Over: true})
	if want := map[string]int{"running": 2, "queued": 6, "cancelled": 3}; !maps.Equal(page.Matching, want) {
		t.Errorf("matching: %v, want %v", page.Matching, want)
	}
	since := time.Now()
	l.act(api.ActCancel, array+"_2")
	got, page := l.rows(api.Query{Over: true, Since: &since})
	if want := []string{array + "(1 running, 1 queued, 1 cancelled)"}; !slices.Equal(got, want) || !maps.Equal(page.Matching, map[string]int{"cancelled": 1}) {
		t.Errorf("ended since: %v, want %v; matching %v", got, want, page.Matching)
	}
	for _, q := range []api.Query{{Newest: true}, {After: "1.0.0"}} {
		q.Queue = true
		_, err := api.Call(l.ctx, l.Client, api.ListJobs, q)
		wantProblem(t, err, problem.Invalid, "queue does not go with")
	}
	open()
}

// TestALongQueueIsFollowedOnlySoFar: behind that, jobs are chosen by submission,
// and each once.
func TestALongQueueIsFollowedOnlySoFar(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	l.untilState(l.one(sh(line, "gpus", "2")), job.Running)
	l.submit(sh("x", "gpus", "2"), sh("x", "gpus", "2", "array", "0-2"), sh("x", "gpus", "2", "priority", "1"), sh("x", "gpus", "2", "priority", "2"))
	for walk, want := range map[int]string{1: "1 2 3_0 6 7", 2: "1 7 2 3_0 6", 3: "1 7 6 2 3_0", 0: "1 7 6 2 3_0"} {
		for limit := 1; limit <= 6; limit++ {
			q := liveQuery{ch: &choice{}, limit: limit, queue: true, folds: folding{arrays: true}, walk: walk}
			testkit.Must(t, l.d.find.live(l.ctx, &q))
			var ids []string
			for i := range q.found {
				ids = append(ids, q.found[i].ID)
			}
			first := strings.Fields(want)
			if first = first[:min(limit, len(first))]; !slices.Equal(ids, first) || q.total != 7 {
				t.Errorf("followed for %d, the first %d: %v of %d, want %v of 7", walk, limit, ids, q.total, first)
			}
		}
	}
	open()
}

// TestALongHistoryOfOneArrayIsOneRow: ended jobs behind it are found.
func TestALongHistoryOfOneArrayIsOneRow(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	now := time.Now()
	ended := func(id string, seq int64, at time.Time) *job.Job {
		return &job.Job{ID: id, Seq: seq, User: "ann", State: job.Finished, Outcome: job.OK, SubmittedAt: now, Attempt: job.Attempt{Number: 1, StartedAt: at, EndedAt: at}}
	}
	rows := []*job.Job{ended("900", 900, now.Add(-2*time.Hour)), ended("901", 901, now.Add(time.Hour))}
	for i := range int64(1200) {
		rows = append(rows, ended(fmt.Sprintf("1000_%d", i), 1000+i, now.Add(-time.Duration(i)*time.Second)))
	}
	testkit.Must(t, l.d.svc.queue.Store.Commit(store.Tx{Put: rows}))
	got, page := l.rows(api.Query{Over: true, Limit: 10})
	if want := []string{"901", "1000(1,200 finished)", "900"}; !slices.Equal(got, want) || page.Matching["finished"] != 1202 {
		t.Errorf("%v of %v, want %v", got, page.Matching, want)
	}
}

// TestTheRowOfAnArraySaysWhyItsOwnTasksWait, not why the job behind them does.
func TestTheRowOfAnArraySaysWhyItsOwnTasksWait(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, _ := l.gate("gate")
	array := l.one(sh(line, "gpus", "0", "array", "1-4%2"))
	l.one(sh("true", "hold", "true"))
	l.until("two tasks run", func() bool { return l.count(job.Running) == 2 })
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Queue: true, Arrays: true, Reasons: true})
	if err != nil || !strings.Contains(page.Arrays[array].Reason, "already has 2 tasks running") {
		t.Errorf("%+v, %v", page.Arrays, err)
	}
}

// TestAnArrayIsSummedUp by show and why.
func TestAnArrayIsSummedUp(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	array := l.one(sh("test $BERTH_ARRAY_INDEX != 1 || exit 3; "+line, "gpus", "1", "array", "1-5%2", "name", "sweep"))
	l.untilState(array+"_1", job.Failed)
	l.until("two tasks run", func() bool { return l.count(job.Running) == 2 })
	d, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: "sweep"})
	if err != nil {
		t.Fatal(err)
	}
	if d.ID != array || d.State != job.Running || d.Tasks == nil || d.Tasks.String() != "2 running, 2 queued, 1 failed" || d.Tasks.Limit != 2 || d.Attempt != 0 {
		t.Fatalf("%+v, %+v", d.View, d.Tasks)
	}
	var ids []string
	for _, v := range append(d.Tasks.Failed, d.Tasks.Unfinished...) {
		ids = append(ids, v.ID)
	}
	if got, want := strings.Join(ids, " "), fmt.Sprintf("%s_1 %[1]s_2 %[1]s_3 %[1]s_4 %[1]s_5", array); got != want {
		t.Errorf("tasks %s, want %s", got, want)
	}
	if !strings.Contains(d.Tasks.Reason, "already has 2 tasks running") {
		t.Errorf("its tasks wait because %q", d.Tasks.Reason)
	}
	why, err := api.Call(l.ctx, l.Client, api.GetWhy, api.JobID{ID: array})
	if err != nil || why.ID != array+"_4" || why.State != "queued" {
		t.Errorf("why %s (%s): %v", why.ID, why.State, err)
	}
	for _, want := range []string{"array " + array + ": 2 running, 2 queued, 1 failed", "2 tasks may start only when another has ended: at most 2 run at a time (%2)"} {
		if !slices.Contains(why.Notes, want) {
			t.Errorf("notes %q, want %q", why.Notes, want)
		}
	}
	open()
	l.until("all have ended", func() bool { return l.count(job.Queued)+l.count(job.Running) == 0 })
	if d, err = api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: array}); err != nil || d.State != job.Failed || d.EndedAt == nil || d.Tasks.GPUHours <= 0 || len(d.Tasks.Unfinished) != 0 {
		t.Errorf("in the end %+v, %+v, %v", d.View, d.Tasks, err)
	}
	if why, err = api.Call(l.ctx, l.Client, api.GetWhy, api.JobID{ID: array}); err != nil || why.ID != array+"_1" || !strings.Contains(why.Text, "exit code 3") {
		t.Errorf("why it failed: %s %q, %v", why.ID, why.Text, err)
	}
}

// TestTheTimeForWhichATaskWasParkedDoesNotCount: neither as GPU time nor towards
// its expected end.
func TestTheTimeForWhichATaskWasParkedDoesNotCount(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	now := time.Now()
	// It ran for an hour, was parked for two, and came back half an hour ago.
	j := job.Job{ID: "7_0", State: job.Running, Spec: job.Spec{GPUs: 1}}
	j.StartedAt, j.Grant.GPUs = now.Add(-210*time.Minute), []int{0}
	j.Parking = job.Parking{Times: 1, Served: time.Hour, Since: now.Add(-150 * time.Minute), Resumed: now.Add(-30 * time.Minute)}
	d, err := l.d.jobs.array(l.ctx, api.Caller{Name: "root", Admin: true}, []job.Job{j})
	if err != nil || math.Abs(d.Tasks.GPUHours-1.5) > 0.01 {
		t.Errorf("%v GPU-hours, want 1.5, %v", d.Tasks.GPUHours, err)
	}
	g := estimates{run: &api.RunGuess{LowS: 7200, MidS: 7200, HighS: 7200, Runs: 3}}
	if end := g.end(now, &j); end == nil || end.High.Sub(now).Round(time.Minute) != 30*time.Minute {
		t.Errorf("it is expected to end %+v, in half an hour", end)
	}
}
