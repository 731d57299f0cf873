package daemon

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/problem"
	"berth/internal/sched"
)

// sleeps starts a process that berth knows nothing of, as a user if one is
// named.
func (l *lab) sleeps(as *person) int {
	l.t.Helper()
	cmd := exec.Command("sleep", "600")
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(as.UID), Gid: 65534}}
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestAnAdoptedProcessSurvivesTheDaemonAndItsJob(t *testing.T) {
	l := newLab(t)
	pid := l.sleeps(nil)
	d, err := l.Adopt(l.ctx, api.AdoptRequest{PID: pid, GPUs: []int{1}, VRAM: "2G", Name: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if d.State != job.Running || d.Name != "mine" || value(d.VRAMMiB) != 2048 || d.Settings["process"] != strconv.Itoa(pid) || value(d.Command) != "sleep 600" || d.BudgetMiB != 2048 {
		t.Errorf("it is %+v", d)
	}
	l.restart()
	if j := l.job(d.ID); j.State != job.Running || j.Attempt != 1 {
		t.Errorf("after a restart it is %s, attempt %d", j.State, j.Attempt)
	}
	_, err = l.Adopt(l.ctx, api.AdoptRequest{PID: pid, GPUs: []int{0}})
	wantProblem(t, err, problem.Refused, "already adopted, as job "+d.ID)
	reply, err := l.Act(l.ctx, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: []string{d.ID}}})
	if err != nil || !strings.HasSuffix(reply.Jobs[0].What, "process "+strconv.Itoa(pid)+" keeps running") {
		t.Errorf("cancelled: %+v, %v", reply, err)
	}
	if j := l.end(d.ID); value(j.Outcome) != job.WasCancelled || j.ExitCode != nil || j.Signal != nil {
		t.Errorf("it ended %s, %v, %v", value(j.Outcome), j.ExitCode, value(j.Signal))
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the process: %v", err)
	}
	for _, action := range []string{api.ActRequeue, api.ActHold, api.ActRelease} {
		reply, err := l.Act(l.ctx, api.ActRequest{Action: action, Select: api.Select{Words: []string{d.ID}}})
		if err != nil || reply.Jobs[0].Done || !strings.Contains(reply.Jobs[0].What, "represents process") {
			t.Errorf("%s: %+v, %v", action, reply, err)
		}
	}
}

func TestTwoWhoAdoptTheSameProcessAtOnceGetOneJob(t *testing.T) {
	l := newLab(t)
	pid := l.sleeps(nil)
	answers := make(chan error, 8)
	for range cap(answers) {
		go func() {
			_, err := l.Adopt(l.ctx, api.AdoptRequest{PID: pid, GPUs: []int{0}})
			answers <- err
		}()
	}
	good := 0
	for range cap(answers) {
		if err := <-answers; err == nil {
			good++
		} else {
			wantProblem(t, err, problem.Refused, "already adopted")
		}
	}
	if good != 1 {
		t.Errorf("%d of them got it", good)
	}
}

func TestWhoseProcessMayBeAdopted(t *testing.T) {
	l := newSharedLab(t)
	ann, bob, root := l.as("daemon"), l.as("nobody"), l.as("root")
	pid := l.sleeps(&ann)
	ask := func(p person, pid int) error {
		_, err := l.d.Adopt(l.ctx, p.Caller, api.AdoptRequest{PID: pid, GPUs: []int{0}})
		return err
	}
	wantProblem(t, ask(bob, pid), problem.Forbidden, "belongs to daemon")
	wantProblem(t, ask(bob, 1), problem.Forbidden, "belongs to root")
	wantProblem(t, ask(root, 1), problem.Refused, "the berth daemon itself is a descendant of process 1")
	d, err := l.d.Adopt(l.ctx, root.Caller, api.AdoptRequest{PID: pid, GPUs: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	if d.User != "daemon" {
		t.Errorf("an administrator made it %s's", d.User)
	}
	seen, err := l.d.Job(l.ctx, bob.Caller, d.ID)
	if err != nil || seen.Command != nil || seen.Settings != nil {
		t.Errorf("another sees %+v, %v", seen, err)
	}
	full := l.sleeps(&bob)
	l.d.cfg.Store(func() *Config { c := *l.d.config(); c.QueuedJobsOf = map[string]int{"nobody": 1}; return &c }())
	bob.submit(sh("true", "hold", "yes"))
	wantProblem(t, ask(bob, full), problem.TooMuch, "the limit of 1")
}

func TestOnlyWhatRunsIsListedAsIdle(t *testing.T) {
	l := newLab(t)
	page, err := l.Jobs(l.ctx, api.Query{Idle: true, Over: true})
	if err != nil || len(page.Jobs) != 0 || page.Total != 0 {
		t.Errorf("nothing runs, and idle are %+v, %v", page, err)
	}
	id := l.one(sh("true", "gpus", "0"))
	l.end(id)
	if page, err = l.Jobs(l.ctx, api.Query{Idle: true, Over: true}); err != nil || page.Total != 0 {
		t.Errorf("what is over is idle: %+v, %v", page, err)
	}
}

// What a process has is nobody else's anyhow. What it does not have yet is what
// others wait for.
func TestAdoptingTakesNoMoreAheadOfOthersThanALimitAllows(t *testing.T) {
	l := newSharedLab(t)
	bob, root := l.as("nobody"), l.as("root")
	limited := func(limit sched.Limit) {
		if err := l.d.do(l.ctx, func(t *engine.Turn) {
			t.SetRules(l.d.config().Rules, engine.Limits{Users: map[string]sched.Limit{"nobody": limit}})
		}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(p person, r api.AdoptRequest) error {
		r.PID = l.sleeps(&bob)
		_, err := l.d.Adopt(l.ctx, p.Caller, r)
		return err
	}
	wantProblem(t, ask(bob, api.AdoptRequest{GPUs: []int{0}, VRAM: "900G"}), problem.Refused, "GPU 0 has", "less than the 921600")
	limited(sched.Limit{GPUs: 1})
	wantProblem(t, ask(bob, api.AdoptRequest{GPUs: []int{0, 1}}), problem.TooMuch, "nobody holds 0 GPUs and this job needs 2 more; the limit is 1")
	l.untilState(bob.submit(sh("sleep 600", "ids", "0"))[0], job.Running)
	wantProblem(t, ask(bob, api.AdoptRequest{GPUs: []int{1}}), problem.TooMuch, "nobody holds 1 GPUs and this job needs 1 more")
	limited(sched.Limit{Jobs: 1})
	wantProblem(t, ask(bob, api.AdoptRequest{GPUs: []int{1}}), problem.TooMuch, "nobody already runs 1 jobs, which is the limit")
	if err := ask(root, api.AdoptRequest{GPUs: []int{0, 1}}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}

func TestWhatIsAJobsAlreadyIsNotHeldTwice(t *testing.T) {
	occupants := map[int][]gpu.Process{0: {{PID: 10, UsedMiB: 100}, {PID: 11, UsedMiB: 200}}, 1: {{PID: 11, UsedMiB: 300}}}
	left := unowned(occupants, func(pid int) (string, bool) {
		if pid == 11 {
			return "7", true
		}
		return "", pid != 10 // of this one nothing is known, so it may be anybody's
	})
	if len(left[0]) != 1 || left[0][0].PID != 10 || len(left[1]) != 0 {
		t.Errorf("left are %v", left)
	}
}
