package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/store"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// sent is a jobs file as a client sends it: a spec per line.
func (l *lab) sent(retry string, specs ...api.Spec) api.SubmitRequest {
	lines := make([]api.BatchLine, len(specs))
	for i := range lines {
		lines[i].Number = i + 1
	}
	return api.SubmitRequest{Jobs: specs, Dir: l.dir(), Batch: &api.Batch{File: "/w/jobs.txt", Lines: lines, Retry: retry}}
}

// became says what a request did with each line: the id of a new job, or the state
// of one that existed, with a + if it runs again, and then what was withdrawn.
func (l *lab) became(r api.SubmitRequest) string {
	l.t.Helper()
	reply, err := api.Call(l.ctx, l.Client, api.Submit, r)
	if err != nil {
		l.t.Fatal(err)
	}
	var words []string
	for _, j := range reply.Jobs {
		word := j.ID
		if j.State != "" {
			word += ":" + j.State
		}
		if j.Again {
			word += "+"
		}
		words = append(words, word)
	}
	for _, id := range reply.Withdrawn {
		words = append(words, "-"+id)
	}
	return strings.Join(words, " ")
}

func TestTheLinesOfAFile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	first := sh("true", "gpus", "0", "name", "first")
	held := func(pairs ...string) api.Spec {
		return sh("echo held", append(pairs, "gpus", "0", "begin", "now+1h")...)
	}
	steps := []struct {
		what  string
		send  api.SubmitRequest
		then  func()
		want  string
		after map[string]string // of queued jobs: what they wait for
	}{
		{what: "all are new, and one waits for a later one and a line", send: l.sent("", first, sh("true # last", "gpus", "0", "after", "wait,1"), held("name", "wait")), want: "1 2 3", after: map[string]string{"2": "3 1"}},
		{what: "the same again changes nothing", send: l.sent("", first, sh("true # last", "gpus", "0", "after", "wait,1"), held("name", "wait")), then: func() { l.finished("1") }, want: "1:finished 2:queued 3:queued", after: map[string]string{"2": "3 1"}},
		{what: "needs and names change, the order too", send: l.sent("", held("name", "other", "priority", "3"), first, sh("true # last", "gpus", "0", "after", "other")), want: "3:queued 1:finished 2:queued", after: map[string]string{"2": "3"}},
		{what: "another variable is another job, and a deleted line's job is withdrawn", send: l.sent("", first, held("env.SEED", "1"), held("env.SEED", "2")), want: "1:finished 4 5 -2 -3"},
		{what: "a known line waits for a new one", send: l.sent("", first, held("env.SEED", "1", "after", "new"), held("name", "new")), want: "1:finished 4:queued 6 -5", after: map[string]string{"4": "6"}},
		{what: "equal lines are several jobs", send: l.sent("", first, first, held("name", "new")), want: "1:finished 7 6:queued -4"},
		{what: "what finished runs again on request", send: l.sent(api.RetryAll, first), then: func() { l.finished("7") }, want: "1:finished+ -6"},
		{what: "a line that fails", send: l.sent("", first, sh("exit 3", "gpus", "0")), then: func() { l.finished("1") }, want: "1:finished 8"},
		{what: "runs again on request, and nothing else", send: l.sent(api.RetryFailed, first, sh("exit 3", "gpus", "0")), then: func() { l.untilState("8", job.Failed) }, want: "1:finished 8:failed+"},
		{what: "and not otherwise", send: l.sent("", first), then: func() { l.untilState("8", job.Failed) }, want: "1:finished"},
	}
	for _, step := range steps {
		if step.then != nil {
			step.then()
		}
		if got := l.became(step.send); got != step.want {
			t.Fatalf("%s: %s, want %s", step.what, got, step.want)
		}
		for id, want := range step.after {
			var ids []string
			for _, dep := range l.job(id).After {
				ids = append(ids, dep.Job)
			}
			if got := strings.Join(ids, " "); got != want {
				t.Errorf("%s: job %s waits for %q, want %q", step.what, id, got, want)
			}
		}
	}
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Select: api.Select{Batch: "/w/jobs.txt"}, Over: true})
	if err != nil || len(page.Jobs) != 3 {
		t.Errorf("the file has the jobs %+v (%v)", page.Jobs, err)
	}
	if n := len(l.actOn(api.ActCancel, api.Select{Batch: "/w/other.txt"}).Jobs); n > 0 {
		t.Errorf("%d jobs of another file", n)
	}
}

