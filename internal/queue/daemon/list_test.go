package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// pages reads a listing page by page and calls between after each.
func (l *lab) pages(q api.Query, between func()) (ids []string, last api.JobPage) {
	l.t.Helper()
	for range 10_000 {
		page, err := api.Call(l.ctx, l.Client, api.ListJobs, q)
		if err != nil {
			l.t.Fatalf("%+v: %v", q, err)
		}
		if len(page.Jobs) > q.Limit {
			l.t.Fatalf("a page of %d, %d were asked for", len(page.Jobs), q.Limit)
		}
		for _, v := range page.Jobs {
			ids = append(ids, v.ID)
		}
		if page.Next == "" {
			return ids, page
		}
		q.After = page.Next
		between()
	}
	l.t.Fatal("the pages do not end")
	return nil, api.JobPage{}
}

// page is a page as its caller reads it.
func (l *lab) page(ctx context.Context, c api.Caller, q api.Query) (page api.JobPage, err error) {
	reply, err := l.d.jobs.Jobs(ctx, c, q)
	if err == nil {
		var sent []byte
		sent, err = json.Marshal(reply)
		err = errors.Join(err, json.Unmarshal(sent, &page))
	}
	return page, err
}

// TestPagesAreWhole: however many are on a page, in either order, while jobs
// end and come: each job that was there from the first page to the last is
// shown, and none twice.
func TestPagesAreWhole(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for seed := range uint64(12) {
		if t.Failed() {
			return
		}
		checkPages(l, seed)
	}
}

func checkPages(l *lab, seed uint64) {
	l.t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	held := sh("true", "hold", "yes")
	l.actOn(api.ActCancel, api.Select{All: true})
	ids := l.submit(slices.Repeat([]api.Spec{held}, 20)...)
	array := l.one(sh("true", "hold", "yes", "array", "0-3"))
	ids = append(ids, strings.Fields(l.list(api.Query{Select: api.Select{Words: []string{array}}}))...)
	for range rng.IntN(10) {
		l.act(api.ActCancel, ids[rng.IntN(len(ids))])
	}
	q := api.Query{Over: true, Newest: seed%2 == 0, Limit: 1 + rng.IntN(9)}
	if seed%3 > 0 {
		q.Words = []string{ids[0] + "-999999"}
	} else {
		q.Limit += 20 // the pages of everything before are many
	}
	var came []string
	got, last := l.pages(q, func() {
		switch rng.IntN(3) {
		case 0:
			l.act(api.ActCancel, ids[rng.IntN(len(ids))])
		case 1:
			came = append(came, l.one(held))
		}
	})
	seen := map[string]int{}
	for _, id := range got {
		seen[id]++
	}
	for _, id := range ids {
		if seen[id] != 1 {
			l.t.Errorf("seed %d, %+v: job %s was shown %d times in %v", seed, q, id, seen[id], got)
		}
	}
	for _, id := range came {
		if seen[id] > 1 {
			l.t.Errorf("seed %d, %+v: job %s, which came meanwhile, was shown %d times", seed, q, id, seen[id])
		}
	}
	if q.Words != nil && last.Total != len(ids)+len(came) {
		l.t.Errorf("seed %d, %+v: %d in all, want %d and %d", seed, q, last.Total, len(ids), len(came))
	}
}

func TestTheOrderOfLists(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ids := l.submit(slices.Repeat([]api.Spec{sh("true", "hold", "yes")}, 6)...)
	for _, id := range []string{"4", "1", "3"} {
		l.act(api.ActCancel, id)
	}
	for _, row := range []struct {
		q    api.Query
		want string
	}{
		{api.Query{}, "2 5 6"},
		{api.Query{Over: true}, "1 2 3 4 5 6"},
		{api.Query{Newest: true}, "6 5 2"},
		{api.Query{Newest: true, Over: true}, "6 5 2 3 1 4"},
		{api.Query{Newest: true, Over: true, Limit: 4}, "6 5 2 3"},
		{api.Query{Newest: true, Over: true, Select: api.Select{States: []string{"finished", "failed", "cancelled"}}}, "3 1 4"},
	} {
		if got := l.list(row.q); got != row.want {
			t.Errorf("%+v: %s, want %s", row.q, got, row.want)
		}
		if row.q.Limit > 0 {
			continue
		}
		for limit := 1; limit < 5; limit++ {
			row.q.Limit = limit
			if got, _ := l.pages(row.q, func() {}); strings.Join(got, " ") != row.want {
				t.Errorf("%+v: %v, want %s", row.q, got, row.want)
			}
		}
	}
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Over: true, Limit: 2})
	if err != nil || page.Total != len(ids) || page.Counts["queued"] != 3 || page.Counts["cancelled"] != 3 {
		t.Errorf("%d in all, counts %v, %v", page.Total, page.Counts, err)
	}
	for _, cursor := range []string{"x", "1", "1.2", "1.2.3.4", "1.2.x", "1.2.3 "} {
		_, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{After: cursor})
		wantProblem(t, err, problem.Invalid, "cursor")
	}
}

