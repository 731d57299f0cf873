package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/slurm/cluster"
	"berth/internal/tests/testkit"
)

// TestSubmitAndShow: the ways to submit a job, and the verbs that show it, are those
// of any job.
func TestSubmitAndShow(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{CPUs: 8, Nodes: 2, Conf: []string{"PartitionName=low Nodes=ALL"}})
	testkit.Write(t, b.file("sbatch.sh"), "#!/bin/sh\n#SBATCH --partition=low -w n2\n#SBATCH --requeue\necho $SLURM_JOB_PARTITION $SLURMD_NODENAME ${SLURM_JOB_GPUS-none}\n")
	testkit.Write(t, b.file("job.sh"), "#!/bin/sh\n#BERTH --to slurm --gpus 0 --name scripted\necho \"script $1 $2\"\nexit 4\n", 0o755)
	testkit.Write(t, b.file("jobs.yaml"), `- {command: 'echo "first of yaml"', to: slurm, gpus: 0, name: y1}
- {command: [echo, "second  of", yaml], to: slurm, gpus: 1, name: y2}
`)
	shell := b.submit("--", `echo "it's" | tr a-z A-Z; exit 3`)
	argv := b.submit("--", "printf", `%s|`, `a b`, `c"d`, `$HOME`, "e'f", "\n")
	script := b.must("submit", "--quiet", "job.sh", "one word", "2")
	forSlurm := b.must("submit", "--quiet", "--to", "slurm", "sbatch.sh")
	listed := strings.Fields(b.must("submit", "--quiet", "-f", "jobs.yaml"))
	local := b.must("submit", "--quiet", "--to", "local", "--name", "here", "--", "echo local")
	contains(t, b.must("list", "--all"), "scripted", "y2", "here")
	for _, row := range []struct {
		id, outcome string
		status      int
		log         string
	}{
		{shell, "exit:3", 3, "IT'S\n"},
		{argv, "ok", 0, "a b|c\"d|$HOME|e'f|\n|"},
		{script, "exit:4", 4, "script one word 2\n"},
		{forSlurm, "ok", 0, "low n2 none\n"},
		{listed[0], "ok", 0, "first of yaml\n"},
		{listed[1], "ok", 0, "second  of yaml\n"},
		{local, "ok", 0, "local\n"},
	} {
		b.printed(b.ends(row.id, row.outcome), row.log)
		if out := b.must("logs", row.id); out != strings.TrimSpace(row.log) {
			t.Errorf("logs %s: %q", row.id, out)
		}
		if _, status := b.run("wait", row.id); row.status != status {
			t.Errorf("wait %s: status %d", row.id, status)
		}
	}
	contains(t, b.must("show", shell), "exit:3", "slurm", "in Slurm's queue as", "started: on n")
	contains(t, b.must("why", shell), "failed with exit code 3")
	contains(t, b.must("history"), "scripted", "exit:4", "y1", "here")
	contains(t, b.must("stats"), "5 finished, 2 failed")
	contains(t, b.must("list", "--all", "--json"), `"outcome":"exit:3"`, `"name":"y1"`)
	contains(t, b.must("show", listed[1], "--json"), `"to":"slurm"`, `"gpus":1`, `"charged_gpus":1`)
}

// contains checks a text for others.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in\n%.3000s", part, text)
		}
	}
}

// printed checks the log of a job.
func (b *berth) printed(v view, want string) {
	b.t.Helper()
	raw, err := os.ReadFile(word(v.Log))
	if err != nil || string(raw) != want {
		b.t.Errorf("%s printed %q (%v), want %q", v, raw, err, want)
	}
}

