package daemon

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text/problem"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, _ := l.gate("gate")
	running := l.one(sh(line, "gpus", "0"))
	queued := l.one(sh("true", "hold", "yes"))
	done := l.one(sh("true", "gpus", "0"))
	l.untilState(running, job.Running)
	l.finished(done)
	got := did(l.act(api.ActCancel, running, queued, done, "99"))
	want := fmt.Sprintf("%s:done, %s:done, %s:not it has ended (ok), 99:not there is no such job", running, queued, done)
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for _, id := range []string{running, queued} {
		j := l.end(id)
		if value(j.Outcome) != job.WasCancelled || !strings.Contains(value(j.Reason), "cancelled by "+j.User) || j.Stopping != "" {
			t.Errorf("job %s ended %s: %s, still stopping: %q", id, value(j.Outcome), value(j.Reason), j.Stopping)
		}
	}
	if got := did(l.act(api.ActCancel, queued)); got != queued+":not it has ended (cancelled)" {
		t.Error(got)
	}
}

// TestWhatHasEndedIsLeftAlone: of an array, a range, a pattern or all jobs only
// those are meant that there is something to do for.
func TestWhatHasEndedIsLeftAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	_, open := l.gate("gate")
	array := cutArray(l.one(sh("[ $BERTH_ARRAY_INDEX = 0 ] || while [ ! -e gate ]; do sleep 0.02; done", "gpus", "0", "array", "0-1", "name", "sx1")))
	l.finished(array + "_0")
	l.untilState(array+"_1", job.Running)
	after := l.one(sh("true", "name", "sx2", "after", array+"_1"))
	other := l.one(sh("true", "gpus", "0", "name", "sx3"))
	l.finished(other)
	for _, word := range []string{array, "sx*", array + "-" + other} {
		r := l.act(api.ActHold, word)
		if want := map[string]int{"finished": 2, "running": 1}; word == array {
			want["finished"] = 1
			if did(r) != "" || !maps.Equal(r.Left, want) {
				t.Errorf("hold %s: %s, left %v", word, did(r), r.Left)
			}
		} else if did(r) != after+":done" || !maps.Equal(r.Left, want) {
			t.Errorf("hold %s: %s, left %v", word, did(r), r.Left)
		}
		l.actOn(api.ActRelease, api.Select{All: true})
	}
	if got := did(l.act(api.ActHold, array+"_0", "sx3")); got != array+"_0:not it has ended (ok), "+other+":not it has ended (ok)" {
		t.Error(got)
	}
	// The dependent job ends in the same request.
	if r := l.actOn(api.ActCancel, api.Select{All: true}); slices.ContainsFunc(r.Jobs, func(a api.Acted) bool { return !a.Done }) {
		t.Errorf("cancel all: %s, left %v", did(r), r.Left)
	}
	open()
	l.end(array + "_1")
	if r := l.act(api.ActCancel, array); did(r) != "" || r.Left["finished"]+r.Left["cancelled"] != 2 {
		t.Errorf("cancel %s: %s, left %v", array, did(r), r.Left)
	}
}

func cutArray(id string) string {
	array, _, _ := strings.Cut(id, "_")
	return array
}

func TestGraceIsTheCallers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	stubborn := l.one(sh("trap '' TERM; echo deaf; while :; do sleep 0.05; done", "gpus", "0", "grace", "1h"))
	l.until("it hears nothing any more", func() bool { return l.log(stubborn) == "deaf\n" })
	none := 0.0
	if _, err := api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: []string{stubborn}}, GraceS: &none}); err != nil {
		t.Fatal(err)
	}
	if j := l.end(stubborn); value(j.Outcome) != job.WasCancelled {
		t.Errorf("it ended %s", value(j.Outcome))
	}
}

