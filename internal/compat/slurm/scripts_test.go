package slurm_test

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"berth/internal/tests/testkit"
)

var programs string

func TestMain(m *testing.M) {
	os.Exit(testkit.RunWith(m, func(dir string) { programs = dir }, "cmd/berth", "cmd/berth-keep"))
}

// script is one of testdata/scripts.txtar.
type script struct {
	name, text, output, status string
	arguments                  []string
}

func scripts(t *testing.T) (list []script) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/scripts.txtar")
	testkit.Must(t, err)
	for _, file := range archive.Files {
		name, kind, _ := strings.Cut(file.Name, ".")
		if kind == "sh" {
			list = append(list, script{name: name, text: string(file.Data), status: "0"})
			continue
		}
		switch last := &list[len(list)-1]; {
		case last.name != name:
			t.Fatalf("%s is not beside its script", file.Name)
		case kind == "out":
			last.output = string(file.Data)
		case kind == "status":
			last.status = strings.TrimSpace(string(file.Data))
		case kind == "arguments":
			last.arguments = strings.Fields(string(file.Data))
		}
	}
	if len(list) < 30 {
		t.Fatalf("%d scripts", len(list))
	}
	return list
}

// lay writes the scripts where they are to run.
func lay(t *testing.T, dir string, list []script) {
	t.Helper()
	for _, s := range list {
		testkit.Write(t, filepath.Join(dir, s.name+".sh"), s.text, 0o755)
	}
}

// busy is what Slurm's srun says when the step before has just ended.
var busy = regexp.MustCompile(`(?m)^srun: (Job \d+ step creation temporarily disabled, .*|Step created for job \d+)\n`)

// judge compares what a script printed, its tasks in order, with what it should.
func (s *script) judge(t *testing.T, dir, node, status string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "out", s.name+".*"))
	testkit.Must(t, err)
	index := func(file string) int {
		n, _ := strconv.Atoi(file[strings.LastIndex(file, ".")+1:]) // 0: it is no array
		return n
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(index(a), index(b)) })
	var printed strings.Builder
	for _, file := range files {
		printed.WriteString(strings.ReplaceAll(testkit.Read(t, file), node, "NODE"))
	}
	if got := busy.ReplaceAllString(printed.String(), ""); got != s.output || status != s.status {
		t.Errorf("%s: status %s, printed:\n%s\nwant status %s:\n%s", s.name, status, got, s.status, s.output)
	}
}

// TestScriptsWrittenForSlurm do under berth what they do under Slurm.
func TestScriptsWrittenForSlurm(t *testing.T) {
	dir, list := t.TempDir(), scripts(t)
	lay(t, dir, list)
	berth := newBerth(t, dir)
	ids := make([]string, len(list))
	for i, s := range list {
		out, err := berth("berth", append([]string{"submit", "--quiet", "--output", filepath.Join(dir, "out", s.name+".%a"), s.name + ".sh"}, s.arguments...)...)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		ids[i] = out
	}
	node, err := os.Hostname()
	testkit.Must(t, err)
	for i, s := range list {
		_, err := berth("berth", "wait", ids[i])
		status := "0"
		if exit, failed := errors.AsType[*exec.ExitError](err); failed {
			status = strconv.Itoa(exit.ExitCode())
		}
		s.judge(t, dir, node, status)
	}
}