// TestVerbsInSlurmsQueue: a job that waits in Slurm's queue says why, and can be held,
// released, changed and cancelled there.
func TestVerbsInSlurmsQueue(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{GPUs: 1})
	runs := b.submit("--gpus", "1", "--", "exec sleep 1000")
	b.running(runs)
	next := b.submit("--gpus", "1", "--", "echo next")
	b.waits(next, "in Slurm's queue as")
	b.until(next, "waiting for resources", func(v *view) bool { return strings.Contains(v.reason(), "waits for ") })
	behind := b.submit("--gpus", "1", "--name", "behind", "--", "echo never")
	b.until(behind, "behind others", func(v *view) bool { return strings.Contains(v.reason(), "other jobs") })
	contains(t, b.must("why", next), "in Slurm's queue as")
	contains(t, b.must("list"), "behind")

	b.must("hold", next)
	b.until(next, "held", func(v *view) bool { return v.Held })
	testkit.Eventually(t, "Slurm holds it", func() bool { return strings.Contains(b.slurm.Must(t, "squeue", "-h", "-o", "%r"), "JobHeldUser") })
	contains(t, b.must("why", next), "held until released", "in Slurm's queue")
	b.must("release", next)
	testkit.Eventually(t, "Slurm released it", func() bool { return !strings.Contains(b.slurm.Must(t, "squeue", "-h", "-o", "%r"), "JobHeld") })
	if v := b.show(next); v.Held || v.State != "queued" {
		t.Errorf("released: %s", v)
	}

	b.must("edit", next, "--time", "5m", "--cpus", "2", "--", "echo changed")
	testkit.Eventually(t, "Slurm has the changed job", func() bool {
		return strings.Contains(b.slurm.Must(t, "squeue", "-h", "-t", "PENDING", "-o", "%l %c"), "5:00 2")
	})
	b.must("cancel", behind)
	if v := b.ends(behind, "cancelled"); v.Attempt != 0 {
		t.Errorf("%s", v)
	}
	b.must("cancel", runs)
	b.ends(runs, "cancelled")
	b.printed(b.ends(next, "ok"), "changed\n")
	testkit.Eventually(t, "Slurm's queue is empty", func() bool { return b.slurm.Must(t, "squeue", "-h") == "" })
}

// TestVerbsOnRunningJobs: a job on a node can be followed, waited for, requeued and
// cancelled.
func TestVerbsOnRunningJobs(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{GPUs: 1})
	followed := b.submit("--", "echo one; while [ ! -e go ]; do sleep 0.1; done; echo two; exit 9")
	waited := b.command("wait", followed)
	testkit.Must(t, waited.Start())
	b.running(followed)
	var said testkit.Buffer
	follow := b.command("logs", "-f", followed)
	follow.Stdout = &said
	testkit.Must(t, follow.Start())
	testkit.Eventually(t, "the first line is there", func() bool { return said.String() == "one\n" })
	testkit.Write(t, b.file("go"), "")
	testkit.Must(t, follow.Wait())
	if said.String() != "one\ntwo\n" {
		t.Errorf("logs -f: %q", said.String())
	}
	if _ = waited.Wait(); waited.ProcessState.ExitCode() != 9 {
		t.Errorf("wait: %v", waited.ProcessState)
	}

	again := b.submit("--", "echo x >>ran; [ -e second ] || exec sleep 1000")
	b.running(again)
	testkit.Eventually(t, "it prints", func() bool { raw, _ := os.ReadFile(b.file("ran")); return string(raw) == "x\n" })
	testkit.Write(t, b.file("second"), "")
	b.must("requeue", again)
	if v := b.ends(again, "ok"); v.Attempt != 2 || testkit.Read(t, b.file("ran")) != "x\nx\n" {
		t.Errorf("%s ran as %q", v, testkit.Read(t, b.file("ran")))
	}
	b.must("requeue", again)
	b.until(again, "run a third time", func(v *view) bool { return v.over() && v.Attempt == 3 })

	stubborn := b.submit("--grace", "1", "--", "trap '' TERM; echo deaf; while :; do sleep 0.1; done")
	b.running(stubborn)
	b.must("cancel", stubborn)
	if v := b.ends(stubborn, "cancelled"); !strings.Contains(v.reason(), "cancelled by root") {
		t.Errorf("%s", v)
	}
}

