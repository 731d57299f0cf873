package allocation_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/tests/testkit"
)

// bench is a Slurm with a directory in which a jobs file is run.
type bench struct {
	*testkit.Slurm
	t   *testing.T
	dir string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel() // they mostly wait
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Nodes: 2, GPUs: 2, CPUs: 4, Conf: []string{"KillWait=20"}})
	b := &bench{Slurm: s, t: t, dir: filepath.Join(s.Dir, "work")}
	testkit.Must(t, os.MkdirAll(filepath.Join(b.dir, "runs"), 0o755))
	t.Cleanup(func() { _, _ = s.Run("scancel", "--user=root") })
	return b
}

// job is a line that counts its runs, and says so if another run of it goes on. It
// ends when the file "go" is there, or one of its own.
func (b *bench) job(i int) string {
	return fmt.Sprintf(`[gpus=0 name=j%d] exec 9>runs/%[1]d; flock -n 9 || { echo twice >>twice; exit 9; }; echo begun >>begun.%[1]d; `+
		`while [ ! -e go ] && [ ! -e go.%[1]d ]; do sleep 0.1 9>&-; done; echo done >>done.%[1]d`, i)
}

func (b *bench) jobs(n int) {
	var lines []string
	for i := range n {
		lines = append(lines, b.job(i+1))
	}
	testkit.Write(b.t, filepath.Join(b.dir, "jobs.txt"), strings.Join(lines, "\n")+"\n")
}

// front is a berth run that asks for allocations.
type front struct {
	cmd  *exec.Cmd
	out  *testkit.Buffer
	done chan error
}

// start asks for so many allocations.
func (b *bench) start(allocations int, alloc string, args ...string) *front {
	b.t.Helper()
	f := &front{out: &testkit.Buffer{}, done: make(chan error, 1)}
	f.cmd = exec.Command(filepath.Join(programs, "berth"), append([]string{"run", "jobs.txt", "--to", "slurm", "--poll", "0.2", "--allocations", strconv.Itoa(allocations), "--alloc", alloc}, args...)...)
	f.cmd.Dir, f.cmd.Stdout, f.cmd.Stderr = b.dir, f.out, f.out
	f.cmd.Env = append(b.Env(), "BERTH_ALLOCATION_SILENT=5", "HOME="+b.dir, "TMPDIR="+b.dir)
	testkit.Must(b.t, f.cmd.Start())
	go func() { f.done <- f.cmd.Wait() }()
	b.t.Cleanup(func() {
		_ = f.cmd.Process.Kill()
		if b.t.Failed() {
			b.t.Logf("berth run printed:\n%s", f.out)
		}
	})
	return f
}

// wait waits for a front to end and returns its exit status.
func (b *bench) wait(f *front) int {
	b.t.Helper()
	var err error
	testkit.Within(b.t, 4*testkit.Patience, "berth run ends:\n"+f.out.String(), func() bool {
		select {
		case err = <-f.done:
			return true
		default:
			return false
		}
	})
	if exit, failed := err.(*exec.ExitError); failed {
		return exit.ExitCode()
	}
	return 0
}

// finish lets n jobs end, and checks that the run ends well.
func (b *bench) finish(f *front, n int) {
	b.t.Helper()
	b.open()
	if code := b.wait(f); code != 0 {
		b.t.Errorf("exit status %d", code)
	}
	b.each(n)
}

func (b *bench) open() { testkit.Write(b.t, filepath.Join(b.dir, "go"), "") }

// count is how many of n jobs have a file of this name.
func (b *bench) count(name string, n int) (found int) {
	for i := range n {
		if _, err := os.Stat(filepath.Join(b.dir, fmt.Sprintf("%s.%d", name, i+1))); err == nil {
			found++
		}
	}
	return found
}

// each checks that each of n jobs ended exactly once, and never ran twice at a time.
func (b *bench) each(n int) {
	b.t.Helper()
	for i := range n {
		raw, _ := os.ReadFile(filepath.Join(b.dir, fmt.Sprintf("done.%d", i+1)))
		if got := strings.Count(string(raw), "done"); got != 1 {
			b.t.Errorf("job %d ended %d times", i+1, got)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "twice")); err == nil {
		b.t.Error("a job ran twice at the same time")
	}
}

