package daemon

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// TestEveryKeyReachesTheJob: each key of a request is in the job's spec.
func TestEveryKeyReachesTheJob(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.Sim = 4 })
	first := l.one(sh("true", "hold", "yes"))
	rows := []struct {
		key, value string
		want       func(*job.Spec)
	}{
		{"name", "train", func(s *job.Spec) { s.Name = "train" }},
		{"gpus", "2", func(s *job.Spec) { s.GPUs = 2 }},
		{"gpus", "0.5", func(s *job.Spec) { s.GPUs, s.Share = 1, 0.5 }},
		{"gpus", "0", func(s *job.Spec) { s.GPUs = 0 }},
		{"gpus", "1.5", func(s *job.Spec) { s.GPUs = 2 }},
		{"type", "Simulated", func(s *job.Spec) { s.Type = "Simulated" }},
		{"vram", "18G", func(s *job.Spec) { s.VRAMMiB = 18432 }},
		{"vram", "auto", func(s *job.Spec) { s.VRAMAuto = true }},
		{"ids", "3,1", func(s *job.Spec) { s.GPUs, s.IDs = 2, []int{3, 1} }},
		{"allow", "0-2", func(s *job.Spec) { s.Allow = []int{0, 1, 2} }},
		{"exclusive", "yes", func(s *job.Spec) { s.Exclusive = true }},
		{"cpus", "1", func(s *job.Spec) { s.CPUs = 1 }},
		{"mem", "1G", func(s *job.Spec) { s.MemMiB = 1024 }},
		{"pin", "yes", func(s *job.Spec) { s.Pin = true }},
		{"inject_gpus", "--cuda=physical", func(s *job.Spec) { s.Inject = "--cuda=physical" }},
		{"priority", "-3", func(s *job.Spec) { s.Priority = -3 }},
		{"timeout", "1:30", func(s *job.Spec) { s.TimeLimit = 90 * time.Second }},
		{"signal", "USR1@60", func(s *job.Spec) { s.WarnSignal, s.WarnBefore = "USR1", time.Minute }},
		{"on_timeout", "requeue", func(s *job.Spec) { s.OnTimeout = job.TimeoutRequeue }},
		{"max_requeues", "3", func(s *job.Spec) { s.MaxRequeues = 3 }},
		{"retries", "2", func(s *job.Spec) { s.Retries = 2 }},
		{"retry_on", "fail", func(s *job.Spec) { s.RetryOn = job.RetryFail }},
		{"after", first + ":any", func(s *job.Spec) { s.After = []job.Dependency{{Job: first, On: job.AfterAny}} }},
		{"dir", "sub/dir", func(s *job.Spec) { s.Dir = filepath.Join(l.dir(), "sub/dir") }},
		{"dir", "/abs", func(s *job.Spec) { s.Dir = "/abs" }},
		{"dir", "~/x", func(s *job.Spec) { s.Dir = "~/x" }},
		{"export", "none", func(s *job.Spec) { s.Export = "none" }},
		{"export", "A,B", func(s *job.Spec) { s.Export = "A,B" }},
		{"venv", ".venv", func(s *job.Spec) { s.Venv = filepath.Join(l.dir(), ".venv") }},
		{"conda", "torch", func(s *job.Spec) { s.Conda = "torch" }},
		{"setup", "module load x", func(s *job.Spec) { s.Setup = "module load x" }},
		{"output", "%j.out", func(s *job.Spec) { s.Output = "%j.out" }},
		{"pty", "yes", func(s *job.Spec) { s.Pty = true }},
		{"requeue", "yes", func(s *job.Spec) { s.Requeue = true }},
		{"grace", "3s", func(s *job.Spec) { s.Grace = 3 * time.Second }},
		{"preemptible", "requeue", func(s *job.Spec) { s.Preemptible = "requeue" }},
		{"no_park", "yes", func(s *job.Spec) { s.NoPark = true }},
		{"slurm_env", "yes", func(s *job.Spec) { s.SlurmEnv = true }},
		{"to", "local", func(s *job.Spec) { s.To = job.ToLocal }},
		{"to", "slurm", func(s *job.Spec) { s.To = job.ToSlurm }},
		{"park_timeout", "2m", func(s *job.Spec) { s.ParkTimeout = 2 * time.Minute }},
		{"cap", "soft", func(s *job.Spec) { s.Cap = "soft" }},
		{"group", "io", func(s *job.Spec) { s.Group = "io" }},
		{"notify", "fail,end:exec:x y\nntfy:t", func(s *job.Spec) { s.Notify = []string{"end,fail:exec:x y", "end:ntfy:https://ntfy.sh/t"} }},
		{"env.A", "b c", func(s *job.Spec) { s.Env = []job.EnvVar{{Key: "A", Value: "b c"}} }},
	}
	seen := map[string]bool{"snapshot": true, "array": true, "max": true, "begin": true, "hold": true, "dedup": true, "slurm": true, "checkpoint": true, "checkpoint_file": true} // tested below
	for _, row := range rows {
		seen[row.key] = true
		id := l.one(sh("train "+row.key, row.key, row.value, "hold", "yes"))
		want := job.Defaults()
		want.Shell, want.Dir = "train "+row.key, l.dir()
		row.want(&want)
		j, err := l.d.svc.queue.Store.Job(id)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, j.Spec); diff != "" {
			t.Errorf("%s=%s (-want +got):\n%s", row.key, row.value, diff)
		}
	}
	for _, f := range jobfile.Fields() {
		if !seen[f.Key] && f.Where != jobfile.FileOnly && f.Key != "env" {
			t.Errorf("no row for %s", f.Key)
		}
	}
}

