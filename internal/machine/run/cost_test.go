package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// A short job costs its supervisor one fork, one sync (it has started) and few other
// calls. Those of Go's scheduler depend on the machine.
func TestWhatAShortJobCostsItsSupervisor(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	traces := filepath.Join(t.TempDir(), "trace")
	b := newBench(t, func(o *Options) {
		o.KeepCommand = []string{strace, "-f", "-qq", "-o", traces, "-e", "trace=!futex,nanosleep,epoll_pwait,sched_yield,rt_sigreturn,tgkill,getpid,madvise,mmap,munmap", keepProgram}
	})
	run := func(from, to int) {
		for i := from; i < to; i++ {
			o := b.order(fmt.Sprint(i), "true")
			o.Env, o.LogFreeBytes = []string{"PATH=/bin", "PWD=" + b.work}, 1<<20
			if r := b.finish(o); r.ExitCode != 0 {
				t.Fatalf("job %d: %+v", i, r)
			}
		}
	}
	const jobs = 20
	run(0, 4)
	before, _ := os.ReadFile(traces)
	run(4, 4+jobs)
	text, err := os.ReadFile(traces)
	if err != nil {
		t.Fatal(err)
	}
	program := map[string]bool{} // processes that are the job's by now
	calls, all := map[string]int{}, 0
	call := regexp.MustCompile(`^(\d+) +(\w+)\(`)
	for line := range strings.Lines(string(text[len(before):])) {
		m := call.FindStringSubmatch(line)
		if m == nil || program[m[1]] {
			continue
		}
		program[m[1]] = m[2] == "execve"
		if m[2] != "rt_sigaction" { // each new process resets all signals
			calls[m[2]]++
			all++
		}
	}
	for name, most := range map[string]int{"execve": 1, "fdatasync": 1, "fsync": 0, "rename": 0, "renameat": 0, "mkdirat": 1, "openat": 5, "pwrite64": 4, "clone": 1, "newfstatat": 5} {
		if calls[name] > most*(jobs+1) { // what is left to do for the job before may come late
			t.Errorf("%s: expected at most %d for each job, found %d for %d jobs", name, most, calls[name], jobs)
		}
	}
	if most := 54; all > most*jobs {
		t.Errorf("expected at most %d calls for each job, found %d for %d jobs: %v", most, all, jobs, calls)
	}
	t.Logf("%.1f calls for each job: %v", float64(all)/jobs, calls)
}

// An end that berth does not store is synced by the supervisor: after a moment, and
// before it goes when berth is gone.
func TestAnEndThatBerthDoesNotStoreIsSynced(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	for name, then := range map[string]func(*bench){"no answer": func(*bench) {}, "berth is gone": func(b *bench) { b.Close() }} {
		t.Run(name, func(t *testing.T) {
			traces := filepath.Join(t.TempDir(), "trace")
			b := newBench(t, func(o *Options) {
				o.KeepCommand = []string{strace, "-f", "-qq", "-o", traces, "-e", "trace=fdatasync", keepProgram}
			})
			b.start(b.order("1", "true"))
			b.next(Started)
			b.next(Ended)
			then(b)
			testkit.Eventually(t, "its start and its end are synced", func() bool {
				return strings.Count(testkit.Read(t, traces), "fdatasync(") == 2
			})
		})
	}
}

// The supervisor's timers may be late, but not those of its jobs.
func TestAJobHasItsCallersTimers(t *testing.T) {
	const file = "/proc/self/timerslack_ns"
	own, err := os.ReadFile(file)
	if err != nil {
		t.Skip(err)
	}
	b := newBench(t)
	for id, change := range map[string]func(*keep.Order){"direct": func(*keep.Order) {}, "staged": func(o *keep.Order) { o.Affinity = "0" }} {
		o := b.order(id, "cat "+file)
		change(&o)
		b.finish(o)
		if got := b.logText(id); got != string(own) {
			t.Errorf("%s: expected %s, found %s", id, own, got)
		}
	}
	for token := range b.set.all {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", b.keeper(token).PID))
		if err != nil || string(text) == string(own) {
			t.Errorf("supervisor: %s %v", text, err)
		}
		if name := testkit.Read(t, fmt.Sprintf("/proc/%d/comm", b.keeper(token).PID)); name == "exe\n" {
			t.Errorf("ps shows the supervisor as %q", name)
		}
	}
}
