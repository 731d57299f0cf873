package cluster_test

import (
	"os"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// TestSmallArrays: a Slurm with a small MaxArraySize gets smaller arrays, and its
// tasks keep their indices as far as it allows.
func TestSmallArrays(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{CPUs: 8, Conf: []string{"MaxArraySize=5"}})
	testkit.Must(t, os.Mkdir(b.file("ran"), 0o755), os.Mkdir(b.file("saw"), 0o755))
	array := b.submit("--array", "1-12", "--", "echo x >>ran/$BERTH_ARRAY_INDEX; echo $SLURM_ARRAY_TASK_ID >saw/$BERTH_ARRAY_INDEX")
	small := b.submit("--slurm-env", "--array", "2-4", "--", "echo ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID")
	if out, status := b.run("wait", array, small); status != 0 {
		t.Fatalf("wait: %s", out)
	}
	b.ranOnce("ran", 12)
	for i := range 12 {
		if saw := testkit.Read(t, b.file("saw/"+itoa(i+1))); saw != itoa(i+1)+"\n" {
			t.Errorf("task %d saw %q", i+1, saw)
		}
	}
	v := b.show(small + "_4")
	b.printed(v, v.slurm()+"\n")
	if !strings.HasSuffix(v.slurm(), "_4") {
		t.Errorf("%s is %s", v, v.slurm())
	}
}

// TestALimitOnSubmittedJobs: jobs that Slurm does not take yet wait, instead of failing,
// and those that it will never take fail.
func TestALimitOnSubmittedJobs(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{Accounts: true, CPUs: 8, Conf: []string{"AccountingStorageEnforce=limits,qos"}})
	account := func(args ...string) {
		t.Helper()
		b.slurm.Must(t, "sacctmgr", append([]string{"-i"}, args...)...)
	}
	account("add", "account", "lab")
	account("add", "user", "root", "account=lab", "maxsubmitjobs=3")
	testkit.Eventually(t, "slurmctld knows the limit", func() bool {
		return strings.Contains(b.slurm.Must(t, "scontrol", "show", "assoc_mgr", "users=root", "flags=assoc"), "MaxSubmitJobs=3")
	})
	testkit.Must(t, os.Mkdir(b.file("ran"), 0o755))
	const account1 = "--account=lab"
	if v := b.ends(b.submit("--slurm", "--account=none", "--", "true"), "launch"); !strings.Contains(strings.ToLower(v.reason()), "account") {
		t.Errorf("%s", v)
	}
	if v := b.ends(b.submit("--slurm", account1+" --qos=none", "--", "true"), "launch"); !strings.Contains(strings.ToLower(v.reason()), "qos") {
		t.Errorf("%s", v)
	}
	blocks := b.submit("--slurm", account1, "--", "while [ ! -e go ]; do sleep 0.1; done")
	b.running(blocks)
	array := b.submit("--slurm", account1, "--array", "1-5", "--", "echo x >>ran/$BERTH_ARRAY_INDEX; while [ ! -e go ]; do sleep 0.1; done")
	b.until(array+"_5", "waiting for the limit", func(v *view) bool {
		return v.State == "queued" && strings.Contains(v.reason(), "takes no more of this user's jobs")
	})
	for _, task := range []string{"_1", "_2"} { // the limit leaves room for two, in order
		b.running(array + task)
	}
	testkit.Write(t, b.file("go"), "")
	if out, status := b.run("wait", blocks, array); status != 0 {
		t.Errorf("wait: %s", out)
	}
	b.ranOnce("ran", 5)
}