// TestArrays: a hundred tasks, and a limit that is never exceeded.
func TestArrays(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{Nodes: 2, CPUs: 8})
	testkit.Must(t, os.Mkdir(b.file("ran"), 0o755), os.Mkdir(b.file("now"), 0o755))
	all := b.submit("--array", "0-99", "--", "echo x >>ran/$BERTH_ARRAY_INDEX")
	few := b.submit("--array", "5-12%2", "--", `echo >now/$BERTH_ARRAY_INDEX; ls now | wc -l >>count; sleep 0.3; rm now/$BERTH_ARRAY_INDEX`)
	if out, status := b.run("wait", all, few); status != 0 {
		t.Errorf("wait: %s", out)
	}
	b.ranOnce("ran", 100)
	for n := range strings.Lines(testkit.Read(t, b.file("count"))) {
		if n != "1\n" && n != "2\n" {
			t.Errorf("%s tasks ran at a time", strings.TrimSpace(n))
		}
	}
	if n := strings.Count(testkit.Read(t, b.file("count")), "\n"); n != 8 {
		t.Errorf("%d of 8 tasks ran", n)
	}
	named := b.submit("--array", "1-3", "--output", "out-%A-%a-%n", "--name", "named", "--", "echo task $BERTH_ARRAY_INDEX of $SLURM_ARRAY_TASK_MAX, ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; exit $BERTH_ARRAY_INDEX")
	out, status := b.run("wait", named)
	if status != 3 {
		t.Errorf("wait for an array: status %d, %s", status, out)
	}
	files, _ := filepath.Glob(b.file("out-*-2-named"))
	if len(files) != 1 || testkit.Read(t, files[0]) != "task 2 of 3, "+word(b.show(named+"_2").Slurm.ID)+"\n" {
		t.Errorf("its output: %v", files)
	}
}

// ranOnce checks that n jobs each left one line in a file of their own.
func (b *berth) ranOnce(dir string, n int) {
	b.t.Helper()
	files, err := os.ReadDir(b.file(dir))
	testkit.Must(b.t, err)
	if len(files) != n {
		b.t.Errorf("%d of %d jobs ran", len(files), n)
	}
	for _, f := range files {
		if raw, _ := os.ReadFile(filepath.Join(b.file(dir), f.Name())); string(raw) != "x\n" {
			b.t.Errorf("job %s ran as %q", f.Name(), raw)
		}
	}
}

// TestDependencies: between jobs of Slurm and of this machine, in either direction.
func TestDependencies(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{CPUs: 8})
	local := func(args ...string) string {
		return b.must(append([]string{"submit", "--quiet", "--to", "local", "--gpus", "0"}, args...)...)
	}
	a := b.submit("--", "while [ ! -e go ]; do sleep 0.1; done; echo a >>order")
	second := b.submit("--after", a, "--", "echo b >>order")
	here := local("--after", second, "--", "echo c >>order")
	there := b.submit("--after", here+":ok", "--", "echo d >>order; exit 1")
	fails := b.submit("--after", there+":fail", "--", "echo e >>order")
	anyway := b.submit("--after", there+":any", "--after", fails, "--", "echo f >>order")
	never := b.submit("--after", there, "--", "echo never >>order")
	neither := local("--after", there, "--", "echo never >>order")
	begun := time.Now()
	late := b.submit("--begin", "now+3", "--", "date +%s.%N")
	b.running(a)
	contains(t, b.must("why", second), "waits for job "+a)
	testkit.Write(t, b.file("go"), "")
	for id, outcome := range map[string]string{a: "ok", second: "ok", here: "ok", there: "exit:1", fails: "ok", anyway: "ok", never: "dependency", neither: "dependency"} {
		b.ends(id, outcome)
	}
	if got := testkit.Read(t, b.file("order")); got != "a\nb\nc\nd\ne\nf\n" {
		t.Errorf("they ran in the order %q", got)
	}
	b.ends(late, "ok")
	var started float64
	if _, err := fmt.Sscan(b.must("logs", late), &started); err != nil || started < float64(begun.Unix())+3 {
		t.Errorf("it began at %f, submitted at %d: %v", started, begun.Unix(), err)
	}
}

