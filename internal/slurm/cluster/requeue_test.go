package cluster_test

import (
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// TestSlurmRequeuesAJob: a job that asks Slurm to run it again, or that Slurm
// preempts, is queued again as with sbatch, and does not count as done.
func TestSlurmRequeuesAJob(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{CPUs: 4, Conf: []string{
		"PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", "PartitionName=low Nodes=ALL PriorityTier=1", "PartitionName=high Nodes=ALL PriorityTier=10",
	}})
	const slice = "echo $SLURM_RESTART_COUNT >>$SLURM_JOB_NAME.ran\n[ $(wc -l <$SLURM_JOB_NAME.ran) = 3 ] && exit 0\n"
	testkit.Write(t, b.file("own.sh"), "#!/bin/bash -l\n#SBATCH -J own\n"+slice+"scontrol requeue $SLURM_JOB_ID\nexit 0\n")
	testkit.Write(t, b.file("warned.sh"), "#!/bin/bash\n#SBATCH -J warned --signal=B:USR1@58 --time=1\n"+slice+
		"trap 'scontrol requeue $SLURM_JOB_ID; exit 0' USR1\nsleep 300 & wait\n")
	own := b.must("submit", "--quiet", "--to", "slurm", "own.sh")
	warned := b.must("submit", "--quiet", "--to", "slurm", "warned.sh")
	for name, id := range map[string]string{"own": own, "warned": warned} {
		if v := b.ends(id, "ok"); v.Attempt != 3 {
			t.Errorf("%s: %s", name, v)
		}
		if got := testkit.Read(t, b.file(name+".ran")); got != "\n1\n2\n" {
			t.Errorf("%s: its restarts were %q", name, got)
		}
	}

	testkit.Write(t, b.file("tasks.sh"), "#!/bin/bash -l\n#SBATCH -J tasks --array=3-7:2\necho $SLURM_ARRAY_TASK_COUNT >>tasks.$SLURM_ARRAY_TASK_ID\n"+
		"[ $(wc -l <tasks.5) = 1 ] && [ $SLURM_ARRAY_TASK_ID = 5 ] && scontrol requeue ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\nexit 0\n")
	testkit.Write(t, b.file("tasks.5"), "")
	tasks := b.must("submit", "--quiet", "--to", "slurm", "tasks.sh")
	for index, attempts := range map[string]int{"3": 1, "5": 2, "7": 1} {
		v := b.ends(tasks+"_"+index, "ok")
		if _, inSlurm, _ := strings.Cut(v.slurm(), "_"); v.Attempt != attempts || inSlurm != index {
			t.Errorf("%s, in Slurm %s", v, v.slurm())
		}
		if got := testkit.Read(t, b.file("tasks."+index)); got != strings.Repeat("3\n", attempts) {
			t.Errorf("task %s ran as %q", index, got)
		}
	}

	preempted := b.submit("--name", "preempted", "--slurm", "-p low", "--", "[ $BERTH_ATTEMPT = 2 ] || sleep 300")
	once := b.submit("--name", "once", "--slurm", "-p low --no-requeue", "--", "sleep 300")
	b.running(preempted)
	b.running(once)
	b.slurm.Must(t, "sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap", "true")
	if v := b.ends(preempted, "ok"); v.Attempt != 2 {
		t.Errorf("preempted: %s", v)
	}
	if v := b.ends(once, "lost"); !strings.Contains(v.reason(), "preempted") {
		t.Errorf("once: %s", v)
	}
}

// TestKilledForItsMemory: Slurm kills a job with its wrapper, and says why only in its
// own output.
func TestKilledForItsMemory(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{Conf: []string{"JobAcctGatherType=jobacct_gather/linux", "JobAcctGatherFrequency=1", "JobAcctGatherParams=OverMemoryKill",
		"SelectTypeParameters=CR_CPU_Memory"}})
	id := b.submit("--mem", "100M", "--", "head -c 500M /dev/zero | tail -c 400M | sleep 300")
	if v := b.ends(id, "oom"); !strings.Contains(v.reason(), "memory limit") {
		t.Errorf("%s", v)
	}
}

// TestALocalJobLeavesSlurmAlone: a script whose login shell finds Slurm's scancel
// instead of berth's cancels no job of Slurm that has its number in berth.
func TestALocalJobLeavesSlurmAlone(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{})
	precious := strings.TrimSpace(b.slurm.Must(t, "sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 300"))
	testkit.Write(t, b.file("own.sh"), "#!/bin/bash -l\n#SBATCH --gpus=0\nexport SLURM_CONF="+b.slurm.Conf+" PATH=/usr/sbin:/usr/bin:/bin\nscancel $SLURM_JOB_ID\necho $SLURM_JOB_ID\n")
	v := b.ends(b.must("submit", "--quiet", "--to", "local", "own.sh"), "ok")
	if v.ID != precious {
		t.Fatalf("berth's job is %s and Slurm's %s", v.ID, precious)
	}
	contains(t, testkit.Read(t, word(v.Log)), "200000000"+v.ID)
	if state := b.slurm.Must(t, "squeue", "--noheader", "--format=%T", "--jobs="+precious); strings.Contains(state, "CANCEL") || state == "" {
		t.Errorf("Slurm's job is %q", state)
	}
}
