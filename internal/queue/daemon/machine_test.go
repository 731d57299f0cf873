package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/store"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func (l *lab) cards() []api.GPU {
	l.t.Helper()
	cards, err := api.Call(l.ctx, l.Client, api.ListGPUs, api.None{})
	if err != nil {
		l.t.Fatal(err)
	}
	return cards
}

func TestCards(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cards := l.cards()
	if len(cards) != 2 || cards[1].Index != 1 || cards[0].TotalMiB != 24576 || cards[0].UUID == "" || cards[0].Health != "ok" || cards[0].Paused || cards[0].Stale {
		t.Errorf("%+v", cards)
	}
	line, open := l.gate("gate")
	id := l.one(sh(line, "vram", "8G", "ids", "1", "name", "train"))
	l.untilState(id, job.Running)
	on := l.cards()[1]
	if len(on.Jobs) != 1 || on.Jobs[0].ID != id || on.Jobs[0].Name != "train" || on.Jobs[0].Other || on.BudgetMiB != 8192 || len(l.cards()[0].Jobs) != 0 {
		t.Errorf("%+v", on)
	}
	whole := l.one(sh(line, "ids", "0"))
	l.untilState(whole, job.Running)
	if on := l.cards()[0]; on.BudgetMiB != 24576 {
		t.Errorf("with a job that holds it alone, %d MiB are allocated", on.BudgetMiB)
	}
	open()
	l.finished(whole)
	l.finished(id)
	if on := l.cards()[1]; len(on.Jobs) != 0 || on.BudgetMiB != 0 {
		t.Errorf("after its end: %+v", on)
	}
}

func TestAPausedCardTakesNothingNewAndStaysPaused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	runs := l.one(sh(line, "ids", "0"))
	l.untilState(runs, job.Running)
	for index := range 2 {
		card, err := api.Call(l.ctx, l.Client, api.PauseGPU, api.GPUIndex{Index: index})
		if err != nil || !card.Paused || card.PausedBy == "" {
			t.Fatalf("%+v, %v", card, err)
		}
	}
	_, err := api.Call(l.ctx, l.Client, api.PauseGPU, api.GPUIndex{Index: 7})
	wantProblem(t, err, problem.NotFound, "7")
	waits := l.one(sh("true"))
	l.restart()
	if l.job(runs).State != job.Running {
		t.Errorf("what ran there is %s", l.job(runs).State)
	}
	if cards := l.cards(); !cards[0].Paused || !cards[1].Paused {
		t.Errorf("after a restart: %+v", cards)
	}
	l.wantReasons(map[string]string{waits: "paused"})
	open()
	l.finished(runs)
	if j := l.job(waits); j.State != job.Queued {
		t.Errorf("it is %s on paused cards", j.State)
	}
	if _, err := api.Call(l.ctx, l.Client, api.ResumeGPU, api.GPUIndex{Index: 1}); err != nil {
		t.Fatal(err)
	}
	l.finished(waits)
	if gpus := l.job(waits).GPUIDs; !slices.Equal(gpus, []int{1}) {
		t.Errorf("it ran on %v", gpus)
	}
}

// hangUp is SIGHUP, and waits until the config was read.
func (l *lab) hangUp() {
	l.t.Helper()
	before := l.d.svc.Config()
	seen := strings.Count(l.ownLog(), "the old one stays in force")
	l.signals <- syscall.SIGHUP
	l.until("the config is read again", func() bool {
		return l.d.svc.Config() != before || strings.Count(l.ownLog(), "the old one stays in force") > seen
	})
}

func (l *lab) ownLog() string {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.opt.Places.StateDir, "berth.log"))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

func TestReload(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	share := func() string { return l.one(sh(line, "gpus", "0.1")) }
	first, second := share(), share()
	l.untilState(first, job.Running)
	l.untilState(second, job.Running)
	l.write(l.opt.Places.Config, "[limits]\nrunning_jobs = 2\nqueue = 3\n[scheduling]\npoll = \"9s\"\n")
	l.hangUp()
	third := share()
	l.wantReasons(map[string]string{third: "limit per user is 2"})
	l.refused(api.SubmitRequest{Jobs: []api.Spec{sh("true")}}, problem.TooMuch, "3")
	if log := l.ownLog(); !strings.Contains(log, "limits.running_jobs") {
		t.Error("the log does not say what changed")
	}
	l.write(l.opt.Places.Config, "[limits]\nrunning_jobs = \"many\"\n")
	l.hangUp()
	if j := l.job(third); j.State != job.Queued {
		t.Errorf("after a broken config it is %s", j.State)
	}
	l.write(l.opt.Places.Config, "")
	l.hangUp()
	l.untilState(third, job.Running)
	open()
	for _, id := range []string{first, second, third} {
		l.finished(id)
	}
}

