package launch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
)

// TestVariablesOfASlurmJob: those of a task of an array, which has everything.
func TestVariablesOfASlurmJob(t *testing.T) {
	l := launcher()
	l.Host, l.SlurmBin, l.HasSlurm, l.gid = "lab1", "/state/slurm", true, 100
	l.Env = append(l.Env, "SLURM_JOB_ID=99", "SLURM_STEP_ID=3", "SLURMD_NODENAME=n9", "SLURM_CONF=/etc/slurm.conf")
	j := &job.Job{ID: "17_3", Seq: 20, User: "ann", UID: 1000, Spec: job.Defaults()}
	j.Spec.SlurmEnv, j.Spec.CPUs, j.Spec.MemMiB, j.Spec.TimeLimit, j.Spec.Name = true, 4, 2048, time.Hour, "sweep"
	j.Spec.ArrayShape = job.ArrayShape{Tasks: 3, Min: 1, Max: 5, Step: 2}
	j.Spec.Env = []job.EnvVar{{Key: "SLURM_NTASKS", Value: "2"}, {Key: "SLURM_CPUS_PER_TASK", Value: "2"}, {Key: "SLURM_JOB_ID", Value: "5"}}
	j.Grant = job.Grant{GPUs: []int{2, 3}, UUIDs: []string{"GPU-c", "GPU-d"}}
	j.Attempt.Number, j.StartedAt = 2, time.Unix(1000, 0)
	var got []string
	for _, pair := range l.env(j, nil) {
		if strings.HasPrefix(pair, "SLURM") || strings.HasPrefix(pair, "PATH=") {
			got = append(got, pair)
		}
	}
	slices.Sort(got)
	want := strings.Fields(`PATH=/state/slurm:/usr/bin:/bin:/opt/berth SLURMD_NODENAME=lab1
		SLURM_ARRAY_JOB_ID=2000000017 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_MAX=5 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_STEP=2
		SLURM_CLUSTER_NAME=berth SLURM_CPUS_ON_NODE=4 SLURM_CPUS_PER_TASK=2 SLURM_GPUS=2 SLURM_GPUS_ON_NODE=2 SLURM_GTIDS=0
		SLURM_JOBID=2100000020 SLURM_JOB_ACCOUNT=berth SLURM_JOB_CPUS_PER_NODE=4 SLURM_JOB_END_TIME=4600 SLURM_JOB_GID=100 SLURM_JOB_GPUS=2,3 SLURM_JOB_ID=2100000020 SLURM_JOB_NAME=sweep
		SLURM_JOB_NODELIST=lab1 SLURM_JOB_NUM_NODES=1 SLURM_JOB_PARTITION=berth SLURM_JOB_QOS=normal SLURM_JOB_START_TIME=1000 SLURM_JOB_UID=1000 SLURM_JOB_USER=ann SLURM_LOCALID=0
		SLURM_MEM_PER_NODE=2048 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_NODELIST=lab1 SLURM_NPROCS=2 SLURM_NTASKS=2 SLURM_PROCID=0
		SLURM_RESTART_COUNT=1 SLURM_SUBMIT_DIR=/home/ann/project SLURM_SUBMIT_HOST=lab1 SLURM_TASKS_PER_NODE=2`)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// What a job does not ask for is not there, as in Slurm.
	plain := &job.Job{ID: "18", Spec: job.Defaults()}
	plain.Spec.SlurmEnv, plain.Attempt.Number = true, 1
	for _, pair := range l.env(plain, nil) {
		for _, name := range []string{"SLURM_ARRAY", "SLURM_CPUS_PER_TASK", "SLURM_MEM", "SLURM_GPUS", "SLURM_JOB_GPUS", "SLURM_JOB_END_TIME", "SLURM_RESTART_COUNT", "SLURM_CONF", "SLURM_STEP"} {
			if strings.HasPrefix(pair, name) {
				t.Errorf("a job that asks for nothing has %s", pair)
			}
		}
	}
	// Other jobs keep what they inherit.
	plain.Spec.SlurmEnv = false
	if env := l.env(plain, nil); !slices.Contains(env, "SLURM_JOB_ID=99") || !slices.Contains(env, "PATH=/usr/bin:/bin:/opt/berth") {
		t.Errorf("a job without SLURM_ variables of its own has %q", env)
	}
}