func (b *bench) asked(f *front) int { return strings.Count(f.out.String(), " asked for: Slurm job") }

// inSlurm waits until Slurm has only a job of this name. A script may leave its end
// marker a moment before Slurm knows that it has ended.
func (b *bench) inSlurm(name string) {
	b.t.Helper()
	testkit.Eventually(b.t, "Slurm has only: "+name, func() bool { return b.Must(b.t, "squeue", "-h", "-o", "%j") == name })
}

const alloc = "--gres=gpu:1 --cpus-per-task=4 --time=1:00:00"

// TestFortyJobsInTwoAllocations run once each, also if the front is killed midway.
func TestFortyJobsInTwoAllocations(t *testing.T) {
	const n = 40
	b := newBench(t)
	b.jobs(n)
	first := b.start(2, alloc)
	testkit.Eventually(t, "both allocations have jobs", func() bool { return strings.Count(first.out.String(), " began on ") == 2 && b.count("begun", n) > 1 })
	second := b.start(2, alloc)
	if code := b.wait(second); code != 1 || !strings.Contains(second.out.String(), "another berth run is using") {
		t.Errorf("a second front: %d: %s", code, second.out)
	}
	testkit.Must(t, first.cmd.Process.Kill())
	<-first.done
	b.open()
	again := b.start(2, alloc)
	if code := b.wait(again); code != 0 {
		t.Errorf("exit status %d", code)
	}
	b.each(n)
	if b.asked(again) != 0 || !strings.Contains(again.out.String(), "40 ok") {
		t.Errorf("it asked again, or counts wrongly:\n%s", again.out)
	}
	b.inSlurm("")
	if board := testkit.Read(t, filepath.Join(b.dir, "berth_logs", "status.txt")); strings.Count(board, "berth_logs/alloc/") != n {
		t.Errorf("the board does not say where each log is:\n%s", board)
	}
	over := b.start(2, alloc)
	if code := b.wait(over); code != 0 || b.asked(over) != 0 {
		t.Errorf("after the end: %d: %s", code, over.out)
	}
	b.journal(n)
}

// TestAFrontKilledOften, at any moment, loses no job and runs none twice.
func TestAFrontKilledOften(t *testing.T) {
	const n = 30
	b := newBench(t)
	b.jobs(n)
	b.open()
	for lines := range 8 {
		f := b.start(2, alloc)
		over := false
		testkit.Eventually(t, "it does something", func() bool {
			select {
			case <-f.done:
				over = true
			default:
			}
			return over || strings.Count(f.out.String(), "\n") >= lines*2
		})
		if over {
			break
		}
		_ = f.cmd.Process.Kill() // it may have ended at this moment
		<-f.done
	}
	last := b.start(2, alloc)
	if code := b.wait(last); code != 0 {
		t.Errorf("exit status %d", code)
	}
	b.each(n)
	b.journal(n)
	b.inSlurm("")
}

// TestAClosedTerminal: the front goes on, and the same command takes over from it.
func TestAClosedTerminal(t *testing.T) {
	const n = 12
	b := newBench(t)
	b.jobs(n)
	first := b.start(1, alloc)
	testkit.Eventually(t, "jobs run", func() bool { return b.count("begun", n) > 1 })
	testkit.Must(t, first.cmd.Process.Signal(syscall.SIGHUP))
	lock := filepath.Join(b.dir, "berth_logs", "alloc", "lock")
	testkit.Eventually(t, "it has noticed", func() bool { return strings.Contains(testkit.Read(t, lock), "without a terminal") })
	again := b.start(1, alloc)
	if code := b.wait(first); code != 0 || !strings.Contains(first.out.String(), "leaving the allocations to another berth run") {
		t.Errorf("exit status %d", code)
	}
	b.open()
	if code := b.wait(again); code != 0 || b.asked(again) != 0 {
		t.Errorf("exit status %d", code)
	}
	b.each(n)
}