// newBerth starts a private daemon with two simulated GPUs in a directory. The
// function it returns runs berth there, also under the names of Slurm's programs.
func newBerth(t *testing.T, dir string) func(program string, args ...string) (string, error) {
	t.Helper()
	socket, names := filepath.Join(dir, "sock"), filepath.Join(dir, "names")
	testkit.Must(t, os.Mkdir(names, 0o755))
	for _, name := range []string{"berth", "sbatch", "squeue", "scancel", "sinfo", "sacct", "salloc", "srun", "scontrol", "sacctmgr", "sshare"} {
		testkit.Must(t, os.Symlink(filepath.Join(programs, "berth"), filepath.Join(names, name)))
	}
	run := func(program string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(names, program), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "BERTH_SOCKET="+socket, "HOME="+dir)
		out, err := cmd.Output()
		if exit, failed := errors.AsType[*exec.ExitError](err); failed && program == "berth" && exit.ExitCode() == 2 {
			t.Fatalf("berth %q: %s", args, exit.Stderr)
		}
		return strings.TrimSpace(string(out)), err
	}
	daemon := exec.Command(filepath.Join(programs, "berth"), "serve", "--private", "--sim", "2", "--poll", "0.2", "--socket", socket, "--state-dir", filepath.Join(dir, "state"))
	daemon.Env = append(os.Environ(), "HOME="+dir, "PATH="+names+":"+os.Getenv("PATH")) // its names are berth's here
	testkit.Must(t, daemon.Start())
	t.Cleanup(func() {
		_, _ = run("berth", "cancel", "all")
		_, _ = run("berth", "stop")
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	testkit.Eventually(t, "the daemon answers", func() bool { _, err := run("berth", "status"); return err == nil })
	return run
}

// TestTheScriptsUnderARealSlurm: what berth is held to is true.
func TestTheScriptsUnderARealSlurm(t *testing.T) {
	c := testkit.NewSlurm(t, testkit.SlurmSetup{})
	list := scripts(t)
	lay(t, c.Dir, list)
	testkit.Must(t, os.Mkdir(filepath.Join(c.Dir, "out"), 0o755))
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = c.Must(t, "sbatch", append([]string{"--parsable", "--output", filepath.Join(c.Dir, "out", s.name+".%a"), s.name + ".sh"}, s.arguments...)...)
	}
	testkit.Within(t, 4*testkit.Patience, "all have ended", func() bool { return c.Must(t, "squeue", "--noheader") == "" })
	code := regexp.MustCompile(`ExitCode=(\d+):`)
	for i, s := range list {
		found := code.FindStringSubmatch(c.Must(t, "scontrol", "show", "job", ids[i]))
		if found == nil {
			t.Fatalf("Slurm does not know job %s any more", ids[i])
		}
		s.judge(t, c.Dir, "n1", found[1])
	}
}

// aQueue is a queue in which every job but one waits, each for another reason, as
// squeue lists it.
const aQueue = `arr PD Priority gres:gpu:2 [0-3]
dep PD Dependency gres:gpu:2
first R None gres:gpu:2
held PD JobHeldUser gres:gpu:2
later PD BeginTime gres:gpu:2
next PD Resources gres:gpu:2`

// makeQueue submits it.
func makeQueue(t *testing.T, run func(program string, args ...string) (string, error)) string {
	t.Helper()
	id := ""
	for _, args := range []string{"-J first", "-J next", "-J arr --array=0-3", "-H -J held", "-J dep -d afterok:FIRST", "-J later --begin=now+1hour"} {
		words := append(strings.Fields(strings.ReplaceAll(args, "FIRST", id)), "--gres=gpu:2", "--time=10", "--wrap", "sleep 600")
		out, err := run("sbatch", words...)
		number, said := strings.CutPrefix(out, "Submitted batch job ")
		if err != nil || !said {
			t.Fatalf("sbatch %q: %v: %s", words, err, out)
		}
		if id == "" {
			id = number
			testkit.Eventually(t, "the first runs", func() bool { out, _ := run("squeue", "-h", "-n", "first", "-o", "%t"); return out == "R" })
		}
	}
	return id
}

// listed is the queue, without ids.
func listed(t *testing.T, run func(program string, args ...string) (string, error)) (rows string) {
	t.Helper()
	testkit.Eventually(t, "the scheduler has looked", func() bool {
		out, err := run("squeue", "-h", "-o", "%j %t %r %b %i")
		if err != nil {
			return false
		}
		lines := strings.Split(out, "\n")
		for i, line := range lines {
			at := strings.LastIndex(line, " ")
			_, tasks, isArray := strings.Cut(line[at:], "_")
			if lines[i] = line[:at]; isArray {
				lines[i] += " " + tasks
			}
		}
		slices.Sort(lines)
		rows = strings.Join(lines, "\n")
		return rows == aQueue
	})
	return rows
}

