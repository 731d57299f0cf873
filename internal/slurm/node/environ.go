package node

import (
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/slurm/handover"
	"berth/internal/text"
)

// cardVariables say which cards a process may use.
var cardVariables = []string{"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"}

// fromSlurm reports whether a variable is Slurm's own, so that the one of this run
// counts and not the one at submission.
func fromSlurm(name string) bool {
	return strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "SLURMD_") || slices.Contains(cardVariables, name)
}

// ofTheBatch reports whether a variable of Slurm's describes the batch as berth
// submitted it, not the job.
func ofTheBatch(name string) bool {
	return slices.Contains([]string{"SLURM_JOB_NAME", "SLURM_SUBMIT_DIR"}, name) || strings.HasPrefix(strings.TrimPrefix(name, "SLURM_"), "ARRAY_")
}

// inherited is what the job inherits: the environment at its submission, what a
// login would set, and Slurm's variables of this run. dir is where it runs. The
// job's own variables come on top of it.
func inherited(order *handover.Order, environ []string, dir string) []string {
	var kept []string
	has := func(name string) bool { _, set := job.LookupEnv(kept, name); return set }
	for _, pair := range order.Job.Spec.Exported(order.Environ) {
		if name, _, _ := strings.Cut(pair, "="); !fromSlurm(name) {
			kept = append(kept, pair)
		}
	}
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case ofTheBatch(name):
		case fromSlurm(name) || name == "TMPDIR":
			kept = append(kept, pair)
		case slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL"}, name) && !has(name):
			kept = append(kept, pair)
		case name == "TERM" && order.Job.Spec.Pty && !has(name):
			kept = append(kept, pair)
		}
	}
	kept = append(kept, "SLURM_JOB_NAME="+order.Job.Name(), "SLURM_SUBMIT_DIR="+dir)
	if n := order.Job.Attempt.Number - 1; n > 0 {
		kept = append(kept, "SLURM_RESTART_COUNT="+strconv.Itoa(n)) // to Slurm each attempt is a job of its own
	}
	return append(kept, arrayVariables(&order.Job, environ)...)
}

// arrayVariables are those of a task of the user's own array. Its id is Slurm's if
// the task has the same index there.
func arrayVariables(j *job.Job, environ []string) []string {
	_, index, found := strings.Cut(j.ID, "_")
	if !found {
		return nil
	}
	_, array := j.SlurmIDs(true)
	if job.Getenv(environ, "SLURM_ARRAY_TASK_ID") == index {
		array = job.Getenv(environ, "SLURM_ARRAY_JOB_ID")
	}
	list := []string{"SLURM_ARRAY_JOB_ID=" + array, "SLURM_ARRAY_TASK_ID=" + index}
	shape := j.Spec.ArrayShape
	for _, v := range []struct {
		name  string
		value int
	}{{"SLURM_ARRAY_TASK_COUNT", shape.Tasks}, {"SLURM_ARRAY_TASK_MIN", shape.Min}, {"SLURM_ARRAY_TASK_MAX", shape.Max}, {"SLURM_ARRAY_TASK_STEP", max(1, shape.Step)}} {
		list = append(list, v.name+"="+strconv.Itoa(v.value))
	}
	return list
}

// cardsAsGiven changes berth's variables about cards into Slurm's. Of cards that
// berth cannot see, the job knows what Slurm said and nothing else.
func (n *node) cardsAsGiven(berths []string) []string {
	visible, set := n.lookup("CUDA_VISIBLE_DEVICES")
	unseen := n.unseen()
	var list []string
	for _, pair := range berths {
		name, _, _ := strings.Cut(pair, "=")
		bare := strings.TrimPrefix(name, "APPTAINERENV_")
		switch {
		case bare == "CUDA_VISIBLE_DEVICES" && set:
			pair = name + "=" + visible
		case unseen != nil && name == "BERTH_GPUS":
			pair = name + "=" + text.Numbers(unseen)
		case unseen != nil:
			continue
		case bare == "NVIDIA_VISIBLE_DEVICES" && len(n.cards) > 0:
			// A container's runtime may see all cards of the node, under other
			// numbers than the job.
			pair = name + "=" + uuids(n.cards)
		}
		list = append(list, pair)
	}
	return list
}