// runLab is a daemon that is the queue of a berth run.
func runLab(t *testing.T) *lab {
	l := newLab(t)
	l.d.svc.runs = "/w/logs"
	return l
}

// queue is the names of the queued jobs, in order.
func (l *lab) queue() string {
	l.t.Helper()
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Select: api.Select{States: []string{"queued"}}, Queue: true})
	if err != nil {
		l.t.Fatal(err)
	}
	var names []string
	for _, j := range page.Jobs {
		names = append(names, j.Name)
	}
	return strings.Join(names, " ")
}

// busy fills the machine until the returned function is called.
func (l *lab) busy() (open func()) {
	l.t.Helper()
	gate, open := l.gate("busy")
	l.untilState(l.one(sh(gate, "gpus", "2")), job.Running)
	return open
}

// TestTheOrderOfLines: queued lines start in the order of the file, wherever new ones
// are, after a restart too, and jobs of others keep their places.
func TestTheOrderOfLines(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	defer l.busy()()
	line := func(name string) api.Spec { return sh("true # "+name, "gpus", "2", "name", name) }
	send := func(retry, names string) {
		var specs []api.Spec
		for name := range strings.FieldsSeq(names) {
			specs = append(specs, line(name))
		}
		l.became(l.sent(retry, specs...))
	}
	send("", "a b c")
	other := l.one(line("other"))
	for _, step := range [][2]string{
		{"c a b", "c a b other"},
		{"c x a b", "c x a other b"},
		{"y c x a b z", "y c x other a b z"},
	} {
		send("", step[0])
		if got := l.queue(); got != step[1] {
			t.Errorf("%s is queued as %s, want %s", step[0], got, step[1])
		}
	}
	l.restart()
	if got := l.queue(); got != "y c x other a b z" {
		t.Errorf("after a restart: %s", got)
	}
	l.actOn(api.ActCancel, api.Select{Name: "c"})
	l.act(api.ActCancel, other)
	send(api.RetryFailed, "y c x a b z")
	if got := l.queue(); got != "y c x a b z" {
		t.Errorf("with one that runs again: %s", got)
	}
}

// TestAnyEditOfAFile: whatever is done to it, its lines wait as they are now and in
// their order, but for those that were cancelled, and none is two jobs.
func TestAnyEditOfAFile(t *testing.T) {
	t.Parallel()
	l := runLab(t)
	defer l.busy()()
	type row struct {
		command, vram, priority string
		cancel                  bool
	}
	dice := rand.New(rand.NewPCG(1, 2))
	pick := func(words ...string) string { return words[dice.IntN(len(words))] }
	some := func(command string) row {
		return row{command, pick("1000", "2000"), pick("0", "1", "2"), dice.IntN(8) == 0}
	}
	var rows []row
	over := map[string]bool{}
	for step := range 120 {
		i := dice.IntN(len(rows) + 1)
		switch what := dice.IntN(8); {
		case what == 0:
			l.restart()
			l.d.svc.runs = "/w/logs"
		case what < 4 || i == len(rows):
			rows = slices.Insert(rows, i, some(pick("a", "b", "c", "d")))
		case what < 6:
			rows = slices.Delete(rows, i, i+1)
		case what == 6:
			rows[i] = some(rows[i].command)
		default:
			k := dice.IntN(len(rows))
			rows[i], rows[k] = rows[k], rows[i]
		}
		var specs []api.Spec
		for _, r := range rows {
			specs = append(specs, sh(r.command, "gpus", "2", "vram", r.vram, "priority", r.priority))
		}
		request, nth, want := l.sent("", specs...), map[string]int{}, []string{}
		for i, r := range rows {
			nth[r.command]++
			key := jobfile.Key(r.command, nth[r.command])
			if request.Batch.Lines[i].Cancel = r.cancel; r.cancel {
				over[key] = true
			}
			if !over[key] {
				want = append(want, strings.Join([]string{r.command, r.vram, r.priority}, " "))
			}
		}
		if len(rows) > 0 {
			l.became(request)
		} else {
			continue // berth run sends no file without lines
		}
		var queued []*job.Job
		testkit.Must(t, l.d.svc.Do(l.ctx, func(turn *engine.Turn) {
			turn.Jobs().Each(0, func(j *job.Job) bool {
				if j.State == job.Queued {
					queued = append(queued, j.Clone())
				}
				return true
			})
		}))
		slices.SortFunc(queued, func(a, b *job.Job) int { return cmp.Compare(a.Rank, b.Rank) })
		got := []string{}
		for _, j := range queued {
			got = append(got, fmt.Sprintf("%s %d %d", j.Spec.Shell, j.VRAMMiB, j.Spec.Priority))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("step %d: %v wait as\n%q, want\n%q", step, rows, got, want)
		}
	}
}

