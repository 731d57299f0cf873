package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// person is a user of a shared daemon. What is asked in their name goes the
// way of a request that the kernel has vouched for.
type person struct {
	*lab
	api.Caller
}

// newSharedLab starts a daemon for all users; it must be root's.
func newSharedLab(t *testing.T, change ...func(*Options)) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a shared daemon is root's")
	}
	return newLab(t, append([]func(*Options){func(o *Options) { o.Places.Shared = true }}, change...)...)
}

// as is a user of the machine; one that it does not have skips the test.
func (l *lab) as(name string) person {
	l.t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		l.t.Skipf("this machine has no user %s", name)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := l.d.door.Identify(l.ctx, api.Peer{UID: uid})
	if err != nil {
		l.t.Fatal(err)
	}
	return person{l, c}
}

func (p person) submit(specs ...api.Spec) []string {
	p.t.Helper()
	reply, err := p.d.submits.Submit(p.ctx, p.Caller, api.SubmitRequest{Jobs: specs, Dir: "/", Environ: []string{"PATH=" + os.Getenv("PATH"), "SECRET=of " + p.Name}})
	if err != nil {
		p.t.Fatalf("%s submits: %v", p.Name, err)
	}
	var ids []string
	for _, j := range reply.Jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

func (p person) act(action string, sel api.Select) string {
	p.t.Helper()
	reply, err := p.d.actions.Act(p.ctx, p.Caller, api.ActRequest{Action: action, Select: sel})
	if err != nil {
		return err.Error()
	}
	return did(reply)
}

func TestJobsRunAsWhoSubmittedThem(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	for _, name := range []string{"daemon", "nobody", "root"} {
		p := l.as(name)
		id := p.submit(sh("id -un; pwd; echo $SECRET $USER", "gpus", "0"))[0]
		if got, want := l.finished(id), fmt.Sprintf("%s\n/\nof %s %s\n", name, name, name); got != want {
			t.Errorf("%s's job printed %q, want %q", name, got, want)
		}
		if j := l.job(id); j.User != name {
			t.Errorf("it belongs to %s, want %s", j.User, name)
		}
		dir := filepath.Join(l.d.people.JobsDir, id)
		if owner, mode := ownerOf(t, dir); owner != 0 || mode.Perm() != 0o711 {
			t.Errorf("its directory belongs to %d, mode %v", owner, mode)
		}
		if owner, mode := ownerOf(t, filepath.Join(dir, "1.log")); owner != p.UID || mode.Perm() != 0o600 {
			t.Errorf("its log belongs to %d, mode %v", owner, mode)
		}
	}
}

// TestWhatIsNotYoursIsNotShown looks for a user's secrets in all that another
// can read.
func TestWhatIsNotYoursIsNotShown(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	ann, bob, root := l.as("daemon"), l.as("nobody"), l.as("root")
	const secret = "hunter2"
	place := filepath.Join(l.dir(), secret)
	if err := os.Mkdir(place, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(place, 0o777); err != nil {
		t.Fatal(err)
	}
	line, _ := l.gate("gate")
	hidden := []string{"env.KEY", secret, "output", place + "/%j", "setup", ": " + secret, "dir", place, "gpus", "0.1", "notify", "start:webhook:http://127.0.0.1:1/" + secret}
	failing := ann.submit(sh("exit 1 # "+secret, hidden...))[0]
	l.end(failing) // beside another job on the GPU it would start only once that one is measured
	running := ann.submit(sh("echo "+secret+";"+line, hidden...))[0]
	nowhere := ann.submit(sh("true", "dir", place+"/missing", "gpus", "0"))[0]
	queued := ann.submit(sh("true # "+secret, append(hidden, "hold", "yes")...))[0]
	l.untilState(running, job.Running)
	if j := l.end(nowhere); value(j.Outcome) != job.Launch || !strings.Contains(value(j.Reason), secret) {
		t.Fatalf("it ended %s: %s", value(j.Outcome), value(j.Reason))
	}
	look := func(p person) string {
		var seen []any
		add := func(v any, err error) {
			if err != nil {
				v = err.Error()
			}
			seen = append(seen, v)
		}
		for _, q := range []api.Query{{Reasons: true}, {Over: true}, {Over: true, Newest: true}, {Select: api.Select{Words: []string{"1-9"}}}} {
			page, err := p.d.jobs.Jobs(l.ctx, p.Caller, q)
			add(page, err)
		}
		for _, id := range []string{running, failing, nowhere, queued} {
			detail, err := p.d.jobs.Job(l.ctx, p.Caller, id)
			add(detail, err)
			why, err := p.d.jobs.Why(l.ctx, p.Caller, id)
			add(why, err)
			wait, err := p.d.waits.Wait(l.ctx, p.Caller, api.WaitRequest{Select: api.Select{Words: []string{id}}, TimeoutS: 0.001})
			add(wait, err)
			add(p.act(api.ActHold, api.Select{Words: []string{id}}), nil)
		}
		cards, err := p.d.cards.GPUs(l.ctx, p.Caller)
		add(cards, err)
		stats, err := p.d.history.Stats(l.ctx, p.Caller, api.StatsQuery{})
		add(stats, err)
		status, err := p.d.admin.Status(l.ctx, p.Caller)
		add(status, err)
		ctx, cancel := context.WithCancel(l.ctx)
		last, err := l.d.svc.queue.Store.LastEvent()
		add(last, err)
		err = p.d.events.Events(ctx, p.Caller, api.EventQuery{Since: 0, GPUs: true}, func(ev api.Event) error {
			add(ev, nil)
			if ev.Seq >= last {
				cancel()
			}
			return nil
		})
		add("", err)
		data, err := json.Marshal(seen)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if text := look(bob); strings.Contains(text, secret) {
		at := strings.Index(text, secret)
		t.Errorf("another user sees …%s…", text[max(0, at-200):min(len(text), at+50)])
	}
	for _, p := range []person{ann, root} {
		if n := strings.Count(look(p), secret); n < 20 {
			t.Errorf("%s sees it %d times", p.Name, n)
		}
	}
	for _, order := range [][]person{{ann, bob}, {bob, ann}} { // listeners share what was written for one of them
		ev := &told{Event: job.Event{Kind: job.EventStarted, Job: &job.Job{ID: "1", UID: ann.UID, User: ann.Name, Spec: job.Spec{Shell: secret}}}}
		for _, p := range order {
			if e := l.d.events.as(ev, p.Caller); (value(e.Job.Command) == secret) != (p.Name == ann.Name) {
				t.Errorf("of %s's job, %s hears %s", ann.Name, p.Name, value(e.Job.Command))
			}
		}
	}
	for _, id := range []string{running, failing, queued} {
		_, err := l.d.logs.Log(l.ctx, bob.Caller, api.LogQuery{ID: id})
		wantProblem(t, err, problem.Forbidden, "daemon")
		_, err = l.d.terminals.Attach(l.ctx, bob.Caller, id)
		wantProblem(t, err, problem.Forbidden, "daemon")
		_, err = l.d.actions.Edit(l.ctx, bob.Caller, api.EditRequest{JobID: api.JobID{ID: id}, Set: editOf("priority", "1")})
		wantProblem(t, err, problem.Forbidden, "daemon")
	}
	l.d.svc.cfg.Store(func() *config.Config { c := *l.d.svc.Config(); c.ShowCommands = config.ShowAllCommands; return &c }())
	if detail, err := l.d.jobs.Job(l.ctx, bob.Caller, running); err != nil || detail.Command == nil || len(detail.Env) > 0 || detail.Settings["notify"] != "" {
		t.Errorf("where commands are shown: %+v, %v", detail, err)
	}
	admin := bob.Caller
	admin.Admin = true
	if detail, err := l.d.jobs.Job(l.ctx, admin, running); err != nil || detail.Settings["notify"] != "" {
		t.Errorf("an administrator who is not root sees %+v, %v", detail.Settings, err)
	}
	if detail, err := l.d.jobs.Job(l.ctx, ann.Caller, running); err != nil || detail.Settings["notify"] == "" {
		t.Errorf("the owner sees %+v, %v", detail.Settings, err)
	}
}

func TestNobodyTouchesOthersJobs(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	ann, bob, root := l.as("daemon"), l.as("nobody"), l.as("root")
	hers := ann.submit(sh("true", "hold", "yes"), sh("true", "hold", "yes"))
	his := bob.submit(sh("true", "hold", "yes"))[0]
	for _, action := range []string{api.ActCancel, api.ActHold, api.ActRelease, api.ActRequeue} {
		if got := bob.act(action, api.Select{Words: hers[:1]}); got != hers[0]+":not it belongs to daemon" {
			t.Errorf("%s: %s", action, got)
		}
	}
	if got := bob.act(api.ActCancel, api.Select{User: "daemon"}); strings.Contains(got, "done") {
		t.Errorf("by user: %s", got)
	}
	if got := bob.act(api.ActCancel, api.Select{All: true}); got != his+":done" {
		t.Errorf("all of his own: %s", got)
	}
	if got := root.act(api.ActCancel, api.Select{All: true}); got != "" {
		t.Errorf("all of root's own: %s", got)
	}
	if got := root.act(api.ActCancel, api.Select{User: "daemon"}); got != hers[0]+":done, "+hers[1]+":done" {
		t.Errorf("an administrator by user: %s", got)
	}
	if j := l.job(hers[0]); !strings.Contains(value(j.Reason), "by root") {
		t.Errorf("cancelled: %s", value(j.Reason))
	}
	_, err := l.d.cards.PauseGPU(l.ctx, bob.Caller, 0, true)
	wantProblem(t, err, problem.Forbidden, "administrator")
	err = l.d.admin.Backup(l.ctx, bob.Caller, os.Stdout)
	wantProblem(t, err, problem.Forbidden, "administrator")
	audit, err := os.ReadFile(filepath.Join(l.opt.Places.StateDir, "audit.jsonl"))
	if err != nil || strings.Count(string(audit), "not the caller's") < 4 || !strings.Contains(string(audit), "gpu pause") {
		t.Errorf("the audit says %s, %v", audit, err)
	}
}

// TestARefusalSaysWhoMay: it tells an administrator, who may do much with another's
// job, what only its owner may.
func TestARefusalSaysWhoMay(t *testing.T) {
	t.Parallel()
	j := &job.Job{ID: "1", User: "ann", UID: 1}
	for caller, want := range map[api.Caller]string{
		{UID: 2}:              "its owner and administrators may do this",
		{UID: 3, Admin: true}: "only its owner and root may decide what it executes",
	} {
		if p := notYours(caller, j); p.Kind != problem.Forbidden || !strings.HasPrefix(p.Hint, want) {
			t.Errorf("%+v: %s", caller, p.Hint)
		}
	}
}

func TestAfterAndDedupAreOnesOwn(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	ann, bob := l.as("daemon"), l.as("nobody")
	first := ann.submit(sh("true", "hold", "yes", "dedup", "yes"))[0]
	second := bob.submit(sh("true", "hold", "yes", "dedup", "yes"))[0] // the same, but another's
	if first == second {
		t.Error("one job for two")
	}
	mine := bob.submit(sh("true", "after", "@"))[0]
	if j := l.job(mine); j.After[0].Job != second {
		t.Errorf("@ was %s, want %s", j.After[0].Job, second)
	}
}

func TestLimitsOfUsers(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t, with(func(c *config.Config) {
		c.QueuedJobs, c.QueuedJobsOf = 3, map[string]int{"nobody": 1}
		c.Limits.Default.Jobs = 2
		c.Limits.Users = map[string]config.UserLimit{"nobody": {GPUs: config.Portion{Amount: 0.25}}}
	}))
	ann, bob, root := l.as("daemon"), l.as("nobody"), l.as("root")
	request := func(n int, pairs ...string) api.SubmitRequest {
		return api.SubmitRequest{Dir: "/", Jobs: slices.Repeat([]api.Spec{sh("sleep 1000", append(pairs, "grace", "1s")...)}, n)}
	}
	_, err := l.d.submits.Submit(l.ctx, ann.Caller, request(4))
	wantProblem(t, err, problem.TooMuch, "3")
	ids := ann.submit(append(request(1, "gpus", "0").Jobs, request(2, "gpus", "0.2").Jobs...)...)
	_, err = l.d.submits.Submit(l.ctx, ann.Caller, request(1))
	wantProblem(t, err, problem.TooMuch, "3 unfinished jobs", "limit of 3")
	l.untilState(ids[1], job.Running)
	l.wantReasons(map[string]string{ids[2]: "limit per user is 2"})
	_, err = l.d.submits.Submit(l.ctx, bob.Caller, request(2))
	wantProblem(t, err, problem.TooMuch, "1")
	_, err = l.d.submits.Submit(l.ctx, bob.Caller, request(1, "gpus", "0.5"))
	wantProblem(t, err, problem.Refused, "0.25")
	his := bob.submit(request(1, "gpus", "0.2").Jobs...)
	l.untilState(his[0], job.Running)
	if _, err := l.d.submits.Submit(l.ctx, root.Caller, request(5, "hold", "yes")); err != nil {
		t.Errorf("an administrator is held to it: %v", err)
	}
}

// TestLimitsOnTheHost: one user's jobs leave CPUs and memory to others, also if they
// never end.
func TestLimitsOnTheHost(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t, with(func(c *config.Config) {
		c.Limits.Default.CPUs, c.Limits.Default.Memory = config.Portion{Amount: 1}, config.Portion{Amount: 100}
		c.Limits.Users = map[string]config.UserLimit{"nobody": {Memory: config.Portion{Amount: 50}}}
	}))
	ann, bob := l.as("daemon"), l.as("nobody")
	asleep := func(pairs ...string) api.Spec {
		return sh("sleep 1000", append([]string{"gpus", "0", "grace", "1s"}, pairs...)...)
	}
	ids := ann.submit(asleep("mem", "60"), asleep(), asleep("gpus", "1", "mem", "50"))
	l.untilState(ids[0], job.Running)
	l.wantReasons(map[string]string{
		ids[1]: "daemon holds 1 CPU and this job needs 1 more; the limit per user is 1 (limits.cpus)",
		ids[2]: "daemon holds 60 MiB of memory and this job needs 50 more; the limit per user is 100 (limits.memory_total)",
	})
	for _, c := range []struct {
		from   person
		asks   api.Spec
		reason string
	}{
		{ann, asleep("cpus", "2"), "asks for 2 CPUs; the limit per user is 1 (limits.cpus)"},
		{ann, asleep("mem", "101"), "asks for 101 MiB of memory; the limit per user is 100 (limits.memory_total)"},
		{bob, asleep("mem", "51"), "asks for 51 MiB of memory; the limit for nobody is 50 (limits.users.nobody.memory_total)"},
	} {
		_, err := l.d.submits.Submit(l.ctx, c.from.Caller, api.SubmitRequest{Dir: "/", Jobs: []api.Spec{c.asks}})
		wantProblem(t, err, problem.Refused, c.reason)
	}
	if cpus, _ := site.Host(); cpus > 1 {
		l.untilState(bob.submit(asleep())[0], job.Running)
	}
}

// TestUsersShare: of two who want everything, each has a turn before the other
// has had all, whoever came first; a higher priority goes before, also of who had
// most. How long a job takes is the machine's matter, and so is who is next.
//
// seeds: M23
func TestUsersShare(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t, func(o *Options) { o.Sim = 1 })
	ann, bob := l.as("daemon"), l.as("nobody")
	line, open := l.gate("gate")
	busy := l.as("root").submit(sh(line))[0]
	l.untilState(busy, job.Running)
	hers := ann.submit(slices.Repeat([]api.Spec{sh("true")}, 6)...)
	his := bob.submit(slices.Repeat([]api.Spec{sh("true")}, 6)...)
	urgent := l.as("root").submit(sh("true", "priority", "5"))[0]
	open()
	started := map[string]string{}
	for _, id := range slices.Concat(hers, his, []string{urgent}) {
		l.finished(id)
		started[l.job(id).StartedAt.Format("15:04:05.000000000")] = id
	}
	var order []string
	for _, at := range slices.Sorted(mapKeys(started)) {
		order = append(order, started[at])
	}
	if order[0] != urgent {
		t.Errorf("the urgent one came %v", order)
	}
	early := 0
	for _, id := range order[1:7] {
		if slices.Contains(his, id) {
			early++
		}
	}
	if early < 1 || early > 5 {
		t.Errorf("of the first six, %d were of who came last: %v", early, order)
	}
	l.restart()
	if value, err := l.d.svc.queue.Store.Meta("usage"); err != nil || !strings.Contains(value, `"daemon"`) || !strings.Contains(value, `"nobody"`) {
		t.Errorf("what users had was forgotten: %q, %v", value, err)
	}
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestIdentify(t *testing.T) {
	l := newSharedLab(t, with(func(c *config.Config) { c.AdminGroup = "nogroup" }))
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	group, err := user.LookupGroupId(nobody.Gid)
	if err != nil || group.Name != "nogroup" {
		t.Skip("nobody's group has another name here")
	}
	for _, row := range []struct {
		uid, gid int
		want     string
	}{
		{0, 0, "0 root admin=true"},
		{uid, gid, fmt.Sprintf("%d nobody admin=true", uid)}, // the group is the database's word
		{uid, 1, fmt.Sprintf("%d nobody admin=true", uid)},   // and not the process's
		{1, 1, "1 daemon admin=false"},
		{1, gid, "1 daemon admin=false"},
		{54321, 54321, "problem: there is no user with uid 54321"},
	} {
		if got := l.callAs(row.uid, row.gid); got != row.want {
			t.Errorf("%d:%d is told %q, want %q", row.uid, row.gid, got, row.want)
		}
	}
}

func TestAPrivateDaemonIsPrivate(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	l := newLab(t)
	for _, uid := range []int{1, 54321} {
		if got := l.callAs(uid, uid); !strings.HasPrefix(got, "problem: ") {
			t.Errorf("uid %d is told %q", uid, got)
		}
		_, err := l.d.door.Identify(l.ctx, api.Peer{UID: uid})
		wantProblem(t, err, problem.Forbidden, "private")
	}
	info, err := os.Stat(l.opt.Places.Socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its socket: %v, %v", info.Mode(), err)
	}
}

// TestADirectoryServiceThatDoesNotAnswerLetsNobodyIn: of a shared daemon; who
// owns a private one is the kernel's word.
func TestADirectoryServiceThatDoesNotAnswerLetsNobodyIn(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint("shared: ", shared), func(t *testing.T) {
			l := newLab(t, func(o *Options) { o.Places.Shared = shared && os.Getuid() == 0 })
			if shared != l.opt.Places.Shared {
				t.Skip("a shared daemon is root's")
			}
			ctx, cancel := context.WithCancel(l.ctx)
			cancel() // nobody waits for the answer
			asked := api.Peer{UID: 54321}
			if !shared {
				asked.UID = os.Getuid()
			}
			c, err := l.d.door.Identify(ctx, asked)
			if shared {
				wantProblem(t, err, problem.Unable, "cannot be looked up")
			} else if err != nil || c.UID != os.Getuid() {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

func ownerOf(t *testing.T, path string) (uid int, mode os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	testkit.Must(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid), info.Mode()
}