func TestAJobAsSubmitted(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	before := time.Now()
	id := l.one(sh("true", "hold", "yes"))
	j := l.job(id)
	if id != "1" || j.Name != "job1" || j.GPUs != 1 || j.Priority != 0 || j.Attempt != 0 || j.State != job.Queued || !j.Held || j.Log != nil {
		t.Errorf("%+v", j)
	}
	if j.User != l.d.people.Name(os.Getuid()) || j.SubmittedAt == nil || j.SubmittedAt.Before(before.Add(-time.Second)) {
		t.Errorf("of %s, submitted %v", j.User, j.SubmittedAt)
	}
	if value(j.Command) != "true" || j.Dir != l.dir() || !strings.Contains(value(j.Reason), "held") {
		t.Errorf("%v in %s: %s", value(j.Command), j.Dir, value(j.Reason))
	}
	words := l.one(api.Spec{Command: api.Command{Argv: []string{"printf", "%s|", "a b", "c'd"}}})
	if got := l.finished(words); got != "a b|c'd|" {
		t.Errorf("words came out as %q", got)
	}
}

func TestBadSubmissionsAreRefusedInASentence(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) {
		c.MaxArray, c.MaxSpecs, c.MaxEnviron, c.MaxQueue = 10, 5, 1000, 20
	}))
	long := strings.Repeat("x", maxWord+1)
	umask := func(n int) *int { return &n }
	one := func(pairs ...string) api.SubmitRequest {
		return api.SubmitRequest{Jobs: []api.Spec{sh("true", pairs...)}, Dir: "/"}
	}
	rows := []struct {
		name    string
		request api.SubmitRequest
		kind    problem.Kind
		words   []string
	}{
		{"not a size", one("vram", "much"), problem.Invalid, []string{"vram", "much", "expected auto"}},
		{"an unknown state", one("hold", "maybe"), problem.Invalid, []string{"hold", "maybe"}},
		{"memory of no card", one("gpus", "0", "vram", "4G"), problem.Invalid, []string{"gpus=0"}},
		{"a negative count", one("gpus", "-1"), problem.Invalid, []string{"gpus"}},
		{"a time long ago in words", one("begin", "yesterday"), problem.Invalid, []string{"begin"}},
		{"a job that never was", one("after", "99"), problem.Refused, []string{"99"}},
		{"the last of somebody who has none", one("after", "@"), problem.NotFound, []string{"no job"}},
		{"an unknown condition", one("after", "1:maybe"), problem.Invalid, []string{"maybe"}},
		{"more cards than there are", one("gpus", "9"), problem.Refused, []string{"9 GPUs", "2"}},
		{"more memory than a card has", one("vram", "40G"), problem.Refused, []string{"40960", "24064"}},
		{"a card that is not there", one("ids", "7"), problem.Refused, []string{"7"}},
		{"a card of another kind", one("type", "H900"), problem.Refused, []string{"h900"}},
		{"more cores than there are", one("cpus", "60000"), problem.Refused, []string{"60000"}},
		{"an array too large", one("array", "0-10"), problem.Invalid, []string{"at most 10"}},
		{"too many tasks in all", api.SubmitRequest{Jobs: []api.Spec{sh("a", "array", "0-9"), sh("b", "array", "0-9"), sh("c")}}, problem.TooMuch, []string{"20"}},
		{"too many jobs", api.SubmitRequest{Jobs: slices.Repeat([]api.Spec{sh("true")}, 6)}, problem.TooMuch, []string{"6", "5"}},
		{"no command", api.SubmitRequest{Jobs: []api.Spec{{}}}, problem.Invalid, []string{"no command"}},
		{"a blank command", api.SubmitRequest{Jobs: []api.Spec{sh(" \t")}}, problem.Invalid, []string{"no command"}},
		{"an empty word for a program", api.SubmitRequest{Jobs: []api.Spec{{Command: api.Command{Argv: []string{"", "x"}}}}}, problem.Invalid, []string{"no command"}},
		{"a zero byte", api.SubmitRequest{Jobs: []api.Spec{sh("a\x00b")}}, problem.Invalid, []string{"NUL byte"}},
		{"a line longer than the kernel takes", api.SubmitRequest{Jobs: []api.Spec{sh(long)}}, problem.TooMuch, []string{"131072", "131071"}},
		{"a variable with a bad name", api.SubmitRequest{Jobs: []api.Spec{{Command: api.Command{Shell: "true"}, Env: map[string]string{"A-B": "x"}}}}, problem.Invalid, []string{"A-B"}},
		{"a directory from nowhere", api.SubmitRequest{Jobs: []api.Spec{sh("true")}, Dir: "sub"}, problem.Invalid, []string{"absolute"}},
		{"no mask", api.SubmitRequest{Jobs: []api.Spec{sh("true")}, Umask: umask(0o1777)}, problem.Invalid, []string{"umask"}},
		{"an environment too large", api.SubmitRequest{Jobs: []api.Spec{sh("true")}, Environ: []string{"A=" + strings.Repeat("x", 1000)}}, problem.TooMuch, []string{"1003", "1000", "--export"}},
		{"no environment", api.SubmitRequest{Jobs: []api.Spec{sh("true")}, Environ: []string{"A"}}, problem.Invalid, []string{"NAME=value"}},
		{"one bad of several", api.SubmitRequest{Jobs: []api.Spec{sh("true"), sh("true", "gpus", "9")}}, problem.Refused, []string{"job 2 of 2"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			l.t = t
			l.refused(row.request, row.kind, row.words...)
		})
	}
	l.t = t
	if page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Over: true}); err != nil || page.Total != 0 {
		t.Errorf("%d jobs are there, %v", page.Total, err)
	}
	if id := l.one(sh("true", "hold", "yes")); id != "1" {
		t.Errorf("what was refused used up numbers: the first job is %s", id)
	}
}