func TestHoldAndRelease(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	running := l.one(sh(line, "gpus", "2"))
	l.untilState(running, job.Running)
	queued := l.one(sh("true"))
	if got, want := did(l.act(api.ActHold, running, queued)), running+":not it is running, "+queued+":done"; got != want {
		t.Errorf("hold: %s, want %s", got, want)
	}
	if got := did(l.act(api.ActHold, queued)); got != queued+":not it is already held" {
		t.Errorf("hold again: %s", got)
	}
	open()
	l.finished(running)
	l.restart()
	if j := l.job(queued); j.State != job.Queued || !j.Held {
		t.Errorf("after a restart it is %s, held: %v", j.State, j.Held)
	}
	if got := did(l.act(api.ActRelease, queued, running)); got != running+":not it has ended (ok), "+queued+":done" {
		t.Errorf("release: %s", got)
	}
	l.finished(queued)
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	count := filepath.Join(l.dir(), "runs")
	line, open := l.gate("gate")
	running := l.one(sh("echo x >>"+count+"; [ $(wc -l <"+count+") -gt 1 ] || exec sleep 1000", "gpus", "2"))
	next := l.one(sh(line, "gpus", "2"))
	l.untilState(running, job.Running)
	l.until("it began", func() bool { return l.job(running).Log != nil && l.exists(count) })
	if got := did(l.act(api.ActRequeue, running)); got != running+":done" {
		t.Fatal(got)
	}
	l.finished(running) // it kept its place before the next
	if j := l.job(running); j.Attempt != 2 {
		t.Errorf("it took %d attempts", j.Attempt)
	}
	l.untilState(next, job.Running)
	if got := did(l.act(api.ActRequeue, running)); got != running+":done" {
		t.Fatal(got)
	}
	j := l.job(running)
	if j.State != job.Queued || j.Outcome != nil || j.ExitCode != nil || j.EndedAt != nil || j.GPUIDs != nil {
		t.Errorf("queued again it is %+v", j.View)
	}
	if got := did(l.act(api.ActRequeue, running)); got != running+":not it is queued" {
		t.Error(got)
	}
	behind := l.one(sh("true", "gpus", "2"))
	open()
	l.finished(behind)
	if first, last := l.job(running), l.job(behind); first.StartedAt.After(*last.StartedAt) {
		t.Error("one that came later was first")
	}
}

func (l *lab) exists(path string) bool {
	found, err := filepath.Glob(path)
	return err == nil && len(found) > 0
}

func TestWhatFailedRunsAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	flag := filepath.Join(l.dir(), "mended")
	var bad []string
	for range 3 {
		bad = append(bad, l.one(sh("test -e "+flag, "gpus", "0")))
	}
	good := l.one(sh("true", "gpus", "0"))
	for _, id := range append(bad, good) {
		l.end(id)
	}
	l.write(flag, "")
	reply := l.actOn(api.ActRequeue, api.Select{States: []string{"failed"}})
	if len(reply.Jobs) != 3 {
		t.Errorf("queued again: %s", did(reply))
	}
	for _, id := range bad {
		l.finished(id)
	}
	if j := l.job(good); j.Attempt != 1 {
		t.Error("what ended well ran again")
	}
	// Nobody means what is over by "all".
	if got := did(l.actOn(api.ActRequeue, api.Select{All: true})); got != "" {
		t.Errorf("requeue all: %s", got)
	}
}