func TestSinceIsWhatEndedAfter(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.submit(slices.Repeat([]api.Spec{sh("true", "hold", "yes")}, 4)...)
	l.act(api.ActCancel, "1")
	since := time.Now()
	l.act(api.ActCancel, "3")
	l.act(api.ActCancel, "2")
	const want = "2 3" // by number, and by end
	for _, newest := range []bool{false, true} {
		for limit := 1; limit < 4; limit++ {
			got, last := l.pages(api.Query{Over: true, Since: &since, Newest: newest, Limit: limit}, func() {})
			if strings.Join(got, " ") != want || last.Total != 2 {
				t.Errorf("newest %v, %d at a time: %v of %d, want %s", newest, limit, got, last.Total, want)
			}
		}
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.Limits.Default.Jobs = 3 }))
	line, _ := l.gate("gate")
	busy := l.one(sh(line, "gpus", "1", "ids", "0"))
	l.untilState(busy, job.Running)
	if _, err := api.Call(l.ctx, l.Client, api.PauseGPU, api.GPUIndex{Index: 1}); err != nil {
		t.Fatal(err)
	}
	array := l.one(sh(line, "gpus", "0", "array", "0-3%1"))
	l.until("a task runs", func() bool { return l.count(job.Running) == 2 })
	held := l.one(sh("x", "hold", "yes"))
	l.wantReasons(map[string]string{
		held:                                      "held",
		l.one(sh("x", "begin", "now+1h")):         "not before",
		l.one(sh("x", "after", busy)):             "waits for job " + busy + " (running)",
		array + "_3":                              "array " + array + " already has 1 task running",
		l.one(sh("x", "vram", "8G")):              "paused",
		l.one(sh("x", "ids", "0")):                "gpu0 runs job " + busy,
		l.one(sh("x", "gpus", "2")):               "needs 2 idle GPUs",
		l.one(sh("x", "gpus", "0.5", "ids", "0")): "gpu0 runs job " + busy,
	})
	third := l.one(sh(line, "gpus", "0"))
	l.untilState(third, job.Running)
	l.wantReasons(map[string]string{l.one(sh("x", "gpus", "0")): "the limit per user is 3"})
	if why, err := api.Call(l.ctx, l.Client, api.GetWhy, api.JobID{ID: busy}); err != nil || !strings.Contains(why.Text, "running on GPU 0") {
		t.Errorf("why it runs: %q, %v", why.Text, err)
	}
	l.act(api.ActCancel, held)
	if why, err := api.Call(l.ctx, l.Client, api.GetWhy, api.JobID{ID: held}); err != nil || !strings.Contains(why.Text, "was cancelled") {
		t.Errorf("why it is over: %q, %v", why.Text, err)
	}
}

// wantReasons holds what jobs are said to wait for against a part of it, in
// the list, in the detail and in the answer to why.
func (l *lab) wantReasons(want map[string]string) {
	l.t.Helper()
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Reasons: true})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, v := range page.Jobs {
		text, asked := want[v.ID]
		if !asked {
			continue
		}
		why, err := api.Call(l.ctx, l.Client, api.GetWhy, api.JobID{ID: v.ID})
		if err != nil {
			l.t.Fatal(err)
		}
		for _, got := range []string{value(v.Reason), value(l.job(v.ID).Reason), why.Text} {
			if !strings.Contains(got, text) {
				l.t.Errorf("job %s waits because %q, want %q", v.ID, got, text)
			}
		}
		delete(want, v.ID)
	}
	if len(want) > 0 {
		l.t.Errorf("not listed: %v", want)
	}
}

func TestPositions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, _ := l.gate("gate")
	busy := l.one(sh(line, "gpus", "2"))
	l.untilState(busy, job.Running)
	a, b := l.one(sh("x", "gpus", "2")), l.one(sh("x", "gpus", "2", "priority", "3"))
	held := l.one(sh("x", "hold", "yes"))
	for id, want := range map[string]int{busy: 0, a: 2, b: 1, held: 0} {
		why, err := api.Call(l.ctx, l.Client, api.GetWhy, api.JobID{ID: id})
		if err != nil || why.Position != want || l.job(id).Position != want {
			t.Errorf("job %s stands at %d and %d, want %d; %v", id, why.Position, l.job(id).Position, want, err)
		}
	}
	if why, err := api.Call(l.ctx, l.Client, api.GetWhy, api.JobID{ID: a}); err != nil || why.Queued != 3 {
		t.Errorf("%d are queued, %v", why.Queued, err)
	}
}