// TestAppendedLinesMoveNothing: nor does a job that was sent to the end of the queue.
func TestAppendedLinesMoveNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	defer l.busy()()
	line := func(name string) api.Spec { return sh("true # "+name, "gpus", "2", "name", name) }
	l.became(l.sent("", line("a"), line("b"), line("c")))
	if err := l.d.svc.Change(l.ctx, func(turn *engine.Turn) {
		j := turn.Queue().Queued("2")
		j.Requeues++
		turn.Queue().ToTheEnd(j)
		turn.Queue().Edit(j.ID, j.Spec, j.Rank+1)
	}); err != nil {
		t.Fatal(err)
	}
	before := l.ranks()
	l.became(l.sent("", line("a"), line("b"), line("c"), line("d")))
	after := l.ranks()
	if got := l.queue(); got != "b c a d" {
		t.Errorf("queued as %s", got)
	}
	if delete(after, "5"); !maps.Equal(before, after) {
		t.Errorf("the places %v became %v", before, after)
	}
}

// ranks are the places of the unfinished jobs.
func (l *lab) ranks() map[string]int64 {
	l.t.Helper()
	ranks := map[string]int64{}
	if err := l.d.svc.Do(l.ctx, func(turn *engine.Turn) {
		turn.Jobs().Each(0, func(j *job.Job) bool { ranks[j.ID] = j.Rank; return true })
	}); err != nil {
		l.t.Fatal(err)
	}
	return ranks
}

// TestALineMarkedCancel never starts, or is stopped, and what waits for it is told.
func TestALineMarkedCancel(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	gate, open := l.gate("go")
	defer open()
	ran := filepath.Join(l.dir(), "ran")
	r := l.sent("", sh(gate, "gpus", "0"), sh("touch "+ran, "gpus", "0", "name", "new"), sh("true # after", "gpus", "0", "after", "new"), sh("true # waits", "gpus", "0", "begin", "now+1h"))
	r.Batch.Lines[1].Cancel = true
	if got := l.became(r); got != "1 2:cancelled 3 4" {
		t.Errorf("new: %s", got)
	}
	if j := l.job("2"); j.State != job.Cancelled || j.StartedAt != nil || j.Held || value(j.Reason) != markedCancel {
		t.Errorf("job 2: %+v", j)
	}
	if j := l.end("3"); value(j.Outcome) != job.Depends {
		t.Errorf("the job after it ended %s", value(j.Outcome))
	}
	l.untilState("1", job.Running)
	r.Batch.Lines[0].Cancel, r.Batch.Lines[3].Cancel = true, true
	if got := l.became(r); got != "1:running 2:cancelled 3:cancelled 4:cancelled" {
		t.Errorf("known: %s", got)
	}
	l.untilState("1", job.Cancelled)
	r.Batch.Lines[1].Cancel, r.Batch.Retry = false, api.RetryFailed
	if got := l.became(r); got != "1:cancelled 2:cancelled+ 3:cancelled+ 4:cancelled" {
		t.Errorf("run again: %s", got)
	}
	l.finished("2")
	l.finished("3")
	never := l.sent("", sh("true # much", "gpus", "9"))
	never.DryRun, never.Batch.Lines[0].Cancel = true, true
	if got := l.became(never); got != ":cancelled" {
		t.Errorf("dry run: %s", got)
	}
	never.DryRun = false
	if got := l.became(never); got != "5:cancelled" {
		t.Errorf("one that could never run: %s", got)
	}
}

