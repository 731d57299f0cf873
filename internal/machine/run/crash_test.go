package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// keepOf is the supervisor's process.
func (b *bench) keepOf(token string) keep.Process {
	b.t.Helper()
	id, ok := b.Identity(token)
	if !ok {
		b.t.Fatal("no such supervisor")
	}
	p, err := keep.ReadProcess(id.KeepPID)
	if err != nil || p.Start != id.KeepStart {
		b.t.Fatalf("supervisor %+v: %+v, %v", id, p, err)
	}
	return p
}

func TestAKilledSupervisorsJobIsLostOnlyWhenItIsGone(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			before := ownZombies()
			b := newBench(t, host.option)
			// One that left the session, one that also forgot its environment.
			token := b.start(b.order("1", escaped+`; env -i setsid sh -c 'sleep 1000 & echo $! > bare; wait' & sleep 1000 & echo $! > child; wait`))
			b.next(Started)
			tree := []keep.Process{b.pidFrom("child"), b.pidFrom("escaped"), b.pidFrom("bare")}
			b.keepOf(token).Signal(9)
			e := b.next(Lost)
			b.gone(tree...)
			if e.Job != "1" || e.Attempt != 1 || e.Record.PID == 0 {
				t.Errorf("got %+v", e)
			}
			b.Ack(token)
			if left, _ := os.ReadDir(b.dir); len(left) != 0 {
				t.Errorf("%d directories left", len(left))
			}
			for p := range ownZombies() {
				if !before[p] {
					t.Errorf("not reaped: %+v", p)
				}
			}
		})
	}
}

func ownZombies() map[keep.Process]bool {
	zombies := make(map[keep.Process]bool)
	table, _ := keep.Processes()
	for _, p := range table {
		if p.Parent == os.Getpid() && p.Dead() && spawned.known[p.PID] == nil {
			zombies[p] = true
		}
	}
	return zombies
}

// A supervisor and its berth die together: the orphans are init's when the next
// berth comes.
func TestWhatAnEarlierBerthsDeadSupervisorLeftIsEnded(t *testing.T) {
	b := succession(t)
	// One stayed in the session and forgot its environment, one the reverse.
	other := b.otherBerth(nil, escaped+"; echo $$ > child; exec env -i sleep 1000")
	child, runaway := b.pidFrom("child"), b.pidFrom("escaped")
	entries, _ := os.ReadDir(b.dir)
	record, _, err := keep.ReadRecords(filepath.Join(b.dir, entries[0].Name(), recordName))
	if err != nil {
		t.Fatal(err)
	}
	kill9(other)
	syscall.Kill(record.KeepPID, syscall.SIGKILL)
	testkit.Eventually(t, "the lock is free", func() bool { return freeLocks(b.dir) == 1 })
	if !lives(child) || !lives(runaway) {
		t.Fatal("the job should still run")
	}
	b.open()
	found := b.scan()
	if len(found) != 1 || found[0].Kind != FoundLost || found[0].Job != "1" {
		t.Fatalf("found %+v", found)
	}
	if e := b.next(Lost); e.Token != found[0].Token || e.Job != "1" {
		t.Errorf("got %+v", e)
	}
	b.gone(child, runaway)
}

