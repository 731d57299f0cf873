package run

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// kill9 ends a berth of another process for good.
func kill9(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// succession is a bench whose supervisors are another process's until that is
// killed.
//
// Orphans go to init meanwhile, not to the tests.
func succession(t *testing.T) *bench {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, work: t.TempDir()}
	b.dir = filepath.Join(b.work, "keep")
	return b
}

func (b *bench) scan() []Found {
	b.t.Helper()
	found, err := b.Scan()
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

func TestJobsOutliveABerthThatIsKilled(t *testing.T) {
	b := succession(t)
	other := b.otherBerth(nil, "echo $$ > main; while [ ! -e enough ]; do sleep 0.01; done; exit 42", "exit 3", "kill -KILL $$")
	main := b.pidFrom("main")
	kill9(other)
	testkit.Eventually(t, "the short jobs' supervisors leave", func() bool { return freeLocks(b.dir) == 2 })
	b.open()
	found := b.scan()
	byJob := map[string]Found{}
	for _, f := range found {
		byJob[f.Job] = f
	}
	if f := byJob["2"]; f.Kind != FoundEnded || f.Record.ExitCode != 3 {
		t.Errorf("job 2: %+v", f)
	}
	if f := byJob["3"]; f.Kind != FoundEnded || f.Record.Signal != 9 {
		t.Errorf("job 3: %+v", f)
	}
	running := byJob["1"]
	if len(found) != 3 || running.Kind != FoundRunning || running.Record.PID != main.PID || !lives(main) {
		t.Fatalf("found %+v", found)
	}
	if id, _ := b.Identity(running.Token); id.PID != main.PID || id.KeepPID == 0 {
		t.Errorf("identity %+v", id)
	}
	shell(t, "touch "+b.work+"/enough")
	if e := b.next(Ended); e.Token != running.Token || e.Job != "1" || e.Record.ExitCode != 42 {
		t.Errorf("got %+v", e)
	}
	for _, f := range found {
		b.Ack(f.Token)
	}
	testkit.Eventually(t, "nothing is left", func() bool { left, _ := os.ReadDir(b.dir); return len(left) == 0 })
}

func freeLocks(dir string) (free int) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if directory(filepath.Join(dir, e.Name())).free() {
			free++
		}
	}
	return free
}

func TestAnAdoptedJobCanBeStopped(t *testing.T) {
	b := succession(t)
	kill9(b.otherBerth(nil, escaped+"; echo $$ > main; sleep 1000"))
	main, runaway := b.pidFrom("main"), b.pidFrom("escaped")
	b.open()
	f := b.scan()[0]
	b.Stop(f.Token, job.StopCancel, 100*time.Millisecond)
	if e := b.next(Ended); e.Record.Stop != "cancel" {
		t.Errorf("got %+v", e.Record)
	}
	b.gone(main, runaway)
}

func TestWithoutGoNothingRuns(t *testing.T) {
	b := succession(t)
	kill9(b.otherBerth(nil, "", ""))
	testkit.Eventually(t, "supervisors without a job leave", func() bool { return freeLocks(b.dir) == 2 })
	b.open()
	found := b.scan()
	if len(found) != 2 || found[0].Kind != FoundEmpty || found[1].Kind != FoundEmpty {
		t.Fatalf("found %+v", found)
	}
	b.Ack(found[0].Token)
	if left, _ := os.ReadDir(b.dir); len(left) != 1 {
		t.Errorf("%d directories left", len(left))
	}
	b.Close()
	if left, _ := os.ReadDir(b.dir); len(left) != 0 {
		t.Errorf("%d directories left after closing", len(left))
	}
}