// TestWhatIsTakenNowDecidesNothingForever: infeasible is measured against the
// empty machine.
func TestWhatIsTakenNowDecidesNothingForever(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	busy := l.one(sh(line, "gpus", "2"))
	l.untilState(busy, job.Running)
	waits := l.one(sh("true", "gpus", "2"))
	if j := l.job(waits); j.State != job.Queued || !strings.Contains(value(j.Reason), "2 idle GPUs") {
		t.Errorf("it is %s: %s", j.State, value(j.Reason))
	}
	open()
	l.finished(waits)
}

func TestArrays(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	script := `echo "$BERTH_ARRAY_INDEX in $BERTH_JOB_ID"; printf x >>` + filepath.Join(l.dir(), "at.$BERTH_ARRAY_INDEX")
	reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{
		Jobs: []api.Spec{sh("true", "hold", "yes"), sh(script, "gpus", "0", "array", "1-5:2,8", "output", filepath.Join(l.dir(), "%a-%j-%n-%u.out")), sh("true", "hold", "yes")},
		Dir:  l.dir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintln(reply.Jobs[0].ID, reply.Jobs[1].ID, reply.Jobs[1].Tasks, reply.Jobs[1].Name, reply.Jobs[2].ID); got != "1 2 4 job2 6\n" {
		t.Errorf("answer: %s", got)
	}
	user := l.d.people.Name(os.Getuid())
	for _, index := range []int{1, 3, 5, 8} {
		id := fmt.Sprintf("2_%d", index)
		if got, want := l.finished(id), fmt.Sprintf("%d in %s\n", index, id); got != want {
			t.Errorf("task %s printed %q, want %q", id, got, want)
		}
		if j := l.job(id); j.Array != "2" || value(j.Log) != filepath.Join(l.dir(), fmt.Sprintf("%d-%s-job%s-%s.out", index, id, id, user)) {
			t.Errorf("task of %s, log %s", j.Array, value(j.Log))
		}
		if ran, _ := os.ReadFile(filepath.Join(l.dir(), fmt.Sprintf("at.%d", index))); string(ran) != "x" {
			t.Errorf("task %s ran %d times", id, len(ran))
		}
	}
}

func TestAnArraysLimitIsKept(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	id := l.one(sh(line, "gpus", "0", "array", "0-5%2"))
	l.until("two tasks run", func() bool { return l.count(job.Running) == 2 })
	why, err := api.Call(l.ctx, l.Client, api.GetWhy, api.JobID{ID: id + "_4"})
	if err != nil || !strings.Contains(why.Text, "2") {
		t.Errorf("why: %q, %v", why.Text, err)
	}
	most := 0
	open()
	l.until("all are over", func() bool {
		most = max(most, l.count(job.Running))
		return l.count(job.Queued)+l.count(job.Running) == 0
	})
	if most > 2 {
		t.Errorf("%d ran at once", most)
	}
}

// count is how many jobs are in a state.
func (l *lab) count(state job.State) int {
	l.t.Helper()
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Select: api.Select{States: []string{string(state)}}, Over: true})
	if err != nil {
		l.t.Fatal(err)
	}
	return page.Total
}