// TestADryRunOfLinesTriesThemTogether, those that would run again too, and says why
// the others wait.
func TestADryRunOfLinesTriesThemTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t) // with two GPUs
	failed, done := sh("false", "gpus", "1", "name", "failed"), sh("true", "gpus", "0", "name", "done")
	held := sh("true # held", "gpus", "0", "begin", "now+1h")
	if got := l.became(l.sent("", failed, done, held)); got != "1 2 3" {
		t.Fatalf("sent: %s", got)
	}
	l.end("1")
	l.finished("2")
	r := l.sent(api.RetryFailed, failed, done, held, sh("true # a"), sh("true # never"), sh("true # b"), sh("true # huge", "gpus", "9"),
		sh("true # after", "gpus", "0", "after", "failed"), sh("true # then", "gpus", "0", "after", "done"))
	r.Batch.Lenient, r.DryRun, r.Batch.Lines[4].Cancel = true, true, true
	reply, err := api.Call(l.ctx, l.Client, api.Submit, r)
	testkit.Must(t, err)
	for i, want := range []api.Submitted{
		{ID: "1", Again: true, State: "starts", GPUIDs: []int{0}},
		{ID: "2", State: "finished", Reason: "ok"},
		{ID: "3", State: "queued", Reason: "not before "},
		{State: "starts", GPUIDs: []int{1}},
		{State: "cancelled"},
		{State: "waits", Reason: "gpu1 runs job (line 4)"},
		{State: "infeasible", Reason: "asks for 9 GPUs"},
		{State: "waits", Reason: "waits for job failed to succeed"},
		{State: "starts"},
	} {
		if got := reply.Jobs[i]; got.ID != want.ID || got.Again != want.Again || got.State != want.State || !slices.Equal(got.GPUIDs, want.GPUIDs) || !strings.Contains(got.Reason, want.Reason) {
			t.Errorf("line %d: %+v, want %+v", i+1, got, want)
		}
	}
	if got := l.became(l.sent("", failed, done, held)); got != "1:failed 2:finished 3:queued" {
		t.Errorf("afterwards: %s", got)
	}
}

// TestRunAgainTogether: lines that run again wait for one another and for new ones,
// whatever their order and number.
func TestRunAgainTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	specs := []api.Spec{sh("true # first", "gpus", "0", "after", "last")}
	for range actJobs {
		specs = append(specs, sh("true # filler", "gpus", "0", "after", "last"))
	}
	specs = append(specs, sh("false", "name", "last", "begin", "now+1h"))
	l.became(l.sent("", specs...))
	l.act(api.ActCancel, "all")
	l.until("all are over", func() bool { return l.count(job.Queued) == 0 })
	specs[len(specs)-1] = sh("false", "name", "last", "after", "new", "vram", "3G")
	specs = append(specs, sh("true # new", "gpus", "0", "name", "new", "begin", "now+1h"), sh("true # newer", "gpus", "0", "after", "last"))
	l.became(l.sent(api.RetryAll, specs...))
	if n := l.count(job.Queued); n != len(specs) {
		t.Errorf("%d of %d are queued", n, len(specs))
	}
	last := l.job(strconv.Itoa(actJobs + 2))
	if len(last.After) != 1 || last.Held || value(last.VRAMMiB) != 3072 {
		t.Errorf("the last is %+v", last)
	}
}

// TestADeletedLineIsNotRunAgain: its job runs to its end, and is not tried again
// unless the line comes back.
func TestADeletedLineIsNotRunAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	gate, open := l.gate("go")
	line := func(name string) api.Spec {
		return sh(gate+"; false # "+name, "gpus", "0", "name", name, "retries", "1", "retry_on", "fail")
	}
	other := sh("true", "gpus", "0", "begin", "now+1h")
	l.became(l.sent("", line("deleted"), line("back"), other))
	l.untilState("1", job.Running)
	l.untilState("2", job.Running)
	if got := l.became(l.sent("", other)); got != "3:queued" {
		t.Errorf("deleted: %s", got)
	}
	if got := l.became(l.sent("", other, line("back"))); got != "3:queued 2:running" {
		t.Errorf("back: %s", got)
	}
	open()
	l.until("job 1 is gone", func() bool {
		_, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: "1"})
		return problem.KindOf(err) == problem.NotFound
	})
	if j := l.end("2"); j.Attempt != 2 {
		t.Errorf("the line that came back ran %d times", j.Attempt)
	}
}