// The berth dies at a moment of chance while it starts jobs. Whatever the next
// one is told about a job is what that job did.
func TestABerthKilledInTheMiddleOfStarting(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		b := succession(t)
		lines := make([]string, 8)
		for i := range lines {
			lines[i] = "echo ran >> ran." + strconv.Itoa(i+1) + "; exit " + strconv.Itoa(i+1)
		}
		other := b.otherBerth([]string{"BERTH_TEST_HASTE=1"}, lines...)
		<-time.After(time.Duration(random.IntN(20000)) * time.Microsecond)
		kill9(other)
		b.open()
		b.greetsIn = testkit.Patience // one that is slow on a busy machine would be killed
		found := b.scan()
		told := map[string]bool{}
		for id, record := range b.ends(found) {
			told[id] = true
			checkRan(t, b, id, record)
		}
		for i := range lines {
			id := strconv.Itoa(i + 1)
			if _, err := os.Stat(filepath.Join(b.work, "ran."+id)); (err == nil) != told[id] {
				t.Errorf("round %d: job %s ran: %v, told: %v; found %+v", round, id, err == nil, told[id], found)
			}
		}
		b.Close()
	}
}

// ends waits for the end of everything that was found, and returns the records
// of the jobs. A directory without a record is reported as lost, too, at any
// time between the ends of the jobs: its berth died before anything was placed
// there. No job may be lost.
func (b *bench) ends(found []Found) map[string]keep.Record {
	b.t.Helper()
	records := map[string]keep.Record{}
	waiting := 0
	for _, f := range found {
		switch f.Kind {
		case FoundEnded:
			records[f.Job] = f.Record
		case FoundRunning, FoundLost:
			waiting++
		case FoundEmpty:
		}
	}
	for late := time.After(testkit.Patience); waiting > 0; waiting-- {
		select {
		case e := <-b.Events():
			switch {
			case e.Kind == Ended:
				records[e.Job] = e.Record
			case e.Kind != Lost || e.Job != "":
				b.t.Errorf("got %s: %+v; found %+v", e.Kind, e, found)
			}
		case <-late:
			b.t.Fatalf("no more events came; found %+v", found)
		}
	}
	return records
}

// A berth died while it prepared a supervisor, and another supervisor holds a
// job. The empty directory is done with first, which says nothing about the job.
func TestHalfADirectoryBesideAJob(t *testing.T) {
	b := succession(t)
	kill9(b.otherBerth(nil, "echo $$ > main; while [ ! -e enough ]; do sleep 0.01; done; exit 7"))
	main := b.pidFrom("main")
	half := filepath.Join(b.dir, "half")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, lockName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.open()
	found := b.scan()
	testkit.Eventually(t, "the empty directory is done with", func() bool { return len(b.Events()) == 1 })
	if !lives(main) {
		t.Fatal("its processes were looked for among the other job's")
	}
	shell(t, "touch "+b.work+"/enough")
	if records := b.ends(found); len(records) != 1 || records["1"].ExitCode != 7 {
		t.Errorf("the jobs ended as %+v", records)
	}
}

// A supervisor that was too slow to greet reads its order just when the next
// berth gives it up. Either that order never runs, or its job is kept.
func TestASupervisorThatStartsAsItIsGivenUp(t *testing.T) {
	b := newBench(t)
	token, err := b.Lease()
	if err != nil {
		t.Fatal(err)
	}
	keeper := b.keepOf(token)
	halt(t, keeper)
	if err := b.Go(token, b.order("1", "echo ran >> ran; while [ ! -e enough ]; do sleep 0.01; done; exit 5")); err != nil {
		t.Fatal(err)
	}
	next, err := Open(Options{KeepDir: b.dir, KeepCommand: []string{keepProgram}, CgroupParent: "none", Log: slog.New(onWarning(func() {
		keeper.Signal(int(syscall.SIGCONT))
		testkit.Eventually(t, "the job runs, or its supervisor is gone", func() bool {
			_, err := os.Stat(filepath.Join(b.work, "ran"))
			return err == nil || !lives(keeper)
		})
	}))})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	next.greetsIn = time.Millisecond
	found, err := next.Scan()
	if err != nil || len(found) != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	_, err = os.Stat(filepath.Join(b.work, "ran"))
	if ran := err == nil; ran && found[0].Kind != FoundRunning || !ran && found[0].Kind != FoundEmpty {
		t.Errorf("the job ran: %v; found %+v", ran, found[0])
	}
}