// A number that another session has by now proves nothing.
func TestWhichSessionIsTheJobs(t *testing.T) {
	t.Parallel()
	record := keep.Record{Session: 100, PIDStart: 5000}
	leader := keep.Process{PID: 100, Session: 100, Start: 5000}
	member := keep.Process{PID: 101, Session: 100, Start: 5001}
	usurper := keep.Process{PID: 100, Session: 100, Start: 9000}
	older := keep.Process{PID: 99, Session: 100, Start: 4000}
	rows := []struct {
		name  string
		live  bool
		table []keep.Process
		who   keep.Process
		want  bool
	}{
		{"the leader is the job's", false, []keep.Process{leader, member}, member, true},
		{"the leader is another process", false, []keep.Process{usurper, member}, member, false},
		{"the leader is another process, and so its session", true, []keep.Process{usurper, member}, usurper, false},
		{"the leader is gone, a moment ago", true, []keep.Process{member}, member, true},
		{"the leader is gone, who knows since when", false, []keep.Process{member}, member, false},
		{"one that is older than the job", true, []keep.Process{older}, older, false},
		{"another session", true, []keep.Process{leader}, keep.Process{PID: 7, Session: 7, Start: 6000}, false},
	}
	for _, row := range rows {
		if got := (quarry{record: record, live: row.live}).sessionTest(row.table)(row.who); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
	if (quarry{live: true}).sessionTest(nil)(keep.Process{}) {
		t.Error("a record without a session has no members")
	}
}

// A bystander in its own session must survive a hunt, and so must the
// supervisors and jobs beside it.
func TestAHuntSparesEverybodyElse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	victim := b.start(b.order("1", "sleep 1000"))
	b.next(Started)
	beside := b.start(b.order("2", "echo $$ > beside; sleep 1000"))
	b.next(Started)
	helper := exec.Command("sleep", "1000")
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { helper.Process.Kill(); helper.Wait() }()
	warm, err := b.Lease()
	if err != nil {
		t.Fatal(err)
	}
	b.keepOf(victim).Signal(9)
	b.next(Lost)
	p := b.pidFrom("beside")
	if !lives(p) || !lives(b.keepOf(beside)) || !lives(b.keepOf(warm)) {
		t.Error("a job beside it was harmed")
	}
	if own, err := keep.ReadProcess(helper.Process.Pid); err != nil || own.Dead() {
		t.Error("berth's own child was harmed")
	}
	b.Stop(beside, job.StopCancel, testkit.Patience)
	if e := b.next(Ended); e.Job != "2" || e.Record.Stop != "cancel" {
		t.Errorf("got %+v", e)
	}
}

func TestASupervisorThatDiesBeforeGoRanNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token, err := b.Lease()
	if err != nil {
		t.Fatal(err)
	}
	b.keepOf(token).Signal(9)
	if err := b.Go(token, b.order("1", "touch ran")); err != nil {
		t.Fatal(err)
	}
	if e := b.next(NeverRan); e.Job != "1" || e.Attempt != 1 || e.Token != token {
		t.Errorf("got %+v", e)
	}
	b.Ack(token)
	// The same when its death has been noticed.
	token, _ = b.Lease()
	b.keepOf(token).Signal(9)
	testkit.Eventually(t, "its death is noticed", func() bool {
		b.set.mu.Lock()
		defer b.set.mu.Unlock()
		return b.set.all[token].dead
	})
	if err := b.Go(token, b.order("2", "touch ran")); err != nil {
		t.Fatal(err)
	}
	b.next(NeverRan)
	if _, err := os.Stat(filepath.Join(b.work, "ran")); err == nil {
		t.Error("it ran")
	}
	b.Close()
	if left, _ := os.ReadDir(b.dir); len(left) != 0 {
		t.Errorf("%d directories left", len(left))
	}
}

func TestAnIdleSupervisorThatDiesIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token, _ := b.Lease()
	p := b.keepOf(token)
	b.Release(token)
	p.Signal(9)
	testkit.Eventually(t, "its directory is gone", func() bool { left, _ := os.ReadDir(b.dir); return len(left) == 0 })
	again, err := b.Lease()
	if err != nil || again == token {
		t.Errorf("leased %s again: %v", again, err)
	}
}

// A broken connection does not mean that the supervisor is dead.
func TestABrokenConnectionIsMended(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("1", "echo $$ > main; while [ ! -e enough ]; do sleep 0.01; done; exit 9"))
	b.next(Started)
	b.set.mu.Lock()
	b.set.all[token].hangUp()
	b.set.mu.Unlock()
	main := b.pidFrom("main")
	shell(t, "touch "+b.work+"/enough")
	if e := b.next(Ended); e.Record.ExitCode != 9 || e.Record.PID != main.PID {
		t.Errorf("got %+v", e)
	}
	b.Ack(token)
}

