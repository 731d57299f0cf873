package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/sweep"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func axis(name string, values ...string) sweep.Axis {
	a := sweep.Axis{Names: []string{name}}
	for _, v := range values {
		a.Rows = append(a.Rows, []string{v})
	}
	return a
}

// swept is a spec with a sweep.
func swept(spec api.Spec, metrics []string, axes ...sweep.Axis) api.Spec {
	spec.Sweep = &api.Sweep{Axes: axes, Metrics: metrics}
	return spec
}

// results is a row of words for each trial: its id, its parameters, its state and its
// metrics.
func (l *lab) results(q api.TrialQuery) (rows []string, table api.TrialTable) {
	l.t.Helper()
	table, err := api.Call(l.ctx, l.Client, api.ListTrials, q)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, row := range table.Trials {
		words := []string{row.ID}
		for _, name := range table.Params {
			words = append(words, row.Params[name])
		}
		words = append(words, string(row.State))
		for _, m := range table.Metrics {
			words = append(words, fmt.Sprint(row.Metrics[m.Name]))
		}
		rows = append(rows, strings.Join(words, " "))
	}
	return rows, table
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestASweep(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	marks := filepath.Join(l.dir(), "marks")
	spec := swept(sh("echo \"acc=0.{lr}\"; echo acc=0.{seed}; printf '%s;' '{lr} {seed} '\"$S\" >>"+marks, "gpus", "0", "name", "lr{lr}", "env.S", "s{seed}", "max", "1"),
		[]string{"max:acc"}, axis("lr", "1", "2"), axis("seed", "5", "it's"))
	reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{spec}, Dir: l.dir()})
	testkit.Must(t, err)
	if got := reply.Jobs[0]; got.ID != "1" || got.Tasks != 4 || got.Name != "lr{lr}" {
		t.Errorf("the reply: %+v", got)
	}
	for i := range 4 {
		l.finished(fmt.Sprintf("1_%d", i))
	}
	if got, want := testkit.Read(t, marks), "1 5 s5;1 it's sit's;2 5 s5;2 it's sit's;"; got != want {
		t.Errorf("ran %s, want %s", got, want)
	}
	got, table := l.results(api.TrialQuery{ID: "lr{lr}"})
	equal(t, got, "1_0 1 5 finished 0.5", "1_1 1 it's finished 0.1", "1_2 2 5 finished 0.5", "1_3 2 it's finished 0.2")
	if table.ID != "1" || table.Counts["finished"] != 4 || !strings.Contains(table.Command, "{lr} {seed}") || *table.Trials[0].Seconds < 0 {
		t.Errorf("the table: %+v", table)
	}
	v := l.job("1_2")
	if v.Name != "lr2" || value(v.Sweep) != "lr{lr}" || v.Params["lr"] != "2" {
		t.Errorf("a trial: %s %v %v", v.Name, v.Sweep, v.Params)
	}

	if whole, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: "1"}); err != nil || value(whole.Command) != table.Command || whole.Name != "lr{lr}" || whole.Params != nil ||
		whole.Dir != l.dir() || whole.Env["S"] != "s{seed}" {
		t.Errorf("the sweep: %+v, %v", whole, err)
	}

	// More values are combined with those of the other parameter, and nothing runs twice.
	for range 2 {
		added, err := api.Call(l.ctx, l.Client, api.AddTrials, api.MoreTrials{JobID: api.JobID{ID: "lr2"}, Axes: []sweep.Axis{axis("lr", "2", "3")}})
		testkit.Must(t, err)
		var names []string
		for _, one := range added.Trials {
			names = append(names, one.ID+" "+one.Name)
		}
		if v, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: "1"}); err != nil || v.Tasks.Counts["finished"] < 4 {
			t.Errorf("the array: %+v, %v", v.Tasks, err)
		}
		if len(names) > 0 {
			equal(t, names, "1_4 lr3", "1_5 lr3")
			l.finished("1_4")
			l.finished("1_5")
			continue
		}
		equal(t, names)
	}
	if got := testkit.Read(t, marks); !strings.HasSuffix(got, ";3 5 s5;3 it's sit's;") {
		t.Errorf("ran %s", got)
	}
	sums, err := api.Call(l.ctx, l.Client, api.ListSweeps, api.SweepQuery{All: true})
	if err != nil || len(sums) != 1 || sums[0].Counts["finished"] != 6 || !slices.Equal(sums[0].Params, []string{"lr", "seed"}) {
		t.Errorf("the list: %+v, %v", sums, err)
	}
	if sums, err := api.Call(l.ctx, l.Client, api.ListSweeps, api.SweepQuery{}); err != nil || len(sums) != 0 {
		t.Errorf("unfinished ones: %+v, %v", sums, err)
	}
	l.restart()
	got, _ = l.results(api.TrialQuery{ID: "1", Metrics: []string{"min:acc"}})
	equal(t, got[3:], "1_3 2 it's finished 0", "1_4 3 5 finished 0.3", "1_5 3 it's finished 0")
	got, _ = l.results(api.TrialQuery{ID: "1", Metrics: []string{"-"}})
	equal(t, got[:1], "1_0 1 5 finished")
}