func TestAfter(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	well := l.one(sh("true", "gpus", "0"))
	badly := l.one(sh("false", "gpus", "0"))
	line, open := l.gate("gate")
	array := l.one(sh(line, "gpus", "0.1", "array", "0-2"))
	l.end(badly)
	l.finished(well)
	rows := []struct {
		after string
		want  job.State
	}{
		{well, job.Finished}, {well + ":any", job.Finished}, {well + ":fail", job.Cancelled},
		{badly, job.Cancelled}, {badly + ":any", job.Finished}, {badly + ":fail", job.Finished},
		{well + "," + badly + ":fail", job.Finished}, {well + "," + badly, job.Cancelled},
	}
	for _, row := range rows {
		id := l.one(sh("true", "gpus", "0", "after", row.after))
		if j := l.end(id); j.State != row.want {
			t.Errorf("after %s it is %s (%s), want %s", row.after, j.State, value(j.Reason), row.want)
		} else if j.State == job.Cancelled && (value(j.Outcome) != job.Depends || !strings.Contains(value(j.Reason), "but that job ")) {
			t.Errorf("after %s: %s, %s", row.after, value(j.Outcome), value(j.Reason))
		}
	}
	whole := l.one(sh("true", "gpus", "0", "after", array))
	last := l.one(sh("true", "gpus", "0", "after", "@"))
	before := l.one(sh("true", "gpus", "0", "after", "@~1:any"))
	if j := l.job(whole); len(j.After) != 3 || j.State != job.Queued || !strings.Contains(value(j.Reason), "waits for job "+array) {
		t.Errorf("waits for %v, is %s: %s", j.After, j.State, value(j.Reason))
	}
	if j := l.job(last); len(j.After) != 1 || j.After[0].Job != whole {
		t.Errorf("@ was %v, want %s", j.After, whole)
	}
	if j := l.job(before); len(j.After) != 1 || j.After[0].Job != whole || j.After[0].On != job.AfterAny {
		t.Errorf("@~1 was %v, want %s", j.After, whole)
	}
	open()
	for _, id := range []string{whole, last, before} {
		l.finished(id)
	}
}