// The supervisor dies at each step of a job's life.
func TestASupervisorThatDiesBetweenTwoSteps(t *testing.T) {
	rows := []struct {
		step string
		want EventKind
		told []EventKind // before that
	}{
		{"before fork", Lost, nil},
		{"after fork", Lost, nil},
		{"before end", Lost, []EventKind{Started}},
		{"after end", Ended, []EventKind{Started}},
	}
	for _, row := range rows {
		for _, host := range cgroupHosts(t) {
			t.Run(row.step+" "+host.name, func(t *testing.T) {
				b := newBench(t, host.option, func(o *Options) {
					o.KeepCommand = []string{"env", "BERTH_KEEP_FAULT=" + row.step, faultyKeep}
				})
				line := "echo $$ > main; exit 3"
				if row.step == "after fork" {
					line = escaped + "; echo $$ > main; sleep 1000" // must be found without its number
				}
				token := b.start(b.order("1", line))
				for _, kind := range row.told {
					b.next(kind)
				}
				e := b.next(row.want)
				if e.Job != "1" || e.Attempt != 1 || e.Token != token {
					t.Errorf("got %+v", e)
				}
				if row.want == Ended && e.Record.ExitCode != 3 {
					t.Errorf("got %+v", e.Record)
				}
				if left := withToken(token); len(left) != 0 {
					t.Errorf("still there: %+v", left)
				}
				b.Ack(token)
				if left, _ := os.ReadDir(b.dir); len(left) != 0 {
					t.Errorf("%d directories left", len(left))
				}
				if left, _ := filepath.Glob(filepath.Join(b.Cgroups.Parent, "1.1.*")); b.Cgroups.Parent != "" && len(left) != 0 {
					t.Errorf("cgroups left: %q", left)
				}
			})
		}
	}
}

// A supervisor that cannot write how its job ended tells it to every berth that
// comes, and leaves once it is on disk.
func TestAnEndThatCannotBeWritten(t *testing.T) {
	work := t.TempDir()
	broken := filepath.Join(work, "broken")
	shell(t, "touch "+broken)
	faulty := func(o *Options) {
		o.KeepCommand = []string{"env", "BERTH_KEEP_FAULT=fail end " + broken, faultyKeep}
	}
	b := newBench(t, faulty)
	token := b.start(b.order("1", "exit 3"))
	b.next(Started)
	if e := b.next(Ended); e.Record.ExitCode != 3 {
		t.Errorf("the first berth is told %+v", e.Record)
	}
	b.Close() // before it has recorded that
	for _, name := range []string{"second", "third"} {
		b.open(faulty)
		found := b.scan()
		if len(found) != 1 || found[0].Kind != FoundRunning || found[0].Job != "1" {
			t.Fatalf("the %s berth found %+v", name, found)
		}
		if e := b.next(Ended); e.Token != token || e.Record.ExitCode != 3 {
			t.Errorf("the %s berth is told %+v", name, e)
		}
		if name == "second" {
			b.Close()
		}
	}
	b.Ack(token)
	testkit.Eventually(t, "it is acknowledged and leaves", func() bool { left, _ := os.ReadDir(b.dir); return len(left) == 0 })

	b.start(b.order("2", "exit 4"))
	b.next(Started)
	b.next(Ended)
	b.Close()
	shell(t, "rm "+broken)
	testkit.Eventually(t, "the end is written", func() bool { return freeLocks(b.dir) == 1 })
	b.open(faulty)
	if found := b.scan(); len(found) != 1 || found[0].Kind != FoundEnded || found[0].Record.ExitCode != 4 {
		t.Errorf("the last berth found %+v", found)
	}
}

// withToken lists the living processes of a supervisor's jobs.
func withToken(token string) (left []keep.Process) {
	table, _ := keep.Processes()
	for _, p := range table {
		if !p.Dead() && hasToken(p.PID, keep.Record{Token: token}) {
			left = append(left, p)
		}
	}
	return left
}

// What is asked of a supervisor while its connection is broken is asked again.
func TestAStopIsNotLostWithItsConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("1", "echo $$ > main; sleep 1000"))
	b.next(Started)
	p := b.keepOf(token)
	halt(t, p)
	b.set.mu.Lock()
	s := b.set.all[token]
	s.hangUp()
	b.set.mu.Unlock()
	testkit.Eventually(t, "the connection is gone", func() bool {
		b.set.mu.Lock()
		defer b.set.mu.Unlock()
		return s.link == nil
	})
	if err := b.Stop(token, job.StopCancel, testkit.Patience); err != nil {
		t.Fatal(err)
	}
	p.Signal(int(syscall.SIGCONT))
	if r := b.next(Ended).Record; r.Stop != "cancel" || r.Signal != 15 {
		t.Errorf("got %+v", r)
	}
}