// TestAJobThatCameBackWithoutALineIsWithdrawn, though it ran.
func TestAJobThatCameBackWithoutALineIsWithdrawn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	gate, open := l.gate("go")
	l.became(l.sent("", sh(gate+"; false", "gpus", "2", "retries", "1", "retry_on", "fail"), sh("true", "gpus", "0")))
	l.untilState("1", job.Running)
	next, end := l.gate("next")
	defer end()
	l.one(sh(next, "gpus", "2", "priority", "1")) // until it ends, there is no second attempt
	open()
	l.until("it waits for its second attempt", func() bool { j := l.job("1"); return j.State == job.Queued && j.Attempt == 1 })
	if got := l.became(l.sent("", sh("true", "gpus", "0"))); !strings.HasSuffix(got, "-1") {
		t.Errorf("deleted: %s", got)
	}
}

// TestLinesThatCanNeverRun are accepted and end, if that is asked for. A limit of the
// user is another matter.
func TestLinesThatCanNeverRun(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.Limits.Default.GPUs = config.Portion{Amount: 1}; c.MaxPriority = 5 }))
	lenient := func(pairs ...string) api.SubmitRequest {
		r := l.sent("", sh("true # much", pairs...), sh("true", "gpus", "0", "begin", "now+1h"))
		r.Batch.Lenient = true
		return r
	}
	if got := l.became(lenient("gpus", "9")); got != "1 2" {
		t.Fatalf("accepted: %s", got)
	}
	if j := l.end("1"); value(j.Outcome) != job.Infeasible {
		t.Errorf("it ended %s", value(j.Outcome))
	}
	again := lenient("gpus", "9")
	again.Batch.Retry = api.RetryAll
	if got := l.became(again); got != "1:failed+ 2:queued" {
		t.Errorf("again: %s", got)
	}
	l.refused(lenient("gpus", "2", "env.A", "1"), problem.Refused, "jobs.txt:1")
}

// TestStoredJobsOfARun: those that an older berth stored without a file are lines,
// jobs of other files only if that is asked for, and a run begins without theirs.
func TestStoredJobsOfARun(t *testing.T) {
	t.Parallel()
	l := runLab(t)
	first, wait := sh("true", "gpus", "0", "env.SEED", "1"), sh("true # waits", "gpus", "0", "begin", "now+1h")
	l.became(l.sent("", first, wait))
	l.finished("1")
	stored, err := l.d.svc.queue.Store.Job("1")
	testkit.Must(t, err)
	if stored.Spec.Batch != "../jobs.txt" || value(l.job("1").Batch) != "/w/jobs.txt" {
		t.Errorf("the file is %q, shown as %q", stored.Spec.Batch, value(l.job("1").Batch))
	}
	stored.Spec.Batch, stored.Spec.Dir, stored.Key = "", "", jobfile.Key("true", 1)
	testkit.Must(t, l.d.svc.queue.Store.Commit(store.Tx{Put: []*job.Job{stored}}))
	if got := l.became(l.sent("", first, wait)); got != "1:finished 2:queued" {
		t.Errorf("an older berth's job: %s", got)
	}
	other := l.sent("", first, wait)
	other.Batch.File = "/w/logs/-"
	if got := l.became(other); got != "1:finished 3" {
		t.Errorf("another file: %s", got)
	}
	if stored, err := l.d.svc.queue.Store.Job("3"); err != nil || stored.Spec.Batch != "-" {
		t.Errorf("lines of a pipe are stored as %+v, %v", stored, err)
	}
	other.Batch.First = true
	if got := l.became(other); got != "1:finished 3:queued -2" {
		t.Errorf("a run begins: %s", got)
	}
	any := l.sent("", first, wait)
	any.Batch.AnyFile = true
	if got := l.became(any); got != "1:finished 3:queued" {
		t.Errorf("any file: %s", got)
	}
	if got := l.became(l.sent(api.RetryAll, first, wait)); got != "1:finished+ 3:queued" {
		t.Errorf("taken over: %s", got)
	}
	l.finished("1")
	if got := l.became(l.sent("", first, wait)); got != "1:finished 3:queued" {
		t.Errorf("then: %s", got)
	}
	r := l.sent("", first)
	r.Dir = "/" // it and the file can be moved
	if got := l.became(r); got != "1:finished -3" {
		t.Errorf("elsewhere: %s", got)
	}
}

