package run

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// keepProgram is the supervisor's own program, built once for all tests, and
// faultyKeep the same with the steps at which a test can make it die.
var keepProgram, faultyKeep string

func TestMain(m *testing.M) {
	// berth's own program is a supervisor too, where the small one is missing.
	if len(os.Args) > 1 && os.Args[1] == "__keep" {
		os.Exit(keep.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && helperWords[os.Args[1]] != nil {
		helperWords[os.Args[1]]()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "__driver" {
		fakeDriver(os.Args[2])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "__oldkeep" {
		oldKeep()
		return
	}
	if pid := os.Getenv("BERTH_TEST_TRACE"); pid != "" {
		trace(pid, os.Getenv("BERTH_TEST_TRACE_OPTIONS"))
		return
	}
	if os.Getenv("BERTH_TEST_THREADS") != "" {
		signal.Ignore(unix.SIGTERM)
		<-time.After(time.Hour)
		return
	}
	if os.Getenv("BERTH_TEST_FACTS") != "" {
		fmt.Printf("%+v", CgroupFacts())
		return
	}
	if dir := os.Getenv("BERTH_TEST_CONTROLLER"); dir != "" {
		controller(dir)
		return
	}
	dir, err := os.MkdirTemp("", "berth-run")
	if err != nil {
		panic(err)
	}
	keepProgram, faultyKeep = filepath.Join(dir, "berth-keep"), filepath.Join(dir, "faulty", "berth-keep")
	if err := errors.Join(testkit.Build(dir, "", "cmd/berth-keep"), testkit.Build(filepath.Dir(faultyKeep), "keepfault", "cmd/berth-keep")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testkit.Parallel(6)
	code := m.Run()
	os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// bench is a Runner and a place for its jobs' files.
type bench struct {
	*Runner
	t    *testing.T
	dir  string // of the supervisors
	work string
}

// newBench opens a Runner without cgroups, unless the options say otherwise.
func newBench(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, dir: filepath.Join(t.TempDir(), "keep"), work: t.TempDir()}
	b.open(change...)
	return b
}

func (b *bench) open(change ...func(*Options)) {
	b.t.Helper()
	o := Options{KeepDir: b.dir, KeepCommand: []string{keepProgram}, CgroupParent: "none"}
	for _, f := range change {
		f(&o)
	}
	r, err := Open(o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Runner = r
	b.t.Cleanup(func() { r.Close(); b.sweep() })
}

// sweep ends what a test left running, a failed one's jobs above all.
func (b *bench) sweep() {
	left, _ := os.ReadDir(b.dir)
	for _, entry := range left {
		endKeep(entry.Name())
		for _, p := range withToken(entry.Name()) {
			p.Signal(9)
		}
	}
}

// order is a job that runs a shell line.
func (b *bench) order(id, line string) keep.Order {
	return keep.Order{
		Job: id, Attempt: 1, Argv: []string{"/bin/sh", "-c", line},
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.work}, Dir: b.work, Log: b.log(id), Grace: 10 * time.Second,
	}
}

func (b *bench) log(id string) string { return filepath.Join(b.work, "logs", id+".log") }

// start leases a supervisor and gives it the order.
func (b *bench) start(o keep.Order) (token string) {
	b.t.Helper()
	token, err := b.Lease()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.Go(token, o); err != nil {
		b.t.Fatal(err)
	}
	return token
}

// next waits for an event of that kind; any other fails the test.
func (b *bench) next(kind EventKind) Event {
	b.t.Helper()
	select {
	case e := <-b.Events():
		if e.Kind != kind {
			b.t.Fatalf("got %s, want %s: %+v", e.Kind, kind, e)
		}
		return e
	case <-time.After(testkit.Patience):
		b.t.Fatalf("no %s event came", kind)
	}
	return Event{}
}

// finish runs an order to its end.
func (b *bench) finish(o keep.Order) keep.Record {
	b.t.Helper()
	token := b.start(o)
	b.next(Started)
	e := b.next(Ended)
	b.Ack(token)
	return e.Record
}

func (b *bench) logText(id string) string {
	b.t.Helper()
	text, err := os.ReadFile(b.log(id))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// pidFrom waits until a job has written a process's number to a file.
func (b *bench) pidFrom(name string) keep.Process {
	b.t.Helper()
	var p keep.Process
	testkit.Eventually(b.t, name+" names a process", func() bool {
		text, err := os.ReadFile(filepath.Join(b.work, name))
		var pid int
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			return false
		}
		p, err = keep.ReadProcess(pid)
		return err == nil
	})
	return p
}

// lives reports whether exactly this process is still there.
func lives(p keep.Process) bool {
	now, err := keep.ReadProcess(p.PID)
	return err == nil && now.Start == p.Start && !now.Dead()
}

// gone fails the test if a process that should have ended still lives.
func (b *bench) gone(processes ...keep.Process) {
	b.t.Helper()
	for _, p := range processes {
		if lives(p) {
			p.Signal(9)
			b.t.Errorf("process %d still lives", p.PID)
		}
	}
}
