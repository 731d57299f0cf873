package slurm

import (
	"fmt"
	"math"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/text/problem"
)

// nicePerPriority is how much one step of berth's priority lowers a job in Slurm's
// queue. Slurm's own --nice without a value is 100; a smaller step would vanish in
// its priorities, which are in the thousands.
const nicePerPriority = 100

const mostNice = math.MaxInt32 - 2 // Slurm accepts no larger value

// Translate returns the options of sbatch for a job, without those of its batch
// (name, comment, array, output). Jobs with equal options can share an array.
// vramMiB is the GPU memory the job declares now, which a retry may have raised.
func Translate(spec *job.Spec, vramMiB int64, c Cluster) ([]string, error) {
	if err := refuse(spec); err != nil {
		return nil, err
	}
	own, err := Words(spec.Slurm)
	if err != nil {
		return nil, err
	}
	given := merge(c.Options, own)
	gres, features, err := gpus(spec, vramMiB, c)
	if err != nil {
		return nil, err
	}
	given, err = given.with(gres, features)
	if err != nil {
		return nil, err
	}
	return append(given, amounts(spec)...), nil
}

// amounts are the options that are numbers.
func amounts(spec *job.Spec) (options []string) {
	add := func(format string, args ...any) { options = append(options, fmt.Sprintf(format, args...)) }
	if spec.CPUs > 0 {
		add("--cpus-per-task=%d", spec.CPUs)
	}
	if spec.MemMiB > 0 {
		add("--mem=%dM", spec.MemMiB)
	}
	if spec.TimeLimit > 0 {
		// Rounded up: the wrapper on the node ends the job on time.
		add("--time=%d", (spec.TimeLimit+time.Minute-1)/time.Minute)
	}
	if spec.Requeue {
		add("--requeue")
	}
	if spec.Priority < 0 {
		add("--nice=%d", min(-int64(spec.Priority)*nicePerPriority, mostNice))
	}
	if spec.Pin && spec.GPUs > 0 {
		add("--gres-flags=enforce-binding")
	}
	return options
}

// Notes are what a user should know about a job that Slurm accepts, but treats
// differently.
func Notes(spec *job.Spec) (notes []string) {
	if spec.Priority > 0 {
		notes = append(notes, "only administrators can raise a priority in Slurm: a priority above 0 only orders your own jobs until they are handed over")
	}
	return notes
}

// refuse returns the first field that Slurm cannot express.
func refuse(spec *job.Spec) error {
	for _, r := range refusals {
		if r.asked(spec) {
			return problem.Newf(problem.Refused, r.instead, "%s", r.reason)
		}
	}
	return nil
}

// refusals are the fields that have no equivalent, each with the nearest
// alternative.
var refusals = []struct {
	asked           func(*job.Spec) bool
	reason, instead string
}{
	{func(s *job.Spec) bool { return len(s.IDs) > 0 },
		"Slurm chooses the GPUs of a job: --gpu-ids is not possible with --to slurm",
		"use --gpus N, with --gpu-type for the model"},
	{func(s *job.Spec) bool {
		return slices.ContainsFunc(s.Env, func(v job.EnvVar) bool { return v.Key == "SLURM_NTASKS" })
	},
		"berth hands a job to Slurm as one task: several tasks are not possible with --to slurm",
		"have the job start its processes itself (torchrun, mpirun)"},
	{func(s *job.Spec) bool { return len(s.Allow) > 0 },
		"Slurm chooses the GPUs of a job: --allow is not possible with --to slurm",
		`name nodes instead: --slurm "--nodelist=NODES" or "--exclude=NODES"`},
	{func(s *job.Spec) bool { return s.Exclusive && s.Share > 0 },
		"part of a GPU is shared with other jobs in Slurm: --exclusive is not possible with it",
		"use --gpus 1: a whole GPU is never shared"},
	{func(s *job.Spec) bool { return s.Cap == "soft" || s.Cap == "mps" },
		"berth does not limit GPU memory on a Slurm node: --cap is not possible with --to slurm",
		"leave out --cap: the job has its GPU to itself"},
	{func(s *job.Spec) bool { return s.Preemptible == job.PreemptByPark },
		"jobs cannot be parked in Slurm: --preemptible=park is not possible with --to slurm",
		"use --preemptible=requeue"},
	{func(s *job.Spec) bool { return s.OnTimeout == job.TimeoutPark },
		"jobs cannot be parked in Slurm: --on-timeout park is not possible with --to slurm",
		"use --on-timeout requeue, and save checkpoints"},
	{func(s *job.Spec) bool { return s.Group != "" },
		"berth's groups do not limit jobs in Slurm: --group is not possible with --to slurm",
		"limit an array (--array 0-99%4), or use a Slurm account or QOS: --slurm \"--qos=NAME\""},
	{func(s *job.Spec) bool { return s.Adopt != nil },
		"a process that runs already cannot be handed over to Slurm",
		"adopt it with --to local"},
}
