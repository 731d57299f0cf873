package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// A process that leaves its session and loses its parents, and says which
// number it has. It does not listen to TERM.
const escaped = `setsid sh -c '(trap "" TERM; sleep 1000 & echo $! > escaped; wait) &' `

func TestAStopEndsTheWholeTree(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newBench(t, host.option)
			token := b.start(b.order("1", escaped+"; sleep 1000 & echo $! > child; wait"))
			b.next(Started)
			child, runaway := b.pidFrom("child"), b.pidFrom("escaped")
			if err := b.Stop(token, job.StopCancel, time.Second); err != nil {
				t.Fatal(err)
			}
			e := b.next(Ended)
			b.gone(child, runaway)
			if e.Record.Stop != "cancel" || e.Record.Signal != 15 || e.Record.Stragglers != 0 {
				t.Errorf("got %+v", e.Record)
			}
			if host.cgroup != (e.Record.Cgroup != "") {
				t.Errorf("cgroup %q, note %q", e.Record.Cgroup, e.Record.Note)
			}
			b.Ack(token)
		})
	}
}

func TestAJobThatIgnoresTermIsKilledAfterItsGrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("1", `trap "" TERM; echo $$ > main; while :; do sleep 0.1; done`))
	b.next(Started)
	b.pidFrom("main")
	began := time.Now()
	b.Stop(token, job.StopCancel, 300*time.Millisecond)
	r := b.next(Ended).Record
	if r.Signal != 9 || r.Stop != "cancel" {
		t.Errorf("got %+v", r)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("killed after %v", took)
	}
}

func TestASecondStopHurriesAndTheFirstReasonStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("1", `trap "" TERM; echo $$ > main; while :; do sleep 0.1; done`))
	b.next(Started)
	b.pidFrom("main")
	b.Stop(token, job.StopInterrupt, time.Hour)
	b.Stop(token, job.StopCancel, 10*time.Millisecond)
	if r := b.next(Ended).Record; r.Signal != 9 || r.Stop != "interrupt" {
		t.Errorf("got %+v", r)
	}
	if err := b.Stop(token, job.StopCancel, 0); err != nil {
		t.Errorf("a job that has ended: %v", err)
	}
	if err := b.Stop("nobody", job.StopCancel, 0); err == nil {
		t.Error("no such supervisor")
	}
}

func TestAStoppedProcessHearsTerm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("1", `trap 'echo saved; exit 0' TERM; echo $$ > main; kill -STOP $$; while :; do sleep 0.1; done`))
	b.next(Started)
	p := b.pidFrom("main")
	testkit.Eventually(t, "it is stopped", func() bool {
		now, err := keep.ReadProcess(p.PID)
		return err == nil && now.State == 'T'
	})
	b.Stop(token, job.StopCancel, testkit.Patience)
	if r := b.next(Ended).Record; r.ExitCode != 0 || !strings.HasSuffix(b.logText("1"), "saved\n") {
		t.Errorf("got %+v, %q", r, b.logText("1"))
	}
}

func TestATimeLimitIsAlwaysATimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := b.order("1", `trap 'echo saved; exit 0' TERM; while :; do sleep 0.1; done`)
	o.Limit = 4 * time.Second // its trap is set by then
	r := b.finish(o)
	if r.Stop != "timeout" || r.ExitCode != 0 || !strings.HasSuffix(b.logText("1"), "saved\n") {
		t.Errorf("got %+v, log %q", r, b.logText("1"))
	}
	if r.Elapsed < o.Limit {
		t.Errorf("ended after %v", r.Elapsed)
	}
}

// A job whose command ended before its limit did not reach it, whatever it left behind.
func TestATimeLimitDoesNotChangeAStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := b.order("1", "sleep 1000 & exit 7")
	o.Limit, o.Grace = 4*time.Second, testkit.Patience
	if r := b.finish(o); r.Stop != "" || r.ExitCode != 7 || r.Stragglers != 1 || r.Elapsed < o.Limit {
		t.Errorf("got %+v", r)
	}
}

// The shell in front handles no USR1 and would die of it.
func TestAWarningReachesThoseThatHandleIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := b.order("1", `sh -c 'trap "echo warned; exit 5" USR1; echo ready; while :; do sleep 0.05; done'; exit $?`)
	o.Limit, o.WarnBefore, o.WarnSignal = 34*time.Second, 30*time.Second, 10
	r := b.finish(o)
	if r.ExitCode != 5 || r.Stop != "" || b.logText("1") != "ready\nwarned\n" {
		t.Errorf("got %+v, log %q", r, b.logText("1"))
	}
}

