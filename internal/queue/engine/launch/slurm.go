package launch

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
)

// slurm sets the variables of a Slurm job that mean something on one machine, and
// removes what the job inherits from a real one.
func (l *Launcher) slurm(j *job.Job, vars *environ) {
	for _, name := range vars.all() {
		if strings.HasPrefix(name, "SLURM_") || name == "SLURMD_NODENAME" {
			vars.unset(name)
		}
	}
	for _, pair := range slurmVariables(j, l.Host, l.dir(j), l.HasSlurm) {
		vars.set(pair.Key, pair.Value)
	}
	vars.set("SLURM_JOB_GID", strconv.Itoa(l.gid))
	if l.SlurmBin != "" {
		vars.set("PATH", l.SlurmBin+string(os.PathListSeparator)+vars.get("PATH"))
	}
}

// asked are the variables of Slurm's that its options set in a spec.
var asked = []string{"SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_CPUS_PER_GPU"}

// slurmVariables are those of a job on one node. apart means that their ids must
// not be Slurm's.
func slurmVariables(j *job.Job, host, dir string, apart bool) []job.EnvVar {
	id, array := j.SlurmIDs(apart)
	cpus, tasks := max(1, j.Spec.CPUs), "1"
	var own []job.EnvVar
	for _, v := range j.Spec.Env {
		if slices.Contains(asked, v.Key) {
			own = append(own, v)
		}
		if v.Key == "SLURM_NTASKS" {
			tasks = v.Value
		}
	}
	list := []job.EnvVar{
		{Key: "SLURM_JOB_ID", Value: id}, {Key: "SLURM_JOBID", Value: id},
		{Key: "SLURM_JOB_NAME", Value: j.Name()},
		{Key: "SLURM_JOB_USER", Value: j.User}, {Key: "SLURM_JOB_UID", Value: strconv.Itoa(j.UID)},
		{Key: "SLURM_SUBMIT_DIR", Value: dir}, {Key: "SLURM_SUBMIT_HOST", Value: host},
		{Key: "SLURM_CLUSTER_NAME", Value: "berth"}, {Key: "SLURM_JOB_PARTITION", Value: "berth"}, {Key: "SLURM_JOB_ACCOUNT", Value: "berth"}, {Key: "SLURM_JOB_QOS", Value: "normal"}, {Key: "SLURMD_NODENAME", Value: host},
		{Key: "SLURM_JOB_NODELIST", Value: host}, {Key: "SLURM_NODELIST", Value: host},
	}
	for _, name := range []string{"SLURM_JOB_NUM_NODES", "SLURM_NNODES"} {
		list = append(list, job.EnvVar{Key: name, Value: "1"})
	}
	for _, name := range []string{"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"} {
		list = append(list, job.EnvVar{Key: name, Value: tasks})
	}
	for _, name := range []string{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS"} {
		list = append(list, job.EnvVar{Key: name, Value: "0"})
	}
	number := func(name string, n int64) {
		list = append(list, job.EnvVar{Key: name, Value: strconv.FormatInt(n, 10)})
	}
	number("SLURM_CPUS_ON_NODE", int64(cpus))
	number("SLURM_JOB_CPUS_PER_NODE", int64(cpus))
	if j.Spec.CPUs > 0 {
		number("SLURM_CPUS_PER_TASK", int64(cpus))
	}
	if j.Spec.MemMiB > 0 {
		number("SLURM_MEM_PER_NODE", j.Spec.MemMiB)
	}
	if n := len(j.Grant.GPUs); n > 0 {
		number("SLURM_GPUS", int64(n))
		number("SLURM_GPUS_ON_NODE", int64(n))
		list = append(list, job.EnvVar{Key: "SLURM_JOB_GPUS", Value: j.Grant.List()})
	}
	number("SLURM_JOB_START_TIME", j.StartedAt.Unix())
	if j.Spec.TimeLimit > 0 {
		number("SLURM_JOB_END_TIME", j.StartedAt.Add(j.Spec.TimeLimit).Unix())
	}
	if n := j.Attempt.Number - 1; n > 0 {
		number("SLURM_RESTART_COUNT", int64(n))
	}
	if array != "" {
		shape := j.Spec.ArrayShape
		list = append(list, job.EnvVar{Key: "SLURM_ARRAY_JOB_ID", Value: array}, job.EnvVar{Key: "SLURM_ARRAY_TASK_ID", Value: arrayIndex(j.ID)})
		number("SLURM_ARRAY_TASK_COUNT", int64(shape.Tasks))
		number("SLURM_ARRAY_TASK_MIN", int64(shape.Min))
		number("SLURM_ARRAY_TASK_MAX", int64(shape.Max))
		number("SLURM_ARRAY_TASK_STEP", int64(cmp.Or(shape.Step, 1)))
	}
	return append(list, own...)
}
