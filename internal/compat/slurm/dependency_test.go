package slurm_test

import (
	"slices"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// dependencies are submitted one after another; a name in capitals means the id
// of the job of that name.
const dependencies = `
first --gres=gpu:1 --wrap=sleep_600
tasks -H --array=1-3 --wrap=true
begun -d after:FIRST --wrap=true
later -d after:FIRST+5 --wrap=true
started -d after:TASKS --wrap=true
either -d afterok:FIRST?afternotok:TASKS --wrap=true
all -d afterok:FIRST,afterany:TASKS --wrap=true
each --array=1-3 -d aftercorr:TASKS --wrap=true
first -d singleton --wrap=sleep_600
`

const waiting = `all afterok:FIRST(unfulfilled),afterany:TASKS_*(unfulfilled)
either afterok:FIRST(unfulfilled)?afternotok:TASKS_*(unfulfilled)
later after:FIRST+5(unfulfilled)
started after:TASKS_*(unfulfilled)
tasks (null)`

// waitFor: what jobs wait for, and what becomes of them when that happens.
func waitFor(t *testing.T, run runner) {
	t.Helper()
	ids := []string{}
	for line := range strings.SplitSeq(strings.TrimSpace(dependencies), "\n") {
		name, options, _ := strings.Cut(line, " ")
		words := strings.Fields(strings.NewReplacer(ids...).Replace(options))
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "_", " ")
		}
		id, err := run("sbatch", append([]string{"--parsable", "-t", "10", "-o", "/dev/null", "-J", name}, words...)...)
		if err != nil {
			t.Fatalf("sbatch %s: %s, %v", line, id, err)
		}
		if strings.HasSuffix(line, "sleep_600") && len(ids) == 0 {
			testkit.Eventually(t, "the first runs", func() bool { return run.answer(t, "squeue -h -n first -o %t") == "R 0" })
		}
		if len(ids) < 4 {
			ids = append(ids, strings.ToUpper(name), id)
		}
	}
	list := func(format string, options ...string) string {
		out, err := run("squeue", append([]string{"-h", "-o", format}, options...)...)
		testkit.Must(t, err)
		for i := 0; i < len(ids); i += 2 {
			out = strings.NewReplacer(":"+ids[i+1]+"(", ":"+ids[i]+"(", ":"+ids[i+1]+"_", ":"+ids[i]+"_", ":"+ids[i+1]+"+", ":"+ids[i]+"+").Replace(out)
		}
		rows := strings.Split(out, "\n")
		slices.Sort(rows)
		return strings.Join(slices.Compact(rows), "\n")
	}
	is := func(want, format string, options ...string) {
		t.Helper()
		got := ""
		testkit.Eventually(t, want, func() bool { got = list(format, options...); return got == want })
	}
	is(waiting, "%j %E", "-n", "all,either,later,started,tasks")
	is("all PD Dependency\neach PD Dependency\neither PD Dependency\nfirst PD Dependency\nfirst R None\nlater PD Dependency\nstarted PD Dependency\ntasks PD JobHeldUser", "%j %t %r")
	if got := run.answer(t, "scancel "+ids[1]); got != "0" {
		t.Fatalf("scancel: %s", got)
	}
	is("first R", "%j %t", "-n", "first")
	is("either Dependency afterok:FIRST(failed)?afternotok:TASKS_*(unfulfilled)", "%j %r %E", "-n", "either")
	is("all DependencyNeverSatisfied", "%j %r", "-n", "all", "-t", "all")
	if got := run.answer(t, "scontrol release "+ids[3]); got != "0" {
		t.Fatalf("scontrol release: %s", got)
	}
	is("each CD\nstarted CD\ntasks CD", "%j %t", "-n", "each,started,tasks", "-t", "all")
	is("either DependencyNeverSatisfied", "%j %r", "-n", "either", "-t", "all")
	is("later Dependency", "%j %r", "-n", "later")
}

func TestWhatJobsWaitFor(t *testing.T) {
	run := runner(newBerth(t, t.TempDir()))
	waitFor(t, run)
	out, err := run("sbatch", "--parsable", "-d", "afterok:1?afterok:2,afterok:1", "--wrap", "true")
	if err == nil {
		t.Errorf("both separators: %s", out)
	}
}

// TestWhatJobsWaitForInARealSlurm: what berth is held to is true.
func TestWhatJobsWaitForInARealSlurm(t *testing.T) {
	waitFor(t, testkit.NewSlurm(t, testkit.SlurmSetup{}).Run)
}
