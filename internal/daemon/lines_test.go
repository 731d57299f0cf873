package daemon

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/problem"
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
	reply, err := l.Submit(l.ctx, r)
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
	page, err := l.Jobs(l.ctx, api.Query{Select: api.Select{Batch: "/w/jobs.txt"}, Over: true})
	if err != nil || len(page.Jobs) != 3 {
		t.Errorf("the file has the jobs %+v (%v)", page.Jobs, err)
	}
	if n := len(l.actOn(api.ActCancel, api.Select{Batch: "/w/other.txt"}).Jobs); n > 0 {
		t.Errorf("%d jobs of another file", n)
	}
}

// TestTheOrderOfLines: queued lines that were moved start in their new order.
func TestTheOrderOfLines(t *testing.T) {
	l := newLab(t)
	gate, open := l.gate("go")
	blocker := l.one(sh(gate, "gpus", "2"))
	l.untilState(blocker, job.Running)
	line := func(name string) api.Spec { return sh("true # "+name, "gpus", "2", "name", name) }
	l.became(l.sent("", line("a"), line("b"), line("c")))
	l.became(l.sent("", line("c"), line("a"), line("b")))
	page, err := l.Jobs(l.ctx, api.Query{Queue: true})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, j := range page.Jobs[1:] {
		names = append(names, j.Name)
	}
	if diff := cmp.Diff([]string{"c", "a", "b"}, names); diff != "" {
		t.Error(diff)
	}
	open()
}

// TestALineMarkedCancel is not submitted, or stopped.
func TestALineMarkedCancel(t *testing.T) {
	l := newLab(t)
	gate, open := l.gate("go")
	defer open()
	r := l.sent("", sh(gate, "gpus", "0"), sh("true", "gpus", "0"))
	r.Batch.Lines[1].Cancel = true
	if got := l.became(r); got != "1 :cancelled" {
		t.Errorf("new: %s", got)
	}
	l.untilState("1", job.Running)
	r.Batch.Lines[0].Cancel = true
	l.became(r)
	l.untilState("1", job.Cancelled)
}

// TestAFileSentTwiceAtOnce: two clients that send the same file make one set of jobs.
func TestAFileSentTwiceAtOnce(t *testing.T) {
	l := newLab(t)
	var specs []api.Spec
	for range 20 {
		specs = append(specs, sh("true", "gpus", "0", "begin", "now+1h"))
	}
	var both sync.WaitGroup
	for range 4 {
		both.Go(func() {
			if _, err := l.Submit(l.ctx, l.sent("", specs...)); err != nil {
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
	l := newLab(t, with(func(c *Config) { c.MaxQueue = 2 }))
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
