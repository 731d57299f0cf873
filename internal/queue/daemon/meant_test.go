package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func TestAJobThatIsNotMeantIsToldOf(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	running := l.one(sh(line, "gpus", "0", "name", "train"))
	held := l.one(sh("true", "hold", "yes"))
	queued := l.one(sh("true", "begin", "now+1h"))
	done := l.one(sh("true", "gpus", "0"))
	tasks := l.one(sh(line, "gpus", "0", "array", "0"))
	l.untilState(running, job.Running)
	l.untilState(tasks+"_0", job.Running)
	l.finished(done)
	for _, row := range []struct {
		action string
		sel    api.Select
		want   string
	}{
		{api.ActCancel, api.Select{Words: []string{running}, States: []string{"queued"}}, running + ":not it is running"},
		{api.ActCancel, api.Select{Words: []string{held}, States: []string{"running"}}, held + ":not it is queued"},
		{api.ActCancel, api.Select{Words: []string{done}, States: []string{"running"}}, done + ":not it is finished"},
		{api.ActCancel, api.Select{Words: []string{running}, Name: "eval"}, running + ":not it is named train"},
		{api.ActCancel, api.Select{Words: []string{running}, User: "nobody-else"}, running + ":not it belongs to " + l.job(running).User},
		{api.ActRelease, api.Select{Words: []string{queued}, States: []string{"held"}}, queued + ":not it is not held"},
		{api.ActCancel, api.Select{Words: []string{tasks}, States: []string{"queued"}}, tasks + ":not none of its tasks is selected: " + tasks + "_0 is running"},
		{api.ActCancel, api.Select{Words: []string{tasks + "_0", "99"}, States: []string{"queued"}}, tasks + "_0:not it is running, 99:not there is no such job"},
		{api.ActCancel, api.Select{Words: []string{running, held}, States: []string{"queued"}}, held + ":done, " + running + ":not it is running"},
	} {
		if got := did(l.actOn(row.action, row.sel)); got != row.want {
			t.Errorf("%s %+v: %s, want %s", row.action, row.sel, got, row.want)
		}
	}
	_, err := api.Call(l.ctx, l.Client, api.WaitForJobs, api.WaitRequest{Select: api.Select{Words: []string{done}, States: []string{"running"}}})
	wantProblem(t, err, problem.Refused, "job "+done+" is not selected: it is finished")
	_, err = api.Call(l.ctx, l.Client, api.WaitForJobs, api.WaitRequest{Select: api.Select{Words: []string{"99"}, States: []string{"running"}}})
	wantProblem(t, err, problem.NotFound, "no job 99")
	open()
}

// TestANameMeansWhatIsOverToo: and a state what is in it, but "all" only what
// is not over.
func TestANameMeansWhatIsOverToo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	failed := l.one(sh("exit 3", "gpus", "0", "name", "sweep"))
	l.end(failed)
	running := l.one(sh(line, "gpus", "0", "name", "sweep"))
	other := l.one(sh("true", "gpus", "0"))
	l.finished(other)
	const atOnce = 0.001
	waited := func(sel api.Select) string {
		t.Helper()
		reply, err := api.Call(l.ctx, l.Client, api.WaitForJobs, api.WaitRequest{Select: sel, TimeoutS: atOnce})
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, v := range reply.Jobs {
			words = append(words, v.ID)
		}
		slices.Sort(words)
		if reply.Done {
			words = append(words, "done")
		}
		return strings.Join(words, " ")
	}
	l.untilState(running, job.Running)
	for _, row := range []struct {
		sel  api.Select
		want string
	}{
		{api.Select{Name: "sweep"}, failed + " " + running},
		{api.Select{Name: "sweep", All: true}, failed + " " + running},
		{api.Select{Name: "sweep", States: []string{"queued", "running"}}, running},
		{api.Select{Name: "sweep", States: []string{"failed"}}, failed + " done"},
		{api.Select{States: []string{"finished"}}, other + " done"},
		{api.Select{Name: "nothing"}, "done"},
		{api.Select{All: true}, running},
	} {
		if got := waited(row.sel); got != row.want {
			t.Errorf("%+v: %q, want %q", row.sel, got, row.want)
		}
	}
	open()
	l.finished(running)
	if got, want := waited(api.Select{Name: "sweep"}), failed+" "+running+" done"; got != want {
		t.Errorf("when all are over: %q, want %q", got, want)
	}
	if got := waited(api.Select{All: true}); got != "done" {
		t.Errorf("all, when all are over: %q", got)
	}
}

// TestCountsAgreeWithWhatIsListed: a job that ends while it is listed stands in
// the table as it is counted below.
func TestCountsAgreeWithWhatIsListed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.d.find.slice = 7 // so that much happens while it is listed
	specs := make([]api.Spec, 60)
	for i := range specs {
		specs[i] = sh("true", "gpus", "0")
	}
	l.submit(specs...)
	deadline := time.Now().Add(testkit.Patience)
	for n := 0; ; n++ {
		page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Over: n%3 != 0, Newest: n%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string]int{}
		for _, v := range page.Jobs {
			rows[string(v.State)]++
		}
		for _, state := range []string{"queued", "running"} {
			if rows[state] != page.Counts[state] {
				t.Fatalf("%d rows are %s, and %d are counted", rows[state], state, page.Counts[state])
			}
		}
		if page.Counts["queued"]+page.Counts["running"] == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the jobs do not end")
		}
	}
}