func TestABrokenConfigStopsAStart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.stop()
	l.write(l.opt.Places.Config, "[limits]\nrunning_jops = 2\n")
	err := Serve(l.ctx, l.opt)
	wantProblem(t, err, problem.Invalid, "running_jops", "running_jobs")
}

func idle(after time.Duration) func(*Options) {
	return func(o *Options) { o.IdleExit = after }
}

func TestAnIdleDaemonEnds(t *testing.T) {
	t.Parallel()
	begun := time.Now() // it is idle since its start
	l := newLab(t, idle(time.Second))
	l.Client.Close()
	if err := l.ended(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(begun); took < 900*time.Millisecond {
		t.Errorf("it stayed for %s", took)
	}
	if _, err := os.Stat(l.opt.Places.Socket); err == nil {
		t.Error("its socket is still there")
	}
	l.start()
}

func TestADaemonWithSomethingToDoStays(t *testing.T) {
	l := newLab(t, idle(time.Second))
	held := l.one(sh("true", "hold", "yes"))
	looks := func(n int) {
		t.Helper()
		since := time.Now()
		select { // nothing is asked meanwhile: who asks keeps it
		case err := <-l.over:
			l.running = false
			t.Fatalf("it ended (%v) after %s", err, time.Since(since))
		case <-time.After(time.Duration(n) * time.Second):
		}
	}
	looks(2)
	// A follower keeps it, though no job is left.
	h := l.hear(api.EventQuery{Since: -1})
	l.act(api.ActCancel, held)
	l.Client.Close()
	looks(2)
	h.stop()
	if err := l.ended(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestADaemonThatLeavesTakesNothing: a job that is accepted by a daemon on its
// way out would wait for the next one.
func TestADaemonThatLeavesTakesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	testkit.Eventually(t, "it leaves", func() (leaves bool) { // once it has nothing to write any more
		testkit.Must(t, l.d.svc.Do(l.ctx, func(turn *engine.Turn) { leaves = turn.Retire() }))
		return leaves
	})
	l.refused(api.SubmitRequest{Jobs: []api.Spec{sh("true")}}, problem.Unable, "stopping")
}

func TestASecondDaemonRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	err := Serve(l.ctx, l.opt)
	wantProblem(t, err, problem.Refused, "another berth daemon", "--state-dir")
	other := l.opt
	other.Places.StateDir = filepath.Join(l.dir(), "other")
	err = Serve(l.ctx, other)
	wantProblem(t, err, problem.Refused, "sock", "--socket")
	if _, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{}); err != nil {
		t.Errorf("the first does not answer any more: %v", err)
	}
}

func TestBackupAndRestoreOfARunningDaemon(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	runs := l.one(sh(line, "gpus", "0"))
	held := l.one(sh("true", "hold", "yes", "env.A", "b"))
	l.untilState(runs, job.Running)
	var copied bytes.Buffer
	if err := l.Backup(l.ctx, &copied); err != nil {
		t.Fatal(err)
	}
	later := l.one(sh("echo later", "gpus", "0"))
	l.finished(later)
	open()
	l.finished(runs)
	path := filepath.Join(l.dir(), "copy")
	l.write(path, copied.String())
	if _, err := Restore(l.opt.Places.StateDir, path, agrees); err == nil {
		t.Error("restored under a running daemon")
	}
	l.stop()
	kept, err := Restore(l.opt.Places.StateDir, path, agrees)
	if err != nil || kept == "" {
		t.Fatalf("kept %q, %v", kept, err)
	}
	l.start()
	if j := l.job(held); j.State != job.Queued || !j.Held || j.Env["A"] != "b" {
		t.Errorf("%+v", j)
	}
	// It is not known how it ended, and nobody says it ended well.
	if j := l.end(runs); value(j.Outcome) != job.Lost {
		t.Errorf("what ran then is %s %s", j.State, value(j.Outcome))
	}
	_, err = api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: later})
	wantProblem(t, err, problem.NotFound)
	// The number of a job whose log is still there is not given out again.
	if id := l.one(sh("echo new", "gpus", "0")); id == later || l.finished(id) != "new\n" {
		t.Errorf("the new job is %s and printed %q", id, l.log(id))
	}
	if left, _ := filepath.Glob(filepath.Join(l.opt.Places.StateDir, "backup-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestNothingIsLostInARestart: what ran goes on and its end is known, what
// waited still waits in its place, and what was settled stays so.
func TestNothingIsLostInARestart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	runs := l.one(sh(line+"; exit 7", "gpus", "2"))
	l.untilState(runs, job.Running)
	a, b := l.one(sh("true", "gpus", "2")), l.one(sh("true", "gpus", "2", "priority", "1", "after", runs+":any"))
	ends := l.one(sh(line+"; exit 8", "gpus", "0"))
	l.untilState(ends, job.Running)
	l.stop()
	open() // both end while nobody looks
	l.start()
	for id, code := range map[string]int{runs: 7, ends: 8} {
		if j := l.end(id); value(j.ExitCode) != code || j.Attempt != 1 {
			t.Errorf("job %s exited %d in attempt %d, want %d", id, value(j.ExitCode), j.Attempt, code)
		}
	}
	l.finished(a)
	l.finished(b)
	if first, second := l.job(b), l.job(a); second.StartedAt.Before(*first.StartedAt) {
		t.Error("the one with the lower priority was first")
	}
}

// TestALongQueueIsAllThereAfterARestart: it is read in pages of 500.
func TestALongQueueIsAllThereAfterARestart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.submit(sh("true", "hold", "yes"), sh("true", "hold", "yes", "array", "0-1202"), sh("true", "hold", "yes"))
	queued := func() (ids []string) {
		page, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Limit: 2000})
		testkit.Must(t, err)
		for i := range page.Jobs {
			ids = append(ids, page.Jobs[i].ID)
		}
		return ids
	}
	before := queued()
	l.restart()
	if after := queued(); len(before) != 1205 || !slices.Equal(after, before) {
		t.Errorf("%d jobs, %d before, or another order", len(after), len(before))
	}
}

