package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// folded is a page as rows: ids, and jobs files with their counts.
func folded(t *testing.T, page api.JobPage, err error) (rows []string) {
	t.Helper()
	testkit.Must(t, err)
	seen := map[job.Batch]bool{}
	for _, v := range page.Jobs {
		at := -1
		if v.Batch != nil {
			at = slices.IndexFunc(page.Batches, func(b api.BatchSum) bool { return b.File == *v.Batch && b.User == v.User })
		}
		if at < 0 {
			rows = append(rows, v.ID)
			continue
		}
		b := page.Batches[at]
		if of := (job.Batch{User: b.User, File: b.File}); !seen[of] {
			seen[of] = true
			rows = append(rows, fmt.Sprintf("%s(%v)", filepath.Base(b.File), b.Tasks))
		}
	}
	return rows
}

// TestTheLinesOfAFileAreOneRow: unless they are all there is to list, and few.
func TestTheLinesOfAFileAreOneRow(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	file := func(n int) api.SubmitRequest {
		specs := []api.Spec{sh("true # first", "gpus", "0"), sh(line, "ids", "0")}
		for i := range n - 2 {
			specs = append(specs, sh(fmt.Sprintf("true # %d", i), "ids", "0"))
		}
		return l.sent("", specs...)
	}
	l.became(file(4))
	l.finished("1")
	l.untilState("2", job.Running)
	check := func(what string, q api.Query, want ...string) {
		t.Helper()
		for _, queue := range []bool{true, false} {
			q.Batches, q.Queue = true, queue
			page, err := api.Call(l.ctx, l.Client, api.ListJobs, q)
			if got := folded(t, page, err); !slices.Equal(got, want) {
				t.Errorf("%s (queue %v): %v, want %v", what, queue, got, want)
			}
		}
	}
	check("a file alone", api.Query{}, "2", "3", "4")
	other := l.one(sh("true", "ids", "0"))
	check("a file and a job", api.Query{}, "jobs.txt(1 running, 2 queued, 1 finished)", other)
	check("only waiting ones", api.Query{Select: api.Select{States: []string{"queued"}}}, "jobs.txt(2 queued)", other)
	single := l.sent("", sh("true # one", "ids", "0"))
	single.Batch.File = "/w/one.txt"
	l.became(single)
	check("a file with one line", api.Query{}, "jobs.txt(1 running, 2 queued, 1 finished)", other, "6")
	if page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Queue: true}); err != nil || len(page.Jobs) != 5 || page.Batches != nil {
		t.Errorf("not asked for: %+v, %v", page, err)
	}
	l.act(api.ActCancel, other, "6")
	l.became(file(fewLines + 2)) // one has ended, so more than a few are left
	check("a long file alone", api.Query{}, "jobs.txt(1 running, 20 queued, 1 finished)")

	sums, err := api.Call(l.ctx, l.Client, api.ListBatches, api.BatchQuery{File: "/w/jobs.txt"})
	if err != nil || len(sums) != 1 || sums[0].String() != "1 running, 20 queued, 1 finished" || sums[0].Reason == "" || sums[0].User == "" {
		t.Errorf("the file: %+v, %v", sums, err)
	}
	l.one(sh("true", "ids", "0", "array", "0-2"))
	sums, err = api.Call(l.ctx, l.Client, api.ListBatches, api.BatchQuery{})
	if err != nil || len(sums) != 2 || sums[0].File != "/w/jobs.txt" || sums[1].Array == "" || sums[1].User == "" || sums[1].String() != "3 queued" {
		t.Errorf("all: %+v, %v", sums, err)
	}
	open()
	l.until("all have ended", func() bool { return l.count(job.Queued)+l.count(job.Running) == 0 })
	over := api.Query{Select: api.Select{States: []string{"finished"}}, Over: true, Queue: true, Batches: true, Arrays: true}
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, over)
	if rows := folded(t, page, err); len(rows) != 2 || !slices.Contains(rows, "jobs.txt(22 finished)") {
		t.Errorf("the history: %v", rows)
	}
	for file, want := range map[string]int{"/w/jobs.txt": 1, "/w/none.txt": 0} {
		if sums, err = api.Call(l.ctx, l.Client, api.ListBatches, api.BatchQuery{File: file}); err != nil || len(sums) != want {
			t.Errorf("%s has ended: %+v, %v", file, sums, err)
		}
	}
}

// TestTheLinesOfOthersAreListedOneByOne: which file they are in is hidden with their
// commands.
func TestTheLinesOfOthersAreListedOneByOne(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	ann, bob := l.as("daemon"), l.as("nobody")
	hidden := sh("true", "hold", "yes")
	r := l.sent("", hidden, hidden)
	r.Dir = "/"
	_, err := l.d.submits.Submit(l.ctx, ann.Caller, r)
	testkit.Must(t, err)
	own := bob.submit(hidden)[0]
	for _, row := range []struct {
		who  person
		want []string
		sums int
	}{{ann, []string{"jobs.txt(2 queued)", own}, 1}, {bob, []string{"1", "2", own}, 0}} {
		page, err := l.page(l.ctx, row.who.Caller, api.Query{Queue: true, Batches: true})
		if got := folded(t, page, err); !slices.Equal(got, row.want) {
			t.Errorf("%s sees %v, want %v", row.who.Name, got, row.want)
		}
		sums, err := l.d.jobs.Batches(l.ctx, row.who.Caller, api.BatchQuery{User: everyone, File: "/w/jobs.txt"})
		if err != nil || len(sums) != row.sums {
			t.Errorf("%s is told %+v, %v", row.who.Name, sums, err)
		}
	}
}

// TestWhenAFileIsExpectedToBeDone: only if that is known of all its lines.
func TestWhenAFileIsExpectedToBeDone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, seconds := range []string{"0.1", "0.2", "0.1"} {
		l.finished(l.one(sh("sleep "+seconds, "gpus", "2")))
	}
	l.became(l.sent("", sh("sleep 3000", "gpus", "2", "timeout", "4h"), sh("sleep 3001", "gpus", "2"), sh("sleep 3002", "gpus", "2")))
	l.untilState("4", job.Running)
	sum := func() api.BatchSum {
		sums, err := api.Call(l.ctx, l.Client, api.ListBatches, api.BatchQuery{File: "/w/jobs.txt"})
		if err != nil || len(sums) != 1 {
			t.Fatalf("%+v, %v", sums, err)
		}
		return sums[0]
	}
	l.until("its end is expected", func() bool { return sum().DoneAt != nil })
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Queue: true, Reasons: true, Batches: true})
	testkit.Must(t, err)
	if len(page.Batches) != 0 {
		t.Errorf("a short list has %+v", page.Batches)
	}
	l.act(api.ActHold, "6")
	l.until("one is held", func() bool { return sum().DoneAt == nil })
	l.act(api.ActRelease, "6")
	l.until("none is held", func() bool { return sum().DoneAt != nil })
	l.one(sh("x", "ids", "0"))
	page, err = api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Queue: true, Reasons: true, Batches: true})
	testkit.Must(t, err)
	if len(page.Batches) != 1 || page.Batches[0].DoneAt == nil {
		t.Errorf("a list with other jobs has %+v", page.Batches)
	}
	if page, err = api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Queue: true, Batches: true}); err != nil || page.Batches[0].DoneAt != nil {
		t.Errorf("without reasons: %+v, %v", page.Batches, err)
	}
}