// TestNumbersComeBack: in the queue of a run, with a line that was deleted before it
// started, in another process too. After a fresh start they do not.
func TestNumbersComeBack(t *testing.T) {
	t.Parallel()
	l := runLab(t)
	defer l.busy()()
	line := func(name string) api.Spec { return sh("true # "+name, "name", name) }
	restart := func() {
		l.restart()
		l.d.svc.runs = "/w/logs"
	}
	for _, step := range []struct {
		specs   []api.Spec
		restart bool
		want    string
	}{
		{[]api.Spec{line("a"), line("b"), line("c")}, false, "2 3 4"},
		{[]api.Spec{line("a")}, false, "2:queued -3 -4"},
		{[]api.Spec{line("c"), line("a"), line("d")}, false, "4 2:queued 5"},
		{[]api.Spec{line("a"), line("b")}, true, "2:queued 3 -4 -5"},
		{[]api.Spec{line("e"), line("d"), line("c"), line("b")}, true, "6 5 4 3:queued -2"},
	} {
		if step.restart {
			restart()
		}
		if got := l.became(l.sent("", step.specs...)); got != step.want {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
	if got := l.queue(); got != "e d c b" {
		t.Errorf("queued as %s", got)
	}
	testkit.Must(t, l.d.svc.queue.Store.Commit(store.Tx{Meta: map[string]string{numberKey + "k": "900"}}))
	restart()
	l.became(l.sent("", line("a")))
	kept, err := l.d.svc.queue.Store.Metas(numberKey)
	if maps.DeleteFunc(kept, func(_, id string) bool { return id == "" }); err != nil || len(kept) != 4 || kept[numberKey+"k"] != "" {
		t.Errorf("kept %v, %v", kept, err)
	}
}

// TestTheNewestRequestsEnvironment is that of the jobs that wait.
func TestTheNewestRequestsEnvironment(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	gate, open := l.gate("go")
	specs := []api.Spec{
		sh(gate+"; echo $A; umask", "gpus", "0"),
		sh("echo $A; umask", "gpus", "0", "begin", "now+1h"),
		sh("echo $A # none", "gpus", "0", "begin", "now+1h", "export", "none"),
	}
	send := func(value string, umask int) string {
		r := l.sent("", specs...)
		r.Environ, r.Umask = append(slices.Clone(l.opt.Env), "A="+value), &umask
		return l.became(r)
	}
	send("old", 0o22)
	l.untilState("1", job.Running)
	if got := send("new", 0o27); got != "1:running 2:queued 3:queued" {
		t.Errorf("the second request: %s", got)
	}
	_, err := l.d.svc.queue.Store.SweepBlobs()
	testkit.Must(t, err)
	l.restart()
	open()
	for _, id := range []string{"2", "3"} {
		if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Unset: []string{"begin"}}); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]string{"1": "old\n0022\n", "2": "new\n0027\n", "3": "\n"} {
		if got := l.finished(id); got != want {
			t.Errorf("job %s printed %q, want %q", id, got, want)
		}
	}
}

// TestWhichLinesGetWhichCode: waiting ones that of the first request of a run, and
// that of their submission otherwise.
func TestWhichLinesGetWhichCode(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	send := func(id, tree string, first bool) {
		r := l.sent("", sh("true", "gpus", "0", "begin", "now+1h", "snapshot", tree))
		r.Snapshots = []job.Snapshot{{Tree: tree, ID: id, Path: "/copy/" + id}}
		r.Batch.First = first
		l.became(r)
	}
	for _, step := range []struct {
		id, tree string
		first    bool
		want     string
	}{{"aa", "/tree", true, "aa"}, {"bb", "/tree", false, "aa"}, {"cc", "/tree", true, "cc"}, {"dd", "/other", false, "dd"}} {
		send(step.id, step.tree, step.first)
		if used, err := api.Call(l.ctx, l.Client, api.ListSnapshots, api.None{}); err != nil || !slices.Equal(used.IDs, []string{step.want}) {
			t.Errorf("%+v: the job has %v, %v", step, used.IDs, err)
		}
	}
}

// TestNotesOnLines: also on those that the queue has.
func TestNotesOnLines(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for range 2 {
		reply, err := api.Call(l.ctx, l.Client, api.Submit, l.sent("", sh("true", "timeout", "5", "begin", "now+1h")))
		if err != nil || len(reply.Jobs[0].Notes) != 1 {
			t.Errorf("%+v, %v", reply.Jobs, err)
		}
	}
}