func TestStatus(t *testing.T) {
	l := newLab(t)
	l.one(sh("true", "hold", "yes"))
	s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	if err != nil || s.Version != "test" || s.PID != os.Getpid() || s.Shared || s.Counts["queued"] != 1 || s.StateDir != l.opt.Places.StateDir || s.SimDir == "" || s.Source != "simulated GPUs" {
		t.Errorf("%+v, %v", s, err)
	}
	if s.You.UID != os.Getuid() || !s.You.Admin || s.You.PID != os.Getpid() {
		t.Errorf("you are %+v", s.You)
	}
}

func TestTokensOpenTheDoorByTCP(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.Listen = "127.0.0.1:0" }))
	token, err := api.Call(l.ctx, l.Client, api.NewToken, api.TokenRequest{Name: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := api.Call(l.ctx, l.Client, api.ListTokens, api.None{}); err != nil || len(list) != 1 || list[0].Secret != "" || list[0].ID != token.ID {
		t.Errorf("%+v, %v", list, err)
	}
	who := func(secret string) (api.Caller, error) {
		return l.d.door.Identify(l.ctx, api.Peer{UID: -1, Secret: secret})
	}
	caller, err := who(token.Secret)
	if err != nil || caller.UID != os.Getuid() || caller.Token != token.ID {
		t.Errorf("%+v, %v", caller, err)
	}
	_, err = l.d.door.NewToken(l.ctx, caller, api.TokenRequest{})
	wantProblem(t, err, problem.Forbidden, "token")
	_, err = who(token.Secret + "x")
	wantProblem(t, err, problem.Forbidden)
	l.restart()
	if _, err := who(token.Secret); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if err := api.Do(l.ctx, l.Client, api.RevokeToken, api.TokenID{ID: token.ID}); err != nil {
		t.Fatal(err)
	}
	_, err = who(token.Secret)
	wantProblem(t, err, problem.Forbidden)
}

func TestAStoppedDaemonSaysSo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.d
	l.stop()
	_, err := d.submits.Submit(l.ctx, api.Caller{Admin: true}, api.SubmitRequest{Jobs: []api.Spec{sh("true")}})
	wantProblem(t, err, problem.Unable, "stopping")
	if _, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{}); !errors.As(err, new(*api.Unreachable)) {
		t.Errorf("nobody there: %v", err)
	}
	ctx, cancel := context.WithCancel(l.ctx)
	cancel()
	if _, err := d.jobs.Jobs(ctx, api.Caller{}, api.Query{}); err == nil {
		t.Error("an answer from nobody for nobody")
	}
	l.start()
}

// TestATakenPortDoesNotEndTheDaemon: it serves its socket and says what is
// wrong.
func TestATakenPortDoesNotEndTheDaemon(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	l := newLab(t, with(func(c *config.Config) { c.Listen = address }), func(o *Options) { o.portRetry = 50 * time.Millisecond })
	s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	if err != nil || s.HTTP != "" || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "not listening for HTTP: listen tcp "+address) {
		t.Errorf("%+v, %v", s, err)
	}
	taken.Close()
	l.until("the port is open", func() bool {
		s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
		return err == nil && s.HTTP == address && len(s.Warnings) == 0
	})
}

// TestTheHintNamesWhatHappenedToTheDisk: a change that cannot be saved is answered
// with what helps.
func TestTheHintNamesWhatHappenedToTheDisk(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]string{
		store.ErrFull:               "free some disk space",
		store.ErrUnwritable:         "dmesg",
		errors.New("it is damaged"): "back-up",
	} {
		p, ok := errors.AsType[*problem.Problem](notWritten(fmt.Errorf("commit: %w", cause)))
		if !ok || p.Kind != problem.Unable || !strings.Contains(p.Hint, want) {
			t.Errorf("after %v: %+v", cause, p)
		}
	}
}
