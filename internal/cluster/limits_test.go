package cluster_test

import (
	"os"
	"strings"
	"testing"

	"berth/internal/testkit"
)

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