func TestSelections(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	held := sh("true", "hold", "yes")
	l.submit(held, held, held, held, sh("true", "hold", "yes", "array", "0-4"), sh("x", "begin", "now+1h", "name", "later"), held)
	l.act(api.ActCancel, "4")
	rows := []struct {
		sel  api.Select
		over bool
		want string
	}{
		{api.Select{Words: []string{"1-3"}}, false, "1 2 3"},
		{api.Select{Words: []string{"2", "1-2,4"}}, false, "1 2 4"},
		{api.Select{Words: []string{"5"}}, false, "5_0 5_1 5_2 5_3 5_4"},
		{api.Select{Words: []string{"5_1-2", "5_4"}}, false, "5_1 5_2 5_4"},
		{api.Select{Words: []string{"4-10"}}, false, "4 5_0 5_1 5_2 5_3 5_4 10"},
		{api.Select{Words: []string{"@"}}, false, "11"},
		{api.Select{Words: []string{"@~2"}}, false, "5_0 5_1 5_2 5_3 5_4"},
		{api.Select{Name: "later"}, false, "10"},
		{api.Select{Name: "job2"}, false, "2"},
		{api.Select{Name: "l?t*"}, false, "10"},
		{api.Select{Words: []string{"later", "1"}}, false, "1 10"},
		{api.Select{Words: []string{"1-5"}, Name: "job2"}, false, "2"},
		{api.Select{States: []string{"cancelled"}}, false, "4"},
		{api.Select{States: []string{"held"}, Words: []string{"9-20"}}, false, "11"},
		{api.Select{States: []string{"held", "queued"}, Words: []string{"9-20"}}, false, "10 11"},
		{api.Select{States: []string{"held", "cancelled"}, Words: []string{"3-4,10"}}, false, "3 4"},
		{api.Select{User: "nobody-else"}, false, ""},
		{api.Select{}, false, "1 2 3 5_0 5_1 5_2 5_3 5_4 10 11"},
		{api.Select{}, true, "1 2 3 4 5_0 5_1 5_2 5_3 5_4 10 11"},
	}
	for _, row := range rows {
		if got := l.list(api.Query{Select: row.sel, Over: row.over}); got != row.want {
			t.Errorf("%+v: %s; want %s", row.sel, got, row.want)
		}
	}
	for _, sel := range []api.Select{{Words: []string{"3-1"}}, {States: []string{"asleep"}}, {Words: []string{"all", "3"}}} {
		_, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Select: sel})
		wantProblem(t, err, problem.Invalid)
	}
	for _, word := range []string{"1-2", "all"} {
		_, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: word})
		wantProblem(t, err, problem.Invalid)
	}
	for _, word := range []string{"job[1-5]", "late"} {
		_, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: word})
		wantProblem(t, err, problem.NotFound, "no job is named "+word)
	}
	_, err := api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: api.ActCancel})
	wantProblem(t, err, problem.Invalid, "no job is selected")
	_, err = api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: "explode", Select: api.Select{All: true}})
	wantProblem(t, err, problem.Invalid)
	if got := len(l.actOn(api.ActRelease, api.Select{User: l.job("1").User}).Jobs); got != 9 {
		t.Errorf("by user, %d were released", got)
	}
	if got := l.list(api.Query{Select: api.Select{States: []string{"held"}}}); got != "" {
		t.Errorf("still held: %s", got)
	}
}

// TestANameMeansItsUnfinishedJobsOrElseTheNewest for every verb but list.
func TestANameMeansItsUnfinishedJobsOrElseTheNewest(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	run := func(name string, more ...string) string {
		return l.one(sh("true", append([]string{"gpus", "0", "name", name}, more...)...))
	}
	old, newer := run("train"), run("train")
	l.end(old)
	l.end(newer)
	one := func(word, want string) {
		t.Helper()
		if j, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: word}); err != nil || j.ID != want {
			t.Errorf("%s is job %s, %v; want %s", word, j.ID, err, want)
		}
	}
	one("train", newer)
	one("tr*", newer)
	waiting := run("train", "hold", "yes")
	one("train", waiting)
	older := run("mixed", "hold", "yes")
	l.end(run("mixed"))
	one("mixed", older) // though a newer one has ended
	other := run("train", "hold", "yes")
	_, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: "train"})
	wantProblem(t, err, problem.Invalid, "train means 2: "+waiting+", "+other)
	if got := l.list(api.Query{Select: api.Select{Words: []string{"train"}}}); got != strings.Join([]string{old, newer, waiting, other}, " ") {
		t.Errorf("the list has %s", got)
	}
	array := l.one(sh("true", "hold", "yes", "name", "train-array", "array", "0-1"))
	if got := did(l.actOn(api.ActRelease, api.Select{Words: []string{"train-*"}})); !strings.Contains(got, array+"_0") || !strings.Contains(got, array+"_1") || strings.Contains(got, other) {
		t.Errorf("released: %s", got)
	}
	if got := did(l.actOn(api.ActCancel, api.Select{Words: []string{"train"}})); !strings.Contains(got, waiting) || !strings.Contains(got, other) || strings.Contains(got, newer+" ") {
		t.Errorf("cancelled: %s", got)
	}
	_, err = api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: []string{"1", "nothing"}}})
	wantProblem(t, err, problem.NotFound, "no job of yours is named nothing")
}

