package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/slurm/cluster"
	"berth/internal/tests/testkit"
)

// TestSlurmsNamesOnACluster: berth's sbatch, in front of a daemon that hands its jobs
// over to Slurm, passes on where and on whose account a job is to run.
func TestSlurmsNamesOnACluster(t *testing.T) {
	t.Parallel()
	b := pitch(t, testkit.NewSlurm(t, testkit.SlurmSetup{CPUs: 8, Nodes: 2, Conf: []string{"PartitionName=low Nodes=ALL"}}))
	b.config = "engine = \"slurm\"\n"
	b.start()
	testkit.Must(t, os.Symlink(filepath.Join(cluster.Programs(), "berth"), b.file("sbatch")))
	testkit.Write(t, b.file("job.sh"), "#!/bin/sh\n#SBATCH --partition=low -w n1\n#SBATCH --exclusive\n#SBATCH --no-requeue\n"+
		"echo $SLURM_JOB_PARTITION $SLURMD_NODENAME $SLURM_JOB_ACCOUNT $SLURM_CPUS_ON_NODE\n")
	cmd := exec.Command(b.file("sbatch"), "--parsable", "-w", "n2", "--account=lab", "-x", "n1", "job.sh")
	cmd.Env, cmd.Dir = b.env, b.dir
	id, status := outcome(cmd)
	if status != 0 {
		t.Fatalf("sbatch: %d: %s", status, id)
	}
	b.ends(id, "ok")
	if out := b.must("logs", id); out != "low n2 lab 8" {
		t.Errorf("it ran on %q", out)
	}
	cmd = exec.Command(b.file("sbatch"), "-Q", "-p", "nosuch", "--wrap", "true")
	cmd.Env, cmd.Dir = b.env, b.dir
	if out, status := outcome(cmd); status != 0 || out != "" {
		t.Fatalf("sbatch: %d: %s", status, out)
	}
	if v := b.over("2"); v.outcome() != "launch" || !strings.Contains(v.reason(), "invalid partition") {
		t.Errorf("%s", v)
	}
}