// journal checks that the front's own journal has every end once.
func (b *bench) journal(n int) {
	b.t.Helper()
	ends := map[string]int{}
	for line := range strings.Lines(testkit.Read(b.t, filepath.Join(b.dir, "berth_logs", "journal.jsonl"))) {
		var r struct {
			Event string
			Job   *struct{ ID string }
		}
		testkit.Must(b.t, json.Unmarshal([]byte(line), &r))
		if r.Event == "ended" {
			ends[r.Job.ID]++
		}
	}
	for i := range n {
		if ends[strconv.Itoa(i+1)] != 1 {
			b.t.Errorf("job %d has %d ends in the journal", i+1, ends[strconv.Itoa(i+1)])
		}
	}
}

// TestACancelledAllocation: what it did not finish goes to others, and another one
// takes its place while the rest goes on, with and without a front to see it end.
func TestACancelledAllocation(t *testing.T) {
	const n = 20 // more than one allocation takes
	b := newBench(t)
	b.jobs(n)
	f := b.start(2, alloc)
	testkit.Eventually(t, "both have jobs", func() bool {
		return strings.Contains(f.out.String(), "started on n1") && strings.Contains(f.out.String(), "started on n2")
	})
	cancel := func() { b.Must(t, "scancel", "--name="+strings.Fields(b.Must(t, "squeue", "-h", "-o", "%j"))[0]) }
	cancel()
	testkit.Eventually(t, "another one began", func() bool { return b.asked(f) == 3 && strings.Count(f.out.String(), " began on ") == 3 })
	testkit.Must(t, f.cmd.Process.Kill())
	<-f.done
	cancel()
	again := b.start(2, alloc)
	testkit.Eventually(t, "one more began", func() bool { return strings.Contains(again.out.String(), "allocation 4 began on ") })
	if all := b.Must(t, "squeue", "-h", "-t", "PD,R", "-o", "%j"); len(strings.Fields(all)) != 2 {
		t.Errorf("in Slurm: %q", all)
	}
	b.finish(again, n)
	if got := b.asked(again); got != 1 {
		t.Errorf("%d were asked for", got)
	}
}

// TestAllocationsThatStartNothing: berth asks for three in a row, says why it stops,
// and leaves the rest to the others.
func TestAllocationsThatStartNothing(t *testing.T) {
	const n = 20
	b := newBench(t)
	b.jobs(n)
	f := b.start(2, alloc+" --nodelist=n1") // a second one has no place
	for i := range 3 {
		testkit.Eventually(t, "one runs, one waits", func() bool {
			return b.count("begun", n) > 1 && b.asked(f) == 2+i && b.Must(t, "squeue", "-h", "-t", "PD", "-o", "%j") != ""
		})
		b.Must(t, "scancel", "--state=PENDING", "--user=root")
		testkit.Eventually(t, "it says so", func() bool { return strings.Count(f.out.String(), "ended in Slurm before it began") == i+1 })
	}
	testkit.Eventually(t, "it stops", func() bool {
		return strings.Contains(f.out.String(), "the last 3 allocations ended before they started a job; berth asks for no more")
	})
	b.finish(f, n)
	if got := b.asked(f); got != 4 {
		t.Errorf("%d were asked for", got)
	}
}

// TestTheControllerDies midway, and forgets an allocation that it had accepted.
func TestTheControllerDies(t *testing.T) {
	const n = 10
	b := newBench(t)
	b.jobs(n)
	f := b.start(2, alloc+" --nodelist=n1")
	testkit.Eventually(t, "one runs, one waits", func() bool {
		return strings.Count(f.out.String(), " began on ") == 1 && b.asked(f) == 2 && b.count("begun", n) > 1
	})
	b.KillController(t)
	testkit.Eventually(t, "it says so", func() bool { return strings.Contains(f.out.String(), "Slurm does not answer") })
	b.StartController(t)
	testkit.Eventually(t, "it says that too", func() bool { return strings.Contains(f.out.String(), "Slurm answers again") })
	b.finish(f, n)
}