// TestMetricsOutlastALog: it is read once after the attempt has ended, and again after
// another.
func TestMetricsOutlastALog(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.submit(swept(sh("echo x=$((BERTH_ATTEMPT * {a}))", "gpus", "0"), []string{"x"}, axis("a", "3", "4")))
	l.finished("1_0")
	l.finished("1_1")
	want := []string{"1_0 3 finished 3", "1_1 4 finished 4"}
	got, _ := l.results(api.TrialQuery{ID: "1"})
	equal(t, got, want...)
	testkit.Must(t, os.Remove(*l.job("1_0").Log))
	got, _ = l.results(api.TrialQuery{ID: "1"})
	equal(t, got, want...)
	got, _ = l.results(api.TrialQuery{ID: "1", Metrics: []string{"max:x"}})
	equal(t, got, "1_0 3 finished <nil>", want[1])
	l.act(api.ActRequeue, "1_1")
	l.finished("1_1")
	got, _ = l.results(api.TrialQuery{ID: "1"})
	equal(t, got, want[0], "1_1 4 finished 8")
}

// TestALateTrialIsATaskOfItsArray: its number does not follow the others', and every
// selection finds it all the same.
func TestALateTrialIsATaskOfItsArray(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, _ := l.gate("gate")
	l.submit(swept(sh(line+" # {a}", "hold", "yes", "gpus", "0.1"), nil, axis("a", "1", "2")))
	l.one(sh("true", "hold", "yes"))
	_, err := api.Call(l.ctx, l.Client, api.AddTrials, api.MoreTrials{JobID: api.JobID{ID: "1"}, Axes: []sweep.Axis{axis("a", "3")}})
	testkit.Must(t, err)
	l.one(sh("true", "hold", "yes"))
	for words, want := range map[string]string{"1": "1_0 1_1 1_2", "1_2": "1_2", "1-3": "1_0 1_1 3 1_2", "4": "", "4-5": "5", "1_1-2": "1_1 1_2", "3-9": "3 5"} {
		page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Select: api.Select{Words: []string{words}}})
		testkit.Must(t, err)
		var ids []string
		for _, v := range page.Jobs {
			ids = append(ids, v.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	if got := did(l.act(api.ActCancel, "1")); strings.Count(got, "done") != 3 {
		t.Errorf("cancel: %s", got)
	}
}

func TestSweepsThatAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, row := range []struct {
		spec  api.Spec
		words []string
	}{
		{swept(sh("x {b}"), nil, axis("a", "1")), []string{"{b}"}},
		{swept(sh("x"), nil, axis("a", "1")), []string{"a is not used"}},
		{swept(sh("x {a}", "array", "0-3"), nil, axis("a", "1")), []string{"no array"}},
		{swept(sh("x {a}", "name", "{a}"), nil, axis("a", "1", "b\nc")), []string{"trial a=b", "name"}},
		{swept(sh("x {a}"), []string{"("}, axis("a", "1")), []string{"metric", "RE2"}},
		{swept(sh("x {a}"), nil), []string{"1 to 100 parameters"}},
		{swept(sh("x {a}"), nil, axis("a", "1"), axis("a", "2")), []string{"a twice"}},
		{sh("x", "max", "2"), []string{"expected an array"}},
	} {
		l.refused(api.SubmitRequest{Jobs: []api.Spec{row.spec}, Dir: l.dir()}, problem.Invalid, row.words...)
	}
	plain := l.one(sh("true", "hold", "yes", "array", "0-2"))
	if _, err := api.Call(l.ctx, l.Client, api.AddTrials, api.MoreTrials{JobID: api.JobID{ID: plain}, Axes: []sweep.Axis{axis("a", "1")}}); problem.KindOf(err) != problem.Refused {
		t.Errorf("more trials of an array: %v", err)
	}
	got, table := l.results(api.TrialQuery{ID: plain})
	equal(t, got, plain+"_0 0 queued", plain+"_1 1 queued", plain+"_2 2 queued")
	equal(t, table.Params, "index")
}