// list is the ids of a listing, in its order.
func (l *lab) list(q api.Query) string {
	l.t.Helper()
	var ids []string
	_, err := l.JobsAll(l.ctx, q, func(v job.View) error { ids = append(ids, v.ID); return nil })
	if err != nil {
		l.t.Fatalf("%+v: %v", q, err)
	}
	return strings.Join(ids, " ")
}

// TestManyAtOnceKeepTheLoopResponsive: others are answered while thousands of
// jobs are acted on, and naming them one by one costs no more.
func TestManyAtOnceKeepTheLoopResponsive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	l := newLab(t)
	const many = 5000
	l.submit(slices.Repeat([]api.Spec{sh("true", "hold", "yes")}, 2*many)...)
	words := []string{"99999"} // one that is not there must not make the others slow
	for i := range many {
		words = append(words, fmt.Sprint(2*i+1))
	}
	done := make(chan error, 1)
	go func() {
		reply, err := api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: words}})
		if err == nil && len(reply.Jobs) != many+1 {
			err = fmt.Errorf("%d answers", len(reply.Jobs))
		}
		done <- err
	}()
	answered := 0
	for over := false; !over; answered++ {
		if _, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if over = true; err != nil {
				t.Error(err)
			}
		default:
		}
	}
	t.Logf("answered %d times meanwhile", answered)
	if answered < 10 {
		t.Errorf("the loop was held up: only %d answers came meanwhile", answered)
	}
	if n := l.count(job.Queued); n != many {
		t.Errorf("%d are left", n)
	}
	// The other half is over in one word.
	if reply := l.actOn(api.ActCancel, api.Select{All: true}); len(reply.Jobs) != many {
		t.Errorf("%d were cancelled", len(reply.Jobs))
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.Sim = 4 })
	id := l.one(sh("true", "hold", "yes", "gpus", "2", "vram", "8G", "env.A", "1"))
	rows := []struct {
		set  []string
		want func(*job.Spec)
	}{
		{[]string{"priority", "5"}, func(s *job.Spec) { s.Priority = 5 }},
		{[]string{"timeout", "2h"}, func(s *job.Spec) { s.TimeLimit = 2 * time.Hour }},
		{[]string{"vram", "4G"}, func(s *job.Spec) { s.VRAMMiB = 4096 }},
		{[]string{"ids", "3,1"}, func(s *job.Spec) { s.GPUs, s.IDs = 2, []int{3, 1} }},
		{[]string{"gpus", "1"}, func(s *job.Spec) { s.GPUs, s.IDs = 1, nil }},
		{[]string{"gpus", "0.5"}, func(s *job.Spec) { s.GPUs, s.Share = 1, 0.5 }},
		{[]string{"gpus", "3"}, func(s *job.Spec) { s.GPUs, s.Share = 3, 0 }},
		{[]string{"name", "new"}, func(s *job.Spec) { s.Name = "new" }},
		{[]string{"dir", "below"}, func(s *job.Spec) { s.Dir = filepath.Join(l.dir(), "below") }},
		{[]string{"env.B", "2", "env.A", "3"}, func(s *job.Spec) { s.Env = []job.EnvVar{{Key: "A", Value: "3"}, {Key: "B", Value: "2"}} }},
	}
	j, err := l.d.svc.queue.Store.Job(id)
	if err != nil {
		t.Fatal(err)
	}
	want := j.Spec
	for _, row := range rows {
		if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: editOf(row.set...)}); err != nil {
			t.Fatalf("%v: %v", row.set, err)
		}
		row.want(&want)
		if j, err = l.d.svc.queue.Store.Job(id); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%+v", j.Spec) != fmt.Sprintf("%+v", want) {
			t.Errorf("after %v\n%+v\nwant\n%+v", row.set, j.Spec, want)
		}
	}
	detail, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: editOf("begin", "now+1h")})
	if err != nil || detail.NotBefore == nil || time.Until(*detail.NotBefore) < 50*time.Minute {
		t.Errorf("begins %v, %v", detail.NotBefore, err)
	}
	// What was unset is as if it had never been given.
	if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: editOf("retries", "2"), Unset: []string{"vram", "time", "env.B", "begin"}}); err != nil {
		t.Fatal(err)
	}
	want.VRAMMiB, want.TimeLimit, want.Env, want.Retries = 0, 0, []job.EnvVar{{Key: "A", Value: "3"}}, 2
	if j, err = l.d.svc.queue.Store.Job(id); err != nil || fmt.Sprintf("%+v", j.Spec) != fmt.Sprintf("%+v", want) || !j.NotBefore.IsZero() || j.VRAMMiB != 0 {
		t.Errorf("unset: %v\n%+v\nwant\n%+v", err, j.Spec, want)
	}
	if _, err = api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: editOf("begin", "now+1h")}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"dir", "after", "nonsense", "command"} {
		if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Unset: []string{key}}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("unset %s: %v", key, err)
		}
	}
	l.restart()
	if d := l.job(id); d.Name != "new" || d.Priority != 5 || d.GPUs != 3 || d.NotBefore == nil || d.Env["A"] != "3" {
		t.Errorf("after a restart: %+v", d)
	}
}