// TestSlurmForgets everything: an allocation that never began is asked for again,
// and the jobs of one that ran are run again only after it has ended.
func TestSlurmForgets(t *testing.T) {
	const n = 8
	b := newBench(t)
	b.jobs(n)
	f := b.start(2, alloc+" --nodelist=n1")
	testkit.Eventually(t, "one runs, one waits", func() bool {
		return strings.Count(f.out.String(), " began on ") == 1 && b.asked(f) == 2 && b.count("begun", n) > 1
	})
	b.KillController(t)
	b.ForgetState(t)
	b.StartController(t)
	b.Must(t, "sbatch", "--hold", "-o", "/dev/null", "--wrap", "true") // takes one of their ids
	testkit.Within(t, 2*testkit.Patience, "it asks again", func() bool { return b.asked(f) > 2 })
	b.finish(f, n)
	b.inSlurm("wrap") // somebody else's job is left alone
}

// TestAKilledAllocation leaves no word of its end.
func TestAKilledAllocation(t *testing.T) {
	const n = 4
	b := newBench(t)
	b.jobs(n)
	f := b.start(1, alloc)
	testkit.Eventually(t, "jobs run", func() bool { return b.count("begun", n) > 1 })
	var marker struct{ PID int }
	testkit.Must(t, json.Unmarshal([]byte(testkit.Read(t, filepath.Join(b.dir, "berth_logs", "alloc", "1", "0.begun"))), &marker))
	testkit.Must(t, syscall.Kill(marker.PID, syscall.SIGKILL))
	testkit.Eventually(t, "another one is asked for", func() bool { return b.asked(f) == 2 })
	if !strings.Contains(f.out.String(), "allocation 1 was killed") {
		t.Error("it does not say what happened")
	}
	b.finish(f, n)
}

// TestAFrontKilledWhileItAsks asks again, but only for what Slurm does not have.
func TestAFrontKilledWhileItAsks(t *testing.T) {
	b := newBench(t)
	b.jobs(2)
	b.open()
	testkit.Write(t, filepath.Join(b.dir, "berth_logs", "alloc", "ledger.jsonl"), `{"run":"0a0b0c0d"}`+"\n"+`{"ask":1}`+"\n"+`{"ask":`)
	testkit.Must(t, os.Mkdir(filepath.Join(b.dir, "berth_logs", "alloc", "1"), 0o755))
	f := b.start(1, alloc)
	if code := b.wait(f); code != 0 || b.asked(f) != 1 || !strings.Contains(f.out.String(), "allocation 2 asked for") {
		t.Errorf("exit status %d", code)
	}
	b.each(2)
	if marker := testkit.Read(t, filepath.Join(b.dir, "berth_logs", "alloc", "1", "0.begun")); !strings.Contains(marker, `"taken":true`) {
		t.Errorf("the first could still begin: %s", marker)
	}
}

// TestNothingGetsDone: berth gives up after some allocations, and goes on when it
// is asked to.
func TestNothingGetsDone(t *testing.T) {
	b := newBench(t)
	testkit.Write(t, filepath.Join(b.dir, "jobs.txt"), "[gpus=1] echo done >>done.1\n") // no node has a GPU that berth could use
	f := b.start(1, alloc)
	if code := b.wait(f); code != 1 || b.asked(f) != 3 || !strings.Contains(f.out.String(), "this machine has no GPU") || !strings.Contains(f.out.String(), "1 job left") {
		t.Errorf("exit status %d", code)
	}
	again := b.start(1, alloc, "--sim", "2")
	if code := b.wait(again); code != 0 {
		t.Errorf("exit status %d", code)
	}
	b.each(1)
}

// TestCtrlC stops the jobs; the same command goes on.
func TestCtrlC(t *testing.T) {
	const n = 6
	b := newBench(t)
	b.jobs(n)
	f := b.start(1, alloc)
	testkit.Eventually(t, "jobs run", func() bool { return b.count("begun", n) > 1 })
	testkit.Must(t, f.cmd.Process.Signal(syscall.SIGINT))
	if code := b.wait(f); code != 130 || !strings.Contains(f.out.String(), "6 left") {
		t.Errorf("exit status %d: %s", code, f.out)
	}
	b.inSlurm("")
	b.open()
	again := b.start(1, alloc)
	if code := b.wait(again); code != 0 {
		t.Errorf("exit status %d", code)
	}
	b.each(n)
}

