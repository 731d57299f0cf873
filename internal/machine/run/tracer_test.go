package run

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// Options of a tracer.
const (
	stopAtExit = 0x40    // PTRACE_O_TRACEEXIT
	stopNow    = 1 << 30 // ours
)

// trace seizes every thread of a process and never hears what becomes of them.
func trace(pid, options string) {
	runtime.LockOSThread()
	threads, err := filepath.Glob("/proc/" + pid + "/task/[0-9]*")
	if err != nil || len(threads) == 0 {
		fmt.Println("no threads", err)
		return
	}
	flags, _ := strconv.ParseUint(options, 0, 64)
	for _, thread := range threads {
		tid, _ := strconv.Atoi(filepath.Base(thread))
		const seize, interrupt = 0x4206, 0x4207
		if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, seize, uintptr(tid), 0, uintptr(flags&^stopNow), 0, 0); errno != 0 {
			fmt.Println("seize:", errno)
			return
		}
		if flags&stopNow != 0 {
			unix.RawSyscall6(unix.SYS_PTRACE, interrupt, uintptr(tid), 0, 0, 0, 0)
		}
	}
	fmt.Println("seized")
	<-time.After(time.Hour)
}

// traced has a process of its own trace another.
func traced(t *testing.T, p keep.Process, options int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BERTH_TEST_TRACE="+strconv.Itoa(p.PID), "BERTH_TEST_TRACE_OPTIONS="+strconv.Itoa(options))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if said, _ := bufio.NewReader(out).ReadString('\n'); said != "seized\n" {
		t.Skipf("cannot trace here: %q", said)
	}
	return cmd
}

// The kernel gives a traced process to its tracer first, even a dead one.
func TestATracerKeepsNoJobFromEnding(t *testing.T) {
	stop := func(b *bench, token string) { b.Stop(token, job.StopCancel, 100*time.Millisecond) }
	for _, c := range []struct {
		name, line string
		options    int
		end        func(b *bench, token string)
		want       string
	}{
		{"a zombie", "echo $$ > traced; exec sleep 1000", 0, stop, "stop=cancel exit=-1 signal=9 stragglers=0"},
		{"a zombie with threads", `echo $$ > traced; exec env BERTH_TEST_THREADS=1 "$BERTH_TEST_BINARY"`, 0, stop, "stop=cancel exit=-1 signal=9 stragglers=0"},
		{"one stopped at its exit", "echo $$ > traced; exec sleep 1000", stopAtExit, stop, "stop=cancel exit=-1 signal=9 stragglers=0"},
		{"a process beside the main one", "sleep 1000 & echo $! > traced; wait", 0, stop, "stop=cancel exit=-1 signal=15 stragglers=0"},
		{"a main process that exits by itself", "mkfifo go; echo $$ > traced; read line < go; exit 3", 0,
			func(b *bench, _ string) { b.write("go") }, "stop= exit=3 signal=0 stragglers=0"},
		{"a straggler", "sleep 1000 & echo $! > traced; while [ ! -e go ]; do sleep 0.05; done; exit 4", 0,
			func(b *bench, _ string) { b.write("go") }, "stop= exit=4 signal=0 stragglers=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			o := b.order("1", c.line)
			o.Grace, o.Env = 200*time.Millisecond, append(o.Env, "BERTH_TEST_BINARY="+os.Args[0])
			token := b.start(o)
			b.next(Started)
			p := b.pidFrom("traced")
			if strings.Contains(c.line, "THREADS") {
				testkit.Eventually(t, "it has threads", func() bool {
					now, err := keep.ReadProcess(p.PID)
					return err == nil && now.Threads > 2
				})
			}
			tracer := traced(t, p, c.options)
			c.end(b, token)
			r := b.next(Ended).Record
			if got := fmt.Sprintf("stop=%s exit=%d signal=%d stragglers=%d", r.Stop, r.ExitCode, r.Signal, r.Stragglers); got != c.want {
				t.Errorf("got %s (%s), want %s", got, r.Note, c.want)
			}
			watched := keep.Process{PID: tracer.Process.Pid, Start: startOf(t, tracer.Process.Pid)}
			if c.options != 0 {
				testkit.Eventually(t, "the tracer is gone", func() bool { return !lives(watched) })
			} else if !lives(watched) {
				t.Error("the tracer is gone")
			}
			b.gone(p)
			b.Ack(token)
			// The supervisor's next job would have these zombies beside it.
			testkit.Eventually(t, "the supervisor is not used again", func() bool {
				_, known := b.Identity(token)
				return !known || c.options != 0
			})
		})
	}
}

func startOf(t *testing.T, pid int) uint64 {
	t.Helper()
	p, err := keep.ReadProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p.Start
}

func (b *bench) write(name string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.work, name), []byte("\n"), 0o644); err != nil {
		b.t.Fatal(err)
	}
}