// TestRequeueWithChanges: only jobs that have ended are changed, and a change that
// is refused leaves the job as it was.
func TestRequeueWithChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	busy := l.one(sh(line, "gpus", "0"))
	l.untilState(busy, job.Running)
	id := l.one(sh("test $A = 2", "gpus", "1", "vram", "8G", "env.A", "1"))
	l.end(id)
	requeue := func(change api.EditRequest, words ...string) string {
		t.Helper()
		reply, err := api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: api.ActRequeue, Select: api.Select{Words: words}, Changes: &change})
		if err != nil {
			t.Fatal(err)
		}
		return did(reply)
	}
	for _, row := range []struct {
		change api.EditRequest
		says   string
	}{
		{api.EditRequest{Set: editOf("gpus", "9")}, "9 GPUs"},
		{api.EditRequest{Set: editOf("array", "0-3")}, "array cannot be edited"},
		{api.EditRequest{Unset: []string{"dir"}}, "dir cannot be unset"},
	} {
		if got := requeue(row.change, id); !strings.Contains(got, id+":not ") || !strings.Contains(got, row.says) {
			t.Errorf("%+v: %s", row.change, got)
		}
	}
	if j := l.job(id); j.State != job.Failed || value(j.VRAMMiB) != 8192 {
		t.Errorf("refused, it is %+v", j.View)
	}
	if got := requeue(api.EditRequest{Set: editOf("env.A", "2", "vram", "20G")}, id, busy); !strings.Contains(got, id+":done") || !strings.Contains(got, busy+":not it is running") {
		t.Errorf("requeued %s", got)
	}
	if j := l.end(id); j.State != job.Finished || value(j.VRAMMiB) != 20480 || j.Attempt != 2 {
		t.Errorf("again, it is %+v", j.View)
	}
	_, err := api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: []string{busy}}, Changes: &api.EditRequest{Set: editOf("gpus", "1")}})
	wantProblem(t, err, problem.Invalid, "only with requeue")
	open()
	l.finished(busy)
}