// TestTimeIsUp: the jobs of an allocation at its time limit go to the next one.
func TestTimeIsUp(t *testing.T) {
	const n = 5
	b := newBench(t)
	b.jobs(n)
	testkit.Write(t, filepath.Join(b.dir, "go.1"), "")
	f := b.start(1, "--gres=gpu:1 --cpus-per-task=4 --time=2")
	testkit.Within(t, 5*testkit.Patience, "its time is up", func() bool {
		return strings.Contains(f.out.String(), " to run elsewhere")
	})
	b.finish(f, n)
}

// TestDependenciesAndFailures: a line waits for others in any allocation, and a
// job that fails is the run's exit status.
func TestDependenciesAndFailures(t *testing.T) {
	b := newBench(t)
	testkit.Write(t, filepath.Join(b.dir, "jobs.txt"), `[gpus=0 name=a] sleep 1; echo a >>order
[gpus=0 name=bad] exit 3
[gpus=0 name=c after=a] echo c >>order
[gpus=0 name=never after=bad] echo never >>order
[gpus=0 name=d after=c,bad:any] echo d >>order
[gpus=0 name=late after=a dir=/nowhere] echo late >>order
`)
	f := b.start(3, alloc)
	if code := b.wait(f); code != 3 {
		t.Errorf("exit status %d", code)
	}
	if got := testkit.Read(t, filepath.Join(b.dir, "order")); got != "a\nc\nd\n" {
		t.Errorf("order %q\n%s", got, f.out)
	}
	if !strings.Contains(f.out.String(), "3 ok, 2 failed, 1 cancelled") {
		t.Errorf("%s", f.out)
	}
}

// TestFreshRetryAndEdits: failed jobs run again if they are meant to, all of them
// with --fresh, and lines that are added while it runs.
func TestFreshRetryAndEdits(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(b.dir, "jobs.txt")
	testkit.Write(t, file, "[gpus=0] echo a >>a\n[gpus=0] echo b >>b; exit $(cat code)\n")
	testkit.Write(t, filepath.Join(b.dir, "code"), "3")
	ran := func(want string, status int, args ...string) {
		t.Helper()
		f := b.start(5, alloc, args...)
		code := b.wait(f)
		got := fmt.Sprintf("%d %d", strings.Count(testkit.Read(t, filepath.Join(b.dir, "a")), "a"), strings.Count(testkit.Read(t, filepath.Join(b.dir, "b")), "b"))
		if code != status || got != want || b.asked(f) > 2 {
			t.Errorf("%q: exit status %d, ran %s times, want %d and %s", args, code, got, status, want)
		}
	}
	ran("1 1", 3)
	ran("1 1", 3)
	testkit.Write(t, filepath.Join(b.dir, "code"), "0")
	ran("1 2", 0, "--retry-failed")
	ran("1 2", 0)
	ran("2 3", 0, "--fresh")
	testkit.Write(t, file, testkit.Read(t, file)+b.job(1)+"\n")
	f := b.start(1, alloc, "--json")
	testkit.Eventually(t, "the new line runs", func() bool { return b.count("begun", 1) == 1 })
	testkit.Write(t, file, testkit.Read(t, file)+b.job(2)+"\n")
	testkit.Eventually(t, "the newest line runs", func() bool { return b.count("begun", 2) == 2 })
	b.open()
	if code := b.wait(f); code != 0 || !strings.Contains(f.out.String(), `"event":"summary"`) {
		t.Errorf("exit status %d", code)
	}
	b.each(2)
}

// TestWhatSlurmRefuses is said in its words.
func TestWhatSlurmRefuses(t *testing.T) {
	b := newBench(t)
	b.jobs(1)
	f := b.start(1, "--partition=nowhere")
	if code := b.wait(f); code != 1 || !strings.Contains(f.out.String(), "invalid partition specified: nowhere") {
		t.Errorf("exit status %d: %s", code, f.out)
	}
	testkit.Write(t, filepath.Join(b.dir, "jobs.txt"), "true\n[dir=/nowhere] true\n")
	f = b.start(1, alloc)
	if code := b.wait(f); code != 2 || !strings.Contains(f.out.String(), "jobs.txt:2: ") || b.asked(f) > 0 {
		t.Errorf("exit status %d: %s", code, f.out)
	}
}