// TestAnUnchangedFileCostsNothing: no turn of the engine changes anything, and nothing
// is written.
func TestAnUnchangedFileCostsNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const many = 2000
	specs := make([]api.Spec, many)
	for i := range specs {
		specs[i] = sh("true # "+strconv.Itoa(i), "begin", "now+1h", "name", "n"+strconv.Itoa(i), "env.A", "b")
		if i > 0 {
			specs[i].After = api.Text("n" + strconv.Itoa(i-1))
		}
	}
	r := l.sent("", specs...)
	r.Environ = l.opt.Env
	send := func(what string) {
		t.Helper()
		began := time.Now()
		if _, err := api.Call(l.ctx, l.Client, api.Submit, r); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
	}
	send("first")
	l.restart()
	pages := func() int64 {
		info, err := os.Stat(store.Path(queue.StoreDir(l.opt.Places.StateDir)) + "-wal")
		testkit.Must(t, err)
		return info.Size()
	}
	before := pages()
	send("again")
	send("again")
	if grown := pages() - before; grown > 64<<10 {
		t.Errorf("%d bytes were written", grown)
	}
	r.Jobs = slices.Insert(slices.Clone(r.Jobs), 0, sh("true", "begin", "now+1h"))
	r.Batch.Lines = append(r.Batch.Lines, api.BatchLine{Number: many + 1})
	send("a line above all others")
	r.Environ = append(slices.Clone(r.Environ), "NEW=1")
	send("another environment")
}

// TestAFileSentTwiceAtOnce: two clients that send the same file make one set of jobs.
func TestAFileSentTwiceAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var specs []api.Spec
	for range 20 {
		specs = append(specs, sh("true", "gpus", "0", "begin", "now+1h"))
	}
	var both sync.WaitGroup
	for range 4 {
		both.Go(func() {
			if _, err := api.Call(l.ctx, l.Client, api.Submit, l.sent("", specs...)); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if n := l.count(job.Queued); n != 20 {
		t.Errorf("%d jobs of 20 lines", n)
	}
}

// TestKnownLinesKeepTheLimits: what a line changes to, or runs again, is held against
// the limits and the machine before anything changes.
func TestKnownLinesKeepTheLimits(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.MaxQueue = 2 }))
	waits := func(pairs ...string) api.Spec { return sh("echo", append(pairs, "begin", "now+1h")...) }
	l.became(l.sent("", waits("gpus", "0"), sh("true", "gpus", "0")))
	l.finished("2")
	l.refused(l.sent("", waits("gpus", "9"), sh("true", "gpus", "0")), problem.Refused, "jobs.txt:1: asks for 9 GPUs")
	l.one(waits("gpus", "0", "name", "other"))
	l.refused(l.sent(api.RetryAll, waits("gpus", "0"), sh("true", "gpus", "0")), problem.TooMuch, "would exceed its limit of 2")
	if got := l.became(l.sent("", waits("gpus", "0"), sh("true", "gpus", "0"))); got != "1:queued 2:finished" {
		t.Errorf("then: %s", got)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one := sh("true", "gpus", "0")
	change := func(f func(*api.SubmitRequest)) api.SubmitRequest {
		r := l.sent("", one)
		f(&r)
		return r
	}
	for _, test := range []struct {
		r     api.SubmitRequest
		words string
	}{
		{change(func(r *api.SubmitRequest) { r.Batch.File = "jobs.txt" }), "expected an absolute path"},
		{change(func(r *api.SubmitRequest) { r.Batch.File = "/w/../jobs.txt" }), "expected an absolute path"},
		{change(func(r *api.SubmitRequest) { r.Batch.Lines = nil }), "expected as many lines as jobs, 1, found 0"},
		{change(func(r *api.SubmitRequest) { r.Batch.Retry = "some" }), "expected failed or all"},
		{change(func(r *api.SubmitRequest) { r.Jobs[0].Array = "0-3" }), "jobs.txt:1: array: expected no array in a jobs file"},
		{change(func(r *api.SubmitRequest) { r.Jobs[0].After = "prep" }), `jobs.txt:1: after: expected another job of the file, found "prep"`},
		{change(func(r *api.SubmitRequest) { r.Jobs[0].GPUs = "many" }), "jobs.txt:1: gpus"},
	} {
		l.refused(test.r, problem.Invalid, test.words)
	}
	l.refused(change(func(r *api.SubmitRequest) { r.Jobs[0] = sh("true", "gpus", "99") }), problem.Refused, "jobs.txt:1: ")
	if l.count(job.Queued) > 0 {
		t.Error("a job was queued")
	}
}