func TestStragglers(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name+": one that finishes by itself is waited for", func(t *testing.T) {
			b := newBench(t, host.option)
			r := b.finish(b.order("1", "(sleep 0.3; echo late) & exit 3"))
			if r.ExitCode != 3 || r.Stragglers != 0 || b.logText("1") != "late\n" {
				t.Errorf("got %+v, log %q", r, b.logText("1"))
			}
		})
		t.Run(host.name+": those that do not are ended", func(t *testing.T) {
			b := newBench(t, host.option)
			o := b.order("1", escaped+"; sleep 1000 & while [ ! -s escaped ]; do sleep 0.01; done; exit 0")
			o.Grace = 200 * time.Millisecond
			token := b.start(o)
			b.next(Started)
			runaway := b.pidFrom("escaped")
			r := b.next(Ended).Record
			b.gone(runaway)
			// The sleeper, the escaped sleeper and the shell around it.
			if r.ExitCode != 0 || r.Signal != 0 || r.Stop != "" || r.Stragglers != 3 {
				t.Errorf("got %+v", r)
			}
			b.Ack(token)
		})
	}
}

// A job that has ended cannot be cancelled any more, also where the supervisor
// learns of both at once.
func TestACancelDoesNotChangeAStatusThatWasSeen(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for round := range 10 {
		id := strconv.Itoa(round)
		token := b.start(b.order(id, "sleep 1000 & echo $! > child"+id+"; while [ ! -e enough"+id+" ]; do sleep 0.01; done; exit 0"))
		b.next(Started)
		child := b.pidFrom("child" + id)
		of, _ := b.Identity(token)
		supervisor, err := keep.ReadProcess(of.KeepPID)
		if err != nil {
			t.Fatal(err)
		}
		supervisor.Signal(19) // STOP
		shell(t, "touch "+b.work+"/enough"+id)
		testkit.Eventually(t, "the main process is over", func() bool {
			p, err := keep.ReadProcess(of.PID)
			return err != nil || p.Dead()
		})
		b.Stop(token, job.StopCancel, testkit.Patience)
		supervisor.Signal(18) // CONT
		r := b.next(Ended).Record
		b.gone(child)
		if r.ExitCode != 0 || r.Stop != "" {
			t.Fatalf("round %d: %+v", round, r)
		}
		b.Ack(token)
	}
}

func TestInheritedSignalsDoNotReachTheJob(t *testing.T) {
	canBlock(t)
	b := newBench(t, func(o *Options) {
		o.KeepCommand = []string{"env", "--block-signal=USR1,TERM", "--ignore-signal=HUP,INT,QUIT,TSTP,CHLD,USR2", keepProgram}
	})
	o := b.order("1", "")
	o.Argv = []string{"grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"}
	b.finish(o)
	if text := b.logText("1"); strings.Count(text, "0000000000000000") != 2 {
		t.Errorf("got %q", text)
	}
}

// What comes to a supervisor in the night does not end it.
func TestASupervisorIgnoresPoliteSignals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("1", "while [ ! -e enough ]; do sleep 0.01; done; exit 7"))
	b.next(Started)
	id, _ := b.Identity(token)
	p, err := keep.ReadProcess(id.KeepPID)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"HUP", "INT", "QUIT", "TERM", "PIPE", "USR1", "USR2"} {
		n, _ := keep.SignalNumber(name)
		p.Signal(n)
	}
	shell(t, "touch "+b.work+"/enough")
	if r := b.next(Ended).Record; r.ExitCode != 7 {
		t.Errorf("got %+v", r)
	}
}

// A job may be forking at the very moment it is told to end. Nothing of it may
// sleep through the grace.
func TestATermReachesWhatIsBeingForked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		id := strconv.Itoa(round)
		token := b.start(b.order(id, "for i in 1 2 3; do sh -c 'sleep 1000; :' & done; sleep 1000; :"))
		b.next(Started)
		b.Stop(token, job.StopCancel, 10*testkit.Patience)
		e := b.next(Ended)
		if e.Record.Stop != "cancel" {
			t.Fatalf("round %d: %+v", round, e.Record)
		}
		b.Ack(token)
	}
}