// onWarning is a log that calls a function at each warning.
type onWarning func()

func (f onWarning) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (f onWarning) Handle(context.Context, slog.Record) error        { f(); return nil }
func (f onWarning) WithAttrs([]slog.Attr) slog.Handler               { return f }
func (f onWarning) WithGroup(string) slog.Handler                    { return f }

func checkRan(t *testing.T, b *bench, id string, r keep.Record) {
	t.Helper()
	text, _ := os.ReadFile(filepath.Join(b.work, "ran."+id))
	if string(text) != "ran\n" || strconv.Itoa(r.ExitCode) != id {
		t.Errorf("job %s ran as %q and ended as %+v", id, text, r)
	}
}

// rewrite changes the record of a dead supervisor, as a crash of the machine
// or a damaged disk would.
func (b *bench) rewrite(token string, change func([]byte)) {
	b.t.Helper()
	path := filepath.Join(b.dir, token, recordName)
	blocks, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	change(blocks)
	if err := os.WriteFile(path, blocks, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func TestWhatARecordSaysAfterTheMachineWentDown(t *testing.T) {
	t.Parallel()
	before := keep.Record{Token: "t", Job: "7", Attempt: 2, BootID: "another boot", PID: os.Getppid(), Session: 1}
	here := before
	here.BootID, here.PID, here.Session = keep.BootID(), 0, 0
	rows := []struct {
		name  string
		state keep.State
		from  keep.Record
		spoil bool
		kind  FoundKind
		job   string
	}{
		{"a job that was running is lost", keep.Started, before, false, FoundLost, "7"},
		{"a job that had ended keeps its end", keep.Ended, before, false, FoundEnded, "7"},
		{"an idle record proves nothing: its last word may not have reached the disk", keep.Idle, keep.Record{Token: "t", BootID: "another boot"}, false, FoundLost, ""},
		{"in this boot an idle record is proof", keep.Idle, keep.Record{Token: "t", BootID: keep.BootID()}, false, FoundEmpty, ""},
		{"a damaged record does not count as success", keep.Ended, here, true, FoundLost, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			dir := filepath.Join(b.dir, "t")
			os.Mkdir(dir, 0o700)
			os.WriteFile(filepath.Join(dir, lockName), nil, 0o600)
			first, second := row.from, make([]byte, keep.BlockSize)
			first.State, first.Seq = row.state, 1
			if row.state == keep.Ended {
				second = first.Encode()
				first.State = keep.Started
			}
			blocks := append(first.Encode(), second...)
			os.WriteFile(filepath.Join(dir, recordName), blocks, 0o600)
			if row.spoil {
				b.rewrite("t", func(blocks []byte) { blocks[40] ^= 1 })
			}
			found := b.scan()
			if len(found) != 1 || found[0].Kind != row.kind || found[0].Job != row.job {
				t.Fatalf("found %+v", found)
			}
			if row.kind == FoundLost {
				b.next(Lost)
			}
			b.Ack("t")
			if left, _ := os.ReadDir(b.dir); len(left) != 0 {
				t.Error("its directory is still there")
			}
		})
	}
}

func TestHalfADirectoryProvesNothing(t *testing.T) {
	t.Parallel()
	for _, files := range []string{"", "lock", "sock lock"} {
		b := newBench(t)
		dir := filepath.Join(b.dir, "half")
		os.Mkdir(dir, 0o700)
		for _, name := range strings.Fields(files) {
			os.WriteFile(filepath.Join(dir, name), nil, 0o600)
		}
		if found := b.scan(); len(found) != 1 || found[0].Kind != FoundLost || found[0].Job != "" {
			t.Errorf("with %q: found %+v", files, found)
		}
		b.Close()
	}
}

// A supervisor that is stopped by hand answers nobody. With a job it is left to
// it; without one it is ended, so that nothing can start there later.
func TestASupervisorThatDoesNotAnswer(t *testing.T) {
	b := succession(t)
	other := b.otherBerth(nil, "echo $$ > main; while [ ! -e enough ]; do sleep 0.01; done; exit 6", "")
	b.pidFrom("main")
	var stopped []keep.Process
	table, _ := keep.Processes()
	for _, p := range table {
		if p.Parent == other.Process.Pid {
			halt(t, p)
			stopped = append(stopped, p)
		}
	}
	if len(stopped) != 2 {
		t.Fatalf("%d supervisors", len(stopped))
	}
	kill9(other)
	b.open()
	goOn := func() {
		for _, p := range stopped {
			p.Signal(int(syscall.SIGCONT))
		}
	}
	late := time.AfterFunc(testkit.Patience, func() { t.Error("it waits for an answer"); goOn() })
	found := b.scan()
	late.Stop()
	kinds := map[FoundKind]Found{}
	for _, f := range found {
		kinds[f.Kind] = f
	}
	if len(found) != 2 || kinds[FoundRunning].Job != "1" || kinds[FoundEmpty].Token == "" {
		t.Fatalf("found %+v", found)
	}
	shell(t, "touch "+b.work+"/enough")
	goOn()
	if e := b.next(Ended); e.Record.ExitCode != 6 {
		t.Errorf("got %+v", e)
	}
}

// A supervisor that was told that its job's end is on disk holds nothing, even
// though the end is still in its record.
func TestAnAcknowledgedEndIsNotFoundAgain(t *testing.T) {
	b := succession(t)
	other := b.otherBerth([]string{"BERTH_TEST_ACK=1"}, "exit 3")
	entries, _ := os.ReadDir(b.dir)
	path := filepath.Join(b.dir, entries[0].Name(), recordName)
	testkit.Eventually(t, "the supervisor is idle again", func() bool {
		r, ok, err := keep.ReadRecords(path)
		return err == nil && ok && r.State == keep.Idle && r.Seq == 2
	})
	kill9(other)
	b.open()
	if found := b.scan(); len(found) != 1 || found[0].Kind != FoundEmpty {
		t.Errorf("found %+v", found)
	}
}

// halt stops a process and waits until it has stopped.
func halt(t *testing.T, p keep.Process) {
	t.Helper()
	p.Signal(int(syscall.SIGSTOP))
	testkit.Eventually(t, "it is stopped", func() bool { now, _ := keep.ReadProcess(p.PID); return now.State == 'T' })
}

// A berth's last words count, even if the next berth is there already when
// they are read.
func TestADyingBerthsGoIsHeardFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token, err := b.Lease()
	if err != nil {
		t.Fatal(err)
	}
	p := b.keepOf(token)
	halt(t, p)
	if err := b.Go(token, b.order("1", "while [ ! -e enough ]; do sleep 0.01; done; exit 5")); err != nil {
		t.Fatal(err)
	}
	b.set.mu.Lock()
	raw, err := b.set.all[token].link.conn.SyscallConn()
	b.set.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the order is written", func() bool {
		unread := 0
		raw.Control(func(fd uintptr) { unread, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		return unread > 0
	})
	// The next berth knocks while the order lies unread.
	greeted := make(chan keep.Frame)
	go func() {
		conn, hello, err := directory(filepath.Join(b.dir, token)).dial(testkit.Patience)
		if err == nil {
			conn.Close()
		}
		greeted <- hello
	}()
	p.Signal(int(syscall.SIGCONT))
	if hello := <-greeted; hello.Get("state") != "started" || hello.Get("job") != "1" {
		t.Errorf("the next berth was told %+v", hello)
	}
	shell(t, "touch "+b.work+"/enough")
	e := <-b.Events()
	for e.Kind == Started {
		e = <-b.Events()
	}
	if e.Kind != Ended || e.Record.ExitCode != 5 {
		t.Errorf("got %+v", e)
	}
}