func TestADryRunOfASweepShowsEveryCommand(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	spec := swept(api.Spec{Command: api.Command{Argv: []string{"p", "{a}"}}}, nil, axis("a", "x y", "2"))
	reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{spec}, Dir: l.dir(), DryRun: true})
	testkit.Must(t, err)
	var commands []string
	for _, one := range reply.Jobs[0].Trials {
		commands = append(commands, one.ID+one.Command)
	}
	equal(t, commands, "p 'x y'", "p 2")
	if l.count(job.Queued) != 0 {
		t.Error("it was submitted")
	}
}

// TestAnArrayIsChangedWholeOrNotAtAll, also if it takes several turns of the engine.
func TestAnArrayIsChangedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.MaxText = 64 << 10 }))
	array := l.one(sh("true", "hold", "yes", "array", "1-"+strconv.Itoa(actJobs+1)))
	last := array + "_" + strconv.Itoa(actJobs+1)
	edit := func(word string, set api.Spec) error {
		_, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: word}, Set: set})
		return err
	}
	testkit.Must(t, edit(last, api.Spec{Allow: "0"}))
	wantProblem(t, edit(array, api.Spec{GPUs: "2"}), problem.Invalid, "as many as allow lists")
	wantProblem(t, edit(array, api.Spec{Env: map[string]string{"X": strings.Repeat("x", 1000)}}), problem.TooMuch, "limit of 0 MiB")
	for _, task := range []string{array + "_1", last} {
		d, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: task})
		if err != nil || d.GPUs != 1 || d.Env != nil {
			t.Errorf("%s: %d GPUs, %v, %v", task, d.GPUs, d.Env, err)
		}
	}
}

// TestEditingAnArray: what has not started is changed, and a limit that it gets counts
// the tasks that run already.
func TestEditingAnArray(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	id := l.one(sh(line, "gpus", "0.1", "array", "0-29"))
	l.until("twenty tasks run", func() bool { return l.count(job.Running) == 20 })
	edit := func(word string, set api.Spec) (api.Detail, error) {
		return api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: word}, Set: set})
	}
	d, err := edit(id, api.Spec{Max: "2", Priority: "-5"})
	if err != nil || d.Changed != 10 || d.Tasks.Limit != 2 {
		t.Fatalf("%d changed, %+v, %v", d.Changed, d.Tasks, err)
	}
	if j := l.job(id + "_29"); j.Priority != -5 || !strings.Contains(value(j.Reason), "2") {
		t.Errorf("a queued task: priority %d, %s", j.Priority, value(j.Reason))
	}
	if j := l.job(id + "_0"); j.Priority != 0 {
		t.Errorf("a running task has priority %d", j.Priority)
	}
	if _, err := edit(id+"_29", api.Spec{Max: "2"}); problem.KindOf(err) != problem.Invalid {
		t.Errorf("max of one task: %v", err)
	}
	l.act(api.ActCancel, id+"_0")
	l.end(id + "_0")
	if running := l.count(job.Running); running > 19 {
		t.Errorf("%d run after one was cancelled, with a limit of 2", running)
	}
	open()
	l.until("all have ended", func() bool { return l.count(job.Running)+l.count(job.Queued) == 0 })
	if _, err := edit(id, api.Spec{Priority: "1"}); problem.KindOf(err) != problem.Refused {
		t.Errorf("all have ended: %v", err)
	}
}