// canBlock skips a test where the tools that block a signal are missing.
func canBlock(t *testing.T, more ...string) {
	t.Helper()
	if err := exec.Command("env", "--block-signal=USR1", "--ignore-signal=TSTP", "true").Run(); err != nil {
		t.Skip("this env cannot set signals")
	}
	for _, tool := range more {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
}

// A shell blocks TERM around each fork. Told to end there, it forks first: what
// it starts has to be stopped as well. This one waits there until it reads a line,
// which on a busy machine can come too late to be told from blocking for good.
func TestATermReachesWhatIsForkedWhereItIsBlocked(t *testing.T) {
	t.Parallel()
	canBlock(t)
	b := newBench(t)
	const grace = 8 * time.Second // an eighth of it, to be let out
	const rounds, enough = 8, 3
	inTime := 0
	for round := 0; inTime < enough && round < rounds; round++ {
		id := strconv.Itoa(round)
		line := filepath.Join(b.work, "line"+id)
		if err := syscall.Mkfifo(line, 0o600); err != nil {
			t.Fatal(err)
		}
		o := b.order(id, "")
		o.Argv = []string{"env", "--block-signal=TERM", "sh", "-c", "read word < " + line + "; sleep 1000; :"}
		token := b.start(o)
		b.next(Started)
		main, _ := b.Identity(token)
		testkit.Eventually(t, "the shell waits at the pipe", func() bool {
			name, err := os.ReadFile("/proc/" + strconv.Itoa(main.PID) + "/comm")
			p, _ := keep.ReadProcess(main.PID)
			return err == nil && string(name) == "sh\n" && p.State == 'S'
		})
		b.Stop(token, job.StopCancel, grace)
		testkit.Eventually(t, "the shell is halted, or has TERM waiting", func() bool {
			status, err := os.ReadFile("/proc/" + strconv.Itoa(main.PID) + "/status")
			return err == nil && (strings.Contains(string(status), "State:\tT") ||
				!strings.Contains(string(status), "ShdPnd:\t0000000000000000"))
		})
		if err := os.WriteFile(line, []byte("on\n"), 0); err != nil {
			t.Fatal(err)
		}
		r := b.next(Ended).Record
		if r.Stop != "cancel" {
			t.Fatalf("round %d: %+v", round, r)
		}
		if r.Elapsed < grace {
			inTime++
		}
		b.Ack(token)
	}
	if inTime < enough {
		t.Errorf("only %d of %d did not sleep through the grace", inTime, rounds)
	}
}

// What blocks TERM for good gets no less of its grace for it.
func TestATermWaitsForWhoeverTakesItLater(t *testing.T) {
	canBlock(t, "perl")
	b := newBench(t)
	token := b.start(b.order("1", `exec env --block-signal=TERM perl -e '
		use POSIX; open(F, ">ready"); close(F);
		my $set = POSIX::SigSet->new; until ($set->ismember(SIGTERM)) { sigpending($set); select(undef, undef, undef, 0.01) }
		select(undef, undef, undef, 0.3); exit 9'`))
	b.next(Started)
	testkit.Eventually(t, "it is ready", func() bool { _, err := os.Stat(filepath.Join(b.work, "ready")); return err == nil })
	b.Stop(token, job.StopCancel, testkit.Patience)
	if r := b.next(Ended).Record; r.Stop != "cancel" || r.ExitCode != 9 || r.Signal != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestAWarningIsSentOnceForEachStamp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := b.order("1", `trap "echo warned >> heard" USR1; trap "cat heard > told; exit 0" TERM; echo $$ > main; while :; do sleep 0.02; done`)
	o.WarnSignal = 10
	token := b.start(o)
	b.next(Started)
	b.pidFrom("main")
	for _, stamp := range []string{"a", "a", "b"} {
		heard := func() int {
			text, _ := os.ReadFile(filepath.Join(b.work, "heard"))
			return strings.Count(string(text), "warned")
		}
		before := heard()
		if err := b.Warn(token, stamp); err != nil {
			t.Fatal(err)
		}
		if stamp == "b" || before == 0 {
			testkit.Eventually(t, "it hears the warning", func() bool { return heard() == before+1 })
		}
	}
	b.Stop(token, job.StopPreempt, 10*time.Second)
	if r := b.next(Ended).Record; r.Stop != "aside" || r.ExitCode != 0 {
		t.Errorf("got %+v", r)
	}
	if text, _ := os.ReadFile(filepath.Join(b.work, "told")); strings.Count(string(text), "warned") != 2 {
		t.Errorf("it heard %q", text)
	}
	if err := b.Warn("nobody", "a"); err == nil {
		t.Error("a supervisor that does not exist was told")
	}
}
