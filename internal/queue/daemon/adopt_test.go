package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/settings"
	"berth/internal/sched"
	"berth/internal/text/problem"
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

// uses has a process hold this much memory on each card, as the simulation sees
// it.
func (l *lab) uses(pid int, mib map[int]int64) {
	l.t.Helper()
	p, err := run.ReadExternal(pid)
	if err != nil {
		l.t.Fatal(err)
	}
	var uses []string
	for card, used := range mib {
		uses = append(uses, fmt.Sprintf(`{"card":%d,"mib":%d,"util":0}`, card, used))
	}
	file := filepath.Join(l.d.svc.queue.SimDir, "procs", fmt.Sprintf("%d.%d", pid, p.Start))
	if err := os.WriteFile(file, []byte(`{"uses":[`+strings.Join(uses, ",")+`]}`), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func TestAnAdoptedProcessSurvivesTheDaemonAndItsJob(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	pid := l.sleeps(nil)
	d, err := api.Call(l.ctx, l.Client, api.Adopt, api.AdoptRequest{PID: pid, GPUs: []int{1}, VRAM: "2G", Name: "mine"})
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
	_, err = api.Call(l.ctx, l.Client, api.Adopt, api.AdoptRequest{PID: pid, GPUs: []int{0}})
	wantProblem(t, err, problem.Refused, "already adopted, as job "+d.ID)
	reply, err := api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: []string{d.ID}}})
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
		reply, err := api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: action, Select: api.Select{Words: []string{d.ID}}})
		if err != nil || reply.Jobs[0].Done || !strings.Contains(reply.Jobs[0].What, "represents process") {
			t.Errorf("%s: %+v, %v", action, reply, err)
		}
	}
}

func TestTwoWhoAdoptTheSameProcessAtOnceGetOneJob(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	pid := l.sleeps(nil)
	answers := make(chan error, 8)
	for range cap(answers) {
		go func() {
			_, err := api.Call(l.ctx, l.Client, api.Adopt, api.AdoptRequest{PID: pid, GPUs: []int{0}})
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
	t.Parallel()
	l := newSharedLab(t)
	ann, bob, root := l.as("daemon"), l.as("nobody"), l.as("root")
	pid := l.sleeps(&ann)
	ask := func(p person, pid int) error {
		_, err := l.d.adopts.Adopt(l.ctx, p.Caller, api.AdoptRequest{PID: pid, GPUs: []int{0}})
		return err
	}
	wantProblem(t, ask(bob, pid), problem.Forbidden, "belongs to daemon")
	wantProblem(t, ask(bob, 1), problem.Forbidden, "belongs to root")
	wantProblem(t, ask(root, 1), problem.Refused, "the berth daemon itself is a descendant of process 1")
	d, err := l.d.adopts.Adopt(l.ctx, root.Caller, api.AdoptRequest{PID: pid, GPUs: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	if d.User != "daemon" {
		t.Errorf("an administrator made it %s's", d.User)
	}
	seen, err := l.d.jobs.Job(l.ctx, bob.Caller, d.ID)
	if err != nil || seen.Command != nil || seen.Settings != nil {
		t.Errorf("another sees %+v, %v", seen, err)
	}
	full := l.sleeps(&bob)
	l.uses(full, map[int]int64{0: 300})
	l.d.svc.cfg.Store(func() *config.Config { c := *l.d.svc.Config(); c.QueuedJobsOf = map[string]int{"nobody": 1}; return &c }())
	bob.submit(sh("true", "hold", "yes"))
	wantProblem(t, ask(bob, full), problem.TooMuch, "the limit of 1")
}

func TestOnlyWhatRunsIsListedAsIdle(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Idle: true, Over: true})
	if err != nil || len(page.Jobs) != 0 || page.Total != 0 {
		t.Errorf("nothing runs, and idle are %+v, %v", page, err)
	}
	id := l.one(sh("true", "gpus", "0"))
	l.end(id)
	if page, err = api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Idle: true, Over: true}); err != nil || page.Total != 0 {
		t.Errorf("what is over is idle: %+v, %v", page, err)
	}
}