// TestAfterAStartATaskOrANamesake: what only the daemon can turn into ids.
func TestAfterAStartATaskOrANamesake(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	array := l.one(sh(line, "gpus", "0.1", "array", "1-3"))
	words := func(id string) (list []string) {
		for together := range job.Alternatives(l.job(id).After) {
			for _, d := range together {
				list = append(list, fmt.Sprint(d.Alt, " ", d.Job, ":", d.On, " ", d.DelayS))
			}
		}
		return list
	}
	each := l.one(sh("true", "gpus", "0", "array", "2,3,9", "after", array+"_%a:any"))
	all := []string{"0 " + array + "_1:any 0", "0 " + array + "_2:any 0", "0 " + array + "_3:any 0"}
	array2, _, _ := strings.Cut(each, "_")
	for task, want := range map[string][]string{"2": all[1:2], "3": all[2:], "9": all} {
		if got := words(array2 + "_" + task); !slices.Equal(got, want) {
			t.Errorf("task %s waits for %q, want %q", task, got, want)
		}
	}
	whole := l.one(sh("true", "gpus", "0", "after", array+"_%a:start|"+array+"_2:start+5m"))
	if got := words(whole); len(got) != 4 || got[0] != "0 "+array+"_1:start 0" || got[3] != "1 "+array+"_2:start 300" {
		t.Errorf("no array waits for %q", got)
	}
	l.finished(whole) // they have all started
	first := l.one(sh(line, "gpus", "0.1", "name", "one"))
	second := l.one(sh(line, "gpus", "0.1", "name", "one", "after", "@name:any"))
	third := l.one(sh("true", "gpus", "0", "name", "one", "array", "0-1", "after", "@name:any"))
	if got, want := words(third+"_1"), []string{"0 " + first + ":any 0", "0 " + second + ":any 0"}; !slices.Equal(got, want) {
		t.Errorf("the third waits for %q, want %q", got, want)
	}
	reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", "gpus", "0", "name", "new", "after", "@name:any"), sh("true", "gpus", "0", "name", "new", "after", "@name:any|"+first)}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := words(reply.Jobs[1].ID), []string{"0 " + reply.Jobs[0].ID + ":any 0", "1 " + first + ":ok 0"}; !slices.Equal(got, want) || len(words(reply.Jobs[0].ID)) != 0 {
		t.Errorf("within a request: %q, want %q; the first waits for %q", got, want, words(reply.Jobs[0].ID))
	}
	if _, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", "after", "@name")}, Dir: "/"}); problem.KindOf(err) != problem.Invalid {
		t.Errorf("a job without a name: %v", err)
	}
	open()
	l.finished(third + "_1")
}

func TestBeginIsNotBefore(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	begin := time.Now().Add(4500 * time.Millisecond) // time enough to submit it
	soon := l.one(sh("true", "begin", begin.Format("2006-01-02T15:04:05")))
	late := l.one(sh("true", "begin", "now+2h"))
	if j := l.job(late); j.NotBefore == nil || time.Until(*j.NotBefore) < time.Hour || !strings.Contains(value(j.Reason), "not before") {
		t.Errorf("not before %v: %s", j.NotBefore, value(j.Reason))
	}
	l.finished(soon)
	if j := l.job(soon); j.StartedAt.Before(begin.Truncate(time.Second)) {
		t.Errorf("began %s, was to begin at %s", j.StartedAt, begin)
	}
}

func TestManySpecsAreAllOrNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	specs := slices.Repeat([]api.Spec{sh("true", "hold", "yes")}, 500)
	specs[499] = sh("true", "gpus", "3")
	l.refused(api.SubmitRequest{Jobs: specs}, problem.Refused, "job 500 of 500")
	if n := l.count(job.Queued); n != 0 {
		t.Errorf("%d were taken", n)
	}
	specs[499] = sh("true", "hold", "yes")
	if ids := l.submit(specs...); len(ids) != 500 || l.count(job.Queued) != 500 {
		t.Errorf("%d ids, %d queued", len(ids), l.count(job.Queued))
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, _ := l.gate("gate")
	busy := l.one(sh(line, "gpus", "1"))
	l.untilState(busy, job.Running)
	rows := []struct {
		spec   api.Spec
		state  string
		reason string
		gpus   []int
	}{
		{sh("true"), "starts", "", []int{1}},
		{sh("true", "gpus", "2"), "waits", "2 idle GPUs", nil},
		{sh("true", "gpus", "9"), "infeasible", "9 GPUs", nil},
		{sh("true", "hold", "yes"), "waits", "held", nil},
		{sh("true", "begin", "now+1h"), "waits", "not before", nil},
		{sh("true", "after", busy), "waits", "waits for job " + busy, nil},
		{sh("true", "gpus", "0", "array", "0-3"), "starts", "", nil},
	}
	var request api.SubmitRequest
	for _, row := range rows {
		request.Jobs = append(request.Jobs, row.spec)
	}
	request.DryRun = true
	reply, err := api.Call(l.ctx, l.Client, api.Submit, request)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		got := reply.Jobs[i]
		if got.ID != "" || got.State != row.state || !strings.Contains(got.Reason, row.reason) || !slices.Equal(got.GPUIDs, row.gpus) {
			t.Errorf("%s: %+v", row.state, got)
		}
	}
	if reply.Jobs[6].Tasks != 4 {
		t.Errorf("%d tasks", reply.Jobs[6].Tasks)
	}
	l.refused(api.SubmitRequest{DryRun: true, Jobs: []api.Spec{sh("true", "vram", "x")}}, problem.Invalid)
	if page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Over: true}); err != nil || page.Total != 1 {
		t.Errorf("%d jobs are there, %v", page.Total, err)
	}
	if id := l.one(sh("true", "hold", "yes")); id != "2" {
		t.Errorf("the next job is %s", id)
	}
}