// TestRequeueWithoutWhatItDependsOn: it would be cancelled again at once. With the
// job that failed, it can run.
func TestRequeueWithoutWhatItDependsOn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	flag := filepath.Join(l.dir(), "mended")
	bad := l.one(sh("test -e "+flag, "gpus", "0"))
	next := l.one(sh("true", "gpus", "0", "after", bad))
	if j := l.end(next); j.State != job.Cancelled {
		t.Fatalf("it is %s", j.State)
	}
	for _, sel := range []api.Select{{Words: []string{next}}, {States: []string{"cancelled"}}} {
		got := did(l.actOn(api.ActRequeue, sel))
		if want := next + ":not it needed job " + bad + " to succeed, but that job failed with exit code 1; requeue both in one command, or copy it with berth submit --like"; got != want {
			t.Errorf("%+v: %s, want %s", sel, got, want)
		}
	}
	l.write(flag, "")
	if got := did(l.act(api.ActRequeue, bad, next)); got != bad+":done, "+next+":done" {
		t.Errorf("both: %s", got)
	}
	l.finished(next)
}

// editOf is a set of changed keys.
func editOf(pairs ...string) api.Spec {
	s := sh("", pairs...)
	return s
}

func TestWhatCannotBeEdited(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, _ := l.gate("gate")
	running := l.one(sh(line, "gpus", "0"))
	l.untilState(running, job.Running)
	done := l.one(sh("true", "gpus", "0"))
	l.finished(done)
	queued := l.one(sh("true", "hold", "yes", "vram", "1G"))
	for _, row := range []struct {
		id    string
		set   api.Spec
		kind  problem.Kind
		words []string
	}{
		{running, editOf("priority", "1"), problem.Refused, []string{"running", "queued"}},
		{done, editOf("priority", "1"), problem.Refused, []string{"finished"}},
		{"99", editOf("priority", "1"), problem.NotFound, []string{"99"}},
		{queued, editOf("array", "0-3"), problem.Refused, []string{"array"}},
		{queued, editOf("after", "1"), problem.Refused, []string{"after"}},
		{queued, editOf("hold", "no"), problem.Refused, []string{"berth release"}},
		{queued, editOf("dedup", "yes"), problem.Refused, []string{"dedup"}},
		{queued, editOf("export", "none"), problem.Refused, []string{"export"}},
		{queued, editOf("vram", "x"), problem.Invalid, []string{"vram"}},
		{queued, editOf("gpus", "0"), problem.Invalid, []string{"vram"}},
		{queued, editOf("gpus", "9"), problem.Refused, []string{"9 GPUs"}},
		{queued, editOf("vram", "90G"), problem.Refused, []string{"92160"}},
		{queued, sh("   "), problem.Invalid, []string{"no command"}},
	} {
		_, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: row.id}, Set: row.set})
		wantProblem(t, err, row.kind, row.words...)
	}
	if j := l.job(queued); j.Priority != 0 || value(j.VRAMMiB) != 1024 || j.State != job.Queued {
		t.Errorf("it was changed: %+v", j.View)
	}
}

func TestAnEditedPriorityMovesAJob(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	busy := l.one(sh(line, "gpus", "2"))
	l.untilState(busy, job.Running)
	first, second := l.one(sh("true", "gpus", "2")), l.one(sh("true", "gpus", "2"))
	if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: second}, Set: editOf("priority", "9")}); err != nil {
		t.Fatal(err)
	}
	if a, b := l.job(first).Position, l.job(second).Position; a != 2 || b != 1 {
		t.Errorf("they stand at %d and %d", a, b)
	}
	open()
	l.finished(first)
	if a, b := l.job(first), l.job(second); a.StartedAt.Before(*b.StartedAt) {
		t.Error("the one with the lower priority was first")
	}
}

func TestARequestThatIsGivenUpChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.one(sh("true", "hold", "yes"))
	ctx, cancel := context.WithCancel(l.ctx)
	cancel()
	if _, err := l.d.actions.Act(ctx, api.Caller{Admin: true}, api.ActRequest{Action: api.ActRelease, Select: api.Select{Words: []string{id}}}); err == nil {
		t.Error("it was done for nobody")
	}
	if !l.job(id).Held {
		t.Error("it was released")
	}
}