// TestTheQueueAsSlurmShowsIt: what squeue says of jobs that wait for each reason,
// and what the other programs do with them.
func TestTheQueueAsSlurmShowsIt(t *testing.T) {
	dir := t.TempDir()
	run := newBerth(t, dir)
	id := makeQueue(t, run)
	listed(t, run)
	if out, err := run("sinfo", "-h", "-o", "%t %D"); err != nil || out != "alloc 1" {
		t.Errorf("sinfo: %s, %v", out, err)
	}
	if out, err := run("scontrol", "show", "job", id); err != nil || !strings.Contains(out, "JobState=RUNNING Reason=None") || !strings.Contains(out, "TimeLimit=00:10:00") || !regexp.MustCompile(`UserId=\w+\(\d+\)`).MatchString(out) || strings.Contains(out, "EndTime=Unknown") {
		t.Errorf("scontrol show job: %s, %v", out, err)
	}
	if _, err := run("scontrol", "update", "JobId="+id, "Priority=3"); err == nil {
		t.Error("a running job was changed")
	}
	for _, args := range []string{"-n held", "-t PENDING", id} {
		if out, err := run("scancel", strings.Fields(args)...); err != nil {
			t.Errorf("scancel %s: %s, %v", args, out, err)
		}
	}
	testkit.Eventually(t, "none is left", func() bool { out, err := run("squeue", "-h"); return err == nil && out == "" })
	if out, err := run("squeue", "-h", "-t", "CA", "-o", "%j %t"); err != nil || !strings.Contains(out, "held CA") || strings.Contains(out, " R") {
		t.Errorf("squeue of cancelled jobs: %s, %v", out, err)
	}
	if out, err := run("squeue", "-j", "99"); err == nil {
		t.Errorf("squeue of an unknown job: %s", out)
	}
	out, err := run("sacct", "-n", "-P", "-o", "JobName,State,ExitCode")
	if err != nil || !strings.Contains(out, "held|CANCELLED|0:0") || strings.Count(out, "\n") != 8 {
		t.Errorf("sacct: %s, %v", out, err)
	}
	for args, want := range map[string]string{
		"-n -P --name held -o JobName":                         "held 0",
		"-n -P --name held,dep --delimiter @ -o JobName,ncpus": "held@1 dep@1 0",
		"-P --name nosuch -o jobidraw,NCPUS,reqtres,MaxRSS":    "JobIDRaw|NCPUS|ReqTRES|MaxRSS 0",
		"-P --name nosuch -b":                                  "JobID|State|ExitCode 0",
		"-n -r nosuch":                                         "0",
		"-n -N nosuch":                                         "0",
		"-n -A lab":                                            "1", "-n -q normal": "1", "-n --units=X": "1",
		"-n -P --units=K --name held -o ReqMem,TotalCPU": "0|00:00:00 0",
	} {
		if got := runner(run).answer(t, "sacct "+args); got != want {
			t.Errorf("sacct %s: %s, want %s", args, got, want)
		}
	}
	if got := runner(run).answer(t, "sacct -P -l --name nosuch"); !strings.HasPrefix(got, "JobID|JobIDRaw|JobName|Partition|MaxVMSize|") {
		t.Errorf("sacct -l: %s", got)
	}
	if out, err := run("sbatch", "-W", "--parsable", "--wrap", "exit 3"); err == nil || out == "" {
		t.Errorf("sbatch --wait of a job that fails: %s, %v", out, err)
	}
	if out, err := run("srun", "sh", "-c", "echo $SLURM_JOB_NAME $CUDA_VISIBLE_DEVICES"); err != nil || out != "sh" {
		t.Errorf("srun: %q, %v", out, err)
	}
	// A script is as it was when it was submitted.
	testkit.Write(t, filepath.Join(dir, "a.sh"), "#!/bin/sh\necho before\n", 0o755)
	if out, err := run("sbatch", "-H", "--parsable", "-o", "a.out", "a.sh"); err != nil {
		t.Errorf("%s, %v", out, err)
	} else {
		testkit.Write(t, filepath.Join(dir, "a.sh"), "#!/bin/sh\necho after\n", 0o755)
		if said, err := run("scontrol", "release", out); err != nil || said != "" {
			t.Errorf("scontrol release: %s, %v", said, err)
		}
		_, _ = run("berth", "wait", out)
		if got := testkit.Read(t, filepath.Join(dir, "a.out")); got != "before\n" {
			t.Errorf("it printed %q", got)
		}
	}
	for program, args := range map[string]string{"squeue": "--bogus", "sinfo": "x", "sacct": "-o Nonsense", "scancel": "", "sbatch": "no-such-file", "scontrol": "dance", "salloc": "-N 4"} {
		if out, err := run(program, strings.Fields(args)...); err == nil {
			t.Errorf("%s %s: %s", program, args, out)
		}
	}
}

// TestTheQueueOfARealSlurm: what berth is held to is true.
func TestTheQueueOfARealSlurm(t *testing.T) {
	c := testkit.NewSlurm(t, testkit.SlurmSetup{})
	makeQueue(t, c.Run)
	listed(t, c.Run)
}