func TestDedup(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	same := func(pairs ...string) api.SubmitRequest {
		return api.SubmitRequest{Jobs: []api.Spec{sh("exit $(cat code)", append(pairs, "gpus", "0", "dedup", "yes")...)}, Dir: l.dir()}
	}
	accepted := func(r api.SubmitRequest) string {
		t.Helper()
		reply, err := api.Call(l.ctx, l.Client, api.Submit, r)
		if err != nil {
			t.Fatal(err)
		}
		return reply.Jobs[0].ID
	}
	l.write(filepath.Join(l.dir(), "code"), "1")
	held := accepted(same("hold", "yes"))
	l.refused(same(), problem.Refused, held) // queued
	l.act(api.ActRelease, held)
	l.end(held)
	again := accepted(same()) // it failed
	l.end(again)
	l.write(filepath.Join(l.dir(), "code"), "0")
	well := accepted(same())
	l.finished(well)
	l.refused(same(), problem.Refused, well)
	l.refused(api.SubmitRequest{DryRun: true, Jobs: same().Jobs, Dir: l.dir()}, problem.Refused, well)

	// One that fails later does not hide the one that ended well.
	l.write(filepath.Join(l.dir(), "code"), "1")
	plain := same()
	plain.Jobs[0].Dedup = ""
	l.end(accepted(plain))
	l.refused(same(), problem.Refused, well)

	for _, other := range []api.SubmitRequest{same("env.A", "1"), same("dir", "/"), same("setup", "true"), same("venv", "v")} {
		l.end(accepted(other))
	}
	twice := same("env.B", "1")
	twice.Jobs = append(twice.Jobs, twice.Jobs[0])
	l.refused(twice, problem.Refused, "job 2 of 2", "in this request")
	array := same("env.C", "1", "array", "0-2")
	l.end(accepted(array) + "_0") // its tasks are not one another's twins
}

func TestDedupSeesWhatIsEditedAndRequeued(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.one(sh("x", "hold", "yes", "dedup", "yes"))
	failed := l.one(sh("false", "gpus", "0"))
	l.end(failed)
	l.one(sh("false", "gpus", "0", "hold", "yes", "dedup", "yes"))
	l.act(api.ActCancel, "3")
	line, _ := l.gate("gate")
	if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: "1"}, Set: sh(line)}); err != nil {
		t.Fatal(err)
	}
	l.refused(api.SubmitRequest{Jobs: []api.Spec{sh(line, "dedup", "yes")}, Dir: l.dir()}, problem.Refused, "job 1 ")
	l.one(sh("x", "hold", "yes", "dedup", "yes")) // it is something else by now
	if got := did(l.act(api.ActRequeue, failed)); got != failed+":done" {
		t.Fatal(got)
	}
	l.act(api.ActHold, failed)
	if j := l.job(failed); j.State == job.Queued {
		l.refused(api.SubmitRequest{Jobs: []api.Spec{sh("false", "gpus", "0", "dedup", "yes")}, Dir: l.dir()}, problem.Refused, "job "+failed)
	}
}

func TestOneOfManyTwinsAtOnceIsTaken(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var taken sync.Map
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", "hold", "yes", "dedup", "yes")}, Dir: "/"})
			if err == nil {
				taken.Store(reply.Jobs[0].ID, true)
			}
		})
	}
	group.Wait()
	count := 0
	taken.Range(func(any, any) bool { count++; return true })
	if count != 1 {
		t.Errorf("%d of the same were taken", count)
	}
}