// TestAJobIsNeverOutOfSight: asked for by id, range or array while it starts
// and ends, it is there every time.
func TestAJobIsNeverOutOfSight(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	array := l.one(sh("true", "gpus", "0", "array", "0-30"))
	forms := []api.Select{{Words: []string{array + "_7"}}, {Words: []string{array + "_7-7"}}, {Words: []string{array}, Name: "job" + array + "_7"}}
	for i := 0; ; i++ {
		page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Select: forms[i%3], Over: true, Newest: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Jobs) != 1 {
			t.Fatalf("%+v: %d jobs", forms[i%3], len(page.Jobs))
		}
		if page.Jobs[0].State.Terminal() && l.count(job.Queued)+l.count(job.Running) == 0 {
			break
		}
	}
	if n := len(strings.Fields(l.list(api.Query{Over: true}))); n != 31 {
		t.Errorf("%d jobs in the end", n)
	}
}

// TestAnEndThatIsNotOnDiskYetIsSeen: between the loop's knowledge and the
// store's, a job is found in every way it can be asked for.
func TestAnEndThatIsNotOnDiskYetIsSeen(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	array := l.one(sh("true", "hold", "yes", "array", "0-1"))
	id := array + "_1"
	forms := []api.Select{
		{Words: []string{id}}, {Words: []string{array}}, {Words: []string{array + "_0-5"}}, {Words: []string{"1-9"}},
		{Name: "job" + id}, {}, {States: []string{"cancelled"}},
	}
	err := l.d.svc.Do(l.ctx, func(turn *engine.Turn) {
		turn.Requests().Cancel(id, "asked")
		for _, form := range forms {
			ch, err := l.d.find.chooseBy(l.ctx, api.Caller{Admin: true}, form, meaning{})
			if err != nil {
				t.Error(err)
			}
			q := liveQuery{ch: &ch, limit: 10, unwritten: true}
			q.choose(turn)
			q.copy(turn, q.chosen)
			if !slices.ContainsFunc(q.found, func(j job.Job) bool { return j.ID == id && j.State == job.Cancelled }) {
				t.Errorf("%+v: %d jobs, and not that one", form, len(q.found))
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestThePageTellsTheOrder in which jobs come up, once, on its last page; what
// is held has no place in it.
func TestThePageTellsTheOrder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, _ := l.gate("gate")
	l.untilState(l.one(sh(line, "ids", "0")), job.Running)
	l.submit(sh("true", "ids", "0"), sh("true", "hold", "yes"), sh("true", "ids", "0", "priority", "5"), sh("true", "ids", "0"))
	first, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Order: true, Limit: 2})
	if err != nil || first.Order != nil {
		t.Errorf("the first page: %v, %v", first.Order, err)
	}
	_, last := l.pages(api.Query{Order: true, Limit: 2}, func() {})
	if want := []string{"4", "2", "5"}; !slices.Equal(last.Order, want) {
		t.Errorf("they come up as %v, want %v", last.Order, want)
	}
	if _, last = l.pages(api.Query{Limit: 2}, func() {}); last.Order != nil {
		t.Errorf("unasked: %v", last.Order)
	}
}

// TestJobsThatEndWhileTheyAreListedAreInOrder: behind those that have not, the
// latest first.
func TestJobsThatEndWhileTheyAreListedAreInOrder(t *testing.T) {
	t.Parallel()
	now := time.Now()
	found := func(id string, state job.State, ago time.Duration) job.Job {
		j := job.Job{ID: id, State: state}
		if state.Terminal() {
			j.EndedAt = now.Add(-ago)
		}
		return j
	}
	l := &listing{ch: &choice{}, limit: 10, queue: true}
	live := &liveQuery{found: []job.Job{
		found("1", job.Finished, time.Minute), found("2", job.Running, 0), found("3", job.Failed, time.Second), found("4", job.Queued, 0), found("5", job.Cancelled, time.Hour),
	}}
	if err := l.readQueue(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, j := range l.page {
		ids = append(ids, j.ID)
	}
	if got := strings.Join(ids, " "); got != "2 4 3 1 5" {
		t.Errorf("listed %s", got)
	}
}

// TestAListKeepsOnlyWhatItSends: bytes that are allocated for each job of a long list,
// of which its JSON is about 630.
func TestAListKeepsOnlyWhatItSends(t *testing.T) {
	l := newLab(t)
	const jobs = 5000
	most := uint64(1300)
	if testkit.Race {
		most = 2000 // with what the detector allocates
	}
	l.submit(slices.Repeat([]api.Spec{sh("true", "hold", "yes")}, jobs)...)
	caller := api.Caller{Name: "root", Admin: true}
	fewest := uint64(math.MaxUint64)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		page, err := l.d.jobs.Jobs(l.ctx, caller, api.Query{Limit: jobs, Reasons: true})
		testkit.Must(t, err)
		runtime.ReadMemStats(&after)
		if page.Total != jobs {
			t.Fatalf("%d of %d jobs", page.Total, jobs)
		}
		fewest = min(fewest, (after.TotalAlloc-before.TotalAlloc)/jobs)
	}
	if fewest > most {
		t.Errorf("%d bytes for each job, at most %d are needed", fewest, most)
	}
	t.Log(fewest, "bytes for each job")
}