// What a process has is in use anyway. What it does not have is what others wait
// for.
func TestAdoptingTakesNothingThatOthersWaitFor(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t, with(func(c *config.Config) { c.Limits = config.Limits{} }))
	bob, root := l.as("nobody"), l.as("root")
	for _, c := range []struct {
		says    string
		uses    map[int]int64
		request api.AdoptRequest
		refused []string // empty: adopted
		budget  int64
		cards   []int
	}{
		{"a process without a GPU", nil, api.AdoptRequest{}, []string{"uses none of the GPUs"}, 0, nil},
		{"a process without a GPU, with all of them named", nil, api.AdoptRequest{GPUs: []int{0, 1}, VRAM: "20000"}, []string{"does not use GPU 0", "only an administrator may reserve a GPU for later", "leave out --gpus"}, 0, nil},
		{"another GPU than its own", map[int]int64{0: 5000}, api.AdoptRequest{GPUs: []int{0, 1}}, []string{"does not use GPU 1"}, 0, nil},
		{"more memory than it uses", map[int]int64{0: 5000}, api.AdoptRequest{VRAM: "8000"}, []string{"uses 5000 MiB on GPU 0, and --vram asks for 8000", "leave out --vram"}, 0, nil},
		{"more memory than it uses on one of two", map[int]int64{0: 9000, 1: 5000}, api.AdoptRequest{VRAM: "9000"}, []string{"uses 5000 MiB on GPU 1"}, 0, nil},
		{"a trace of memory, which leaves the GPU idle", map[int]int64{0: 180}, api.AdoptRequest{}, []string{"uses none of the GPUs"}, 0, nil},
		{"a trace of memory on a GPU that is named", map[int]int64{0: 5000, 1: 180}, api.AdoptRequest{GPUs: []int{1}}, []string{"does not use GPU 1, or less than 200 MiB of it"}, 0, nil},
		{"a GPU that is not there", map[int]int64{0: 5000}, api.AdoptRequest{GPUs: []int{7}}, []string{"GPU 7"}, 0, nil},
		{"what it uses", map[int]int64{0: 5000}, api.AdoptRequest{}, nil, 5000, []int{0}},
		{"what it uses, named", map[int]int64{0: 5000}, api.AdoptRequest{GPUs: []int{0}, VRAM: "5000"}, nil, 5000, []int{0}},
		{"the buffer that an external process has anyway", map[int]int64{0: 5000}, api.AdoptRequest{VRAM: "5500"}, nil, 5500, []int{0}},
		{"different amounts on two GPUs", map[int]int64{0: 9000, 1: 300}, api.AdoptRequest{}, nil, 300, []int{0, 1}},
		{"a trace elsewhere", map[int]int64{0: 5000, 1: 180}, api.AdoptRequest{}, nil, 5000, []int{0}},
	} {
		pid := l.sleeps(&bob)
		l.uses(pid, c.uses)
		c.request.PID = pid
		d, err := l.d.adopts.Adopt(l.ctx, bob.Caller, c.request)
		if len(c.refused) > 0 {
			var p *problem.Problem
			if !errors.As(err, &p) {
				t.Fatalf("%s: job %s, %v", c.says, d.ID, err)
			}
			wantProblem(t, err, p.Kind, c.refused...)
			l.uses(pid, nil)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.says, err)
			continue
		}
		if d.BudgetMiB != c.budget || !slices.Equal(d.GPUIDs, c.cards) {
			t.Errorf("%s: it holds %d MiB on GPU %v, want %d on %v", c.says, d.BudgetMiB, d.GPUIDs, c.budget, c.cards)
		}
		l.uses(pid, nil)
		l.act(api.ActCancel, d.ID)
		l.end(d.ID)
	}
	// An administrator may, and the audit says so.
	pid := l.sleeps(&bob)
	if _, err := l.d.adopts.Adopt(l.ctx, root.Caller, api.AdoptRequest{PID: pid, GPUs: []int{0, 1}, VRAM: "20000"}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	audit, err := os.ReadFile(filepath.Join(l.opt.Places.StateDir, "audit.jsonl"))
	if want := fmt.Sprintf("process %d, on GPU 0,1, beyond what it uses", pid); err != nil || !strings.Contains(string(audit), want) {
		t.Errorf("the audit lacks %q: %v", want, err)
	}
	_, err = l.d.adopts.Adopt(l.ctx, root.Caller, api.AdoptRequest{PID: l.sleeps(&bob), GPUs: []int{0}, VRAM: "900G"})
	wantProblem(t, err, problem.Refused, "GPU 0 has", "less than the 921600")
}

func TestLimitsApplyToAdoptedProcesses(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	bob, root := l.as("nobody"), l.as("root")
	limited := func(limit sched.Limit) {
		if err := l.d.svc.Do(l.ctx, func(t *engine.Turn) {
			t.Settings().Rules(l.d.svc.Config().Rules, settings.Limits{Users: map[string]sched.Limit{"nobody": limit}})
		}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(p person, cards ...int) error {
		r := api.AdoptRequest{PID: l.sleeps(&bob)}
		mib := map[int]int64{}
		for _, card := range cards {
			mib[card] = 300
		}
		l.uses(r.PID, mib)
		defer l.uses(r.PID, nil)
		_, err := l.d.adopts.Adopt(l.ctx, p.Caller, r)
		return err
	}
	limited(sched.Limit{GPUs: 1})
	wantProblem(t, ask(bob, 0, 1), problem.TooMuch, "nobody holds 0 GPUs and this job needs 2 more; the limit is 1")
	l.untilState(bob.submit(sh("sleep 600", "ids", "0"))[0], job.Running)
	wantProblem(t, ask(bob, 1), problem.TooMuch, "nobody holds 1 GPUs and this job needs 1 more")
	limited(sched.Limit{Jobs: 1})
	wantProblem(t, ask(bob, 1), problem.TooMuch, "nobody already runs 1 jobs, which is the limit")
	if err := ask(root, 0, 1); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}

func TestWhatIsAJobsAlreadyIsNotHeldTwice(t *testing.T) {
	t.Parallel()
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