func TestLimitsOfTheQueue(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.MaxQueue = 10 }))
	ids := l.submit(slices.Repeat([]api.Spec{sh("true", "hold", "yes")}, 8)...)
	l.refused(api.SubmitRequest{Jobs: slices.Repeat([]api.Spec{sh("true")}, 3)}, problem.TooMuch, "8", "3", "10")
	l.refused(api.SubmitRequest{DryRun: true, Jobs: slices.Repeat([]api.Spec{sh("true")}, 3)}, problem.TooMuch, "10")
	l.act(api.ActCancel, ids[0], ids[1], ids[2])
	l.submit(slices.Repeat([]api.Spec{sh("true", "hold", "yes")}, 3)...)
	l.submit(slices.Repeat([]api.Spec{sh("true", "hold", "yes")}, 2)...)
	// What is over counts again once it is back.
	if got := did(l.act(api.ActRequeue, ids[0])); !strings.Contains(got, "not") || !strings.Contains(got, "limit of 10") {
		t.Errorf("requeue: %s", got)
	}
	// Many at once do not slip through together.
	l.act(api.ActCancel, "all")
	var group sync.WaitGroup
	for range 30 {
		group.Go(func() {
			_, _ = api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", "hold", "yes")}})
		})
	}
	group.Wait()
	if n := l.count(job.Queued); n != 10 {
		t.Errorf("%d are queued, at most 10 may", n)
	}
}

// TestJobsOfARequestAreThoseOfTheirSpecs, although specs that are alike are read once.
func TestJobsOfARequestAreThoseOfTheirSpecs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var specs []api.Spec
	for i := range 3 {
		n := strconv.Itoa(i)
		specs = append(specs, sh("true "+n), sh("true "+n, "name", "x"+n), sh("true "+n, "hold", "yes"), sh("true "+n, "name", "x", "vram", "4G"),
			sh("true "+n, "vram", "4G"), sh("true", "env.SEED", n), sh("true", "array", "0-"+n), sh("true", "dir", "d"+n), sh("true", "begin", "now+1h", "name", "y"+n),
			api.Spec{Command: api.Command{Argv: []string{"a", n}}}, sh("true", "gpus", n, "name", "z"))
	}
	together := l.submit(specs...)
	for i, spec := range specs {
		read := func(id string) *job.Job {
			j, err := l.d.svc.queue.Store.Job(id)
			if err != nil {
				j, err = l.d.svc.queue.Store.Job(id + "_0")
			}
			testkit.Must(t, err)
			return j
		}
		in, alone := read(together[i]), read(l.one(spec))
		if fmt.Sprintf("%+v", in.Spec) != fmt.Sprintf("%+v", alone.Spec) || in.Held != alone.Held || in.NotBefore.IsZero() != alone.NotBefore.IsZero() {
			t.Errorf("%+v became %+v with others, and %+v alone", spec, in, alone)
		}
	}
	l.refused(api.SubmitRequest{Jobs: []api.Spec{sh("true", "name", "x"), sh("true", "name", "x\n")}}, problem.Invalid, "job 2 of 2: name: expected")
}

// TestALargeRequestAllocatesLittle: bytes for each of its jobs, from its specs to the
// answer, with today's number. 1.7 kB of it are the job itself.
func TestALargeRequestAllocatesLittle(t *testing.T) {
	l := newLab(t)
	const jobs, most = 2000, 4_100
	caller, fewest := api.Caller{Name: "root", Admin: true}, uint64(math.MaxUint64)
	for range 4 {
		r := api.SubmitRequest{Dir: "/", Environ: []string{"A=b"}, Jobs: slices.Repeat([]api.Spec{sh("true", "hold", "yes", "gpus", "1")}, jobs)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reply, err := l.d.submits.Submit(l.ctx, caller, r)
		testkit.Must(t, err)
		runtime.ReadMemStats(&after)
		if len(reply.Jobs) != jobs {
			t.Fatalf("%d of %d jobs", len(reply.Jobs), jobs)
		}
		fewest = min(fewest, (after.TotalAlloc-before.TotalAlloc)/jobs)
	}
	if t.Logf("%d bytes for each job", fewest); fewest > most {
		t.Errorf("expected at most %d bytes for each job, found %d", most, fewest)
	}
}