// TestRetriesAndTimeouts: berth retries what Slurm ran.
func TestRetriesAndTimeouts(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{CPUs: 8})
	third := b.submit("--retries", "2", "--retry-on", "fail", "--", "echo x >>third; [ $(wc -l <third) = 3 ]")
	never := b.submit("--retries", "1", "--retry-on", "fail", "--", "echo x >>never; exit 5")
	slow := b.submit("--time", "2", "--grace", "1", "--", "exec sleep 1000")
	later := b.submit("--time", "2", "--on-timeout", "requeue", "--", "echo x >>later; [ $(wc -l <later) = 2 ] || exec sleep 1000")
	killed := b.submit("--", "kill -SEGV $$")
	if v := b.ends(third, "ok"); v.Attempt != 3 {
		t.Errorf("%s", v)
	}
	if v := b.ends(never, "exit:5"); v.Attempt != 2 || testkit.Read(t, b.file("never")) != "x\nx\n" {
		t.Errorf("%s", v)
	}
	b.ends(slow, "timeout")
	if _, status := b.run("wait", slow); status != 124 {
		t.Errorf("wait for a timeout: %d", status)
	}
	if v := b.ends(later, "ok"); v.Attempt != 2 {
		t.Errorf("%s", v)
	}
	if v := b.ends(killed, "signal:SEGV"); word(v.Signal) != "SEGV" {
		t.Errorf("%s", v)
	}
}

// TestTheEnvironmentOfAJob is as it was where it was submitted.
func TestTheEnvironmentOfAJob(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{})
	testkit.Must(t, os.Mkdir(b.file("a dir"), 0o755))
	b.env = append(b.env, "SPACED= a  b ", "LINES2=one\ntwo", "QUOTED='\"`$x", "EMPTY=")
	captured := b.submit("--", `printf '%s|' "$SPACED" "$LINES2" "$QUOTED" "${EMPTY-unset}"`)
	given := b.submit("-C", b.file("a dir"), "-e", "A=b c", "-e", "SPACED=other", "--setup", "export S='set up'", "--", `pwd; echo "$A|$S|$SPACED"`)
	none := b.submit("--export", "none", "-e", "A=1", "--", `echo "${SPACED-unset} $A $BERTH_JOB_ID"`)
	argv := b.submit("--output", "log of %j.txt", "--", "sh", "-c", `echo "$0" "$@"`, "", "a  b", "*", `\`)
	masked, status := outcome(masks(b, "027"))
	if status != 0 {
		t.Fatal(masked)
	}
	b.printed(b.ends(captured, "ok"), " a  b |one\ntwo|'\"`$x||")
	b.printed(b.ends(given, "ok"), b.file("a dir")+"\nb c|set up|other\n")
	b.printed(b.ends(none, "ok"), "unset 1 "+none+"\n")
	v := b.ends(argv, "ok")
	if b.printed(v, " a  b * \\\n"); word(v.Log) != b.file("log of "+argv+".txt") {
		t.Errorf("its log is %s", word(v.Log))
	}
	b.ends(masked, "ok")
	if info, err := os.Stat(b.file("made")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("made with umask 027: %v, %v", info.Mode(), err)
	}
}

// masks submits under another umask.
func masks(b *berth, mask string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", "umask "+mask+`; exec "$@"`, "sh", filepath.Join(cluster.Programs(), "berth"), "submit", "--quiet", "--to", "slurm", "--gpus", "0", "--", "touch made")
	cmd.Env, cmd.Dir = b.env, b.dir
	return cmd
}

// long is whether there is time for the long form of a test.
func long() bool { return os.Getenv("BERTH_LONG") != "" }

// TestAThousandJobs: each runs exactly once.
func TestAThousandJobs(t *testing.T) {
	t.Parallel()
	tasks, singles := 150, 30
	if long() {
		tasks, singles = 900, 100
	}
	b := newBerth(t, testkit.SlurmSetup{Nodes: 2, CPUs: 16})
	testkit.Must(t, os.Mkdir(b.file("ran"), 0o755))
	var ids []string
	for i := range singles {
		ids = append(ids, b.submit("--cpus", itoa(1+i%2), "--", "echo x >>ran/single-$BERTH_JOB_ID"))
		if i == singles/2 {
			ids = append(ids, b.submit("--array", "1-"+itoa(tasks), "--", "echo x >>ran/task-$BERTH_ARRAY_INDEX"))
		}
	}
	slices.Reverse(ids)
	if out, status := b.run(append([]string{"wait"}, ids...)...); status != 0 {
		t.Errorf("wait: %.500s", out)
	}
	b.ranOnce("ran", tasks+singles)
}
