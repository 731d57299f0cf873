package launch

import (
	"strconv"

	"berth/internal/job"
)

// softCap asks frameworks to stay within the job's budget. They may ignore it:
// nothing here is enforced. A variable that the job sets itself is left alone.
//
// PyTorch only gets a hint. Newer releases read a fraction from a variable, but
// older ones that read the same variable reject the option and exit.
func softCap(j *job.Job, vars *environ) {
	for _, name := range softHints {
		vars.unset(name)
	}
	g := j.Grant
	if j.Spec.Cap != "soft" || g.BudgetMiB <= 0 || g.CardMiB <= 0 {
		return
	}
	fraction := strconv.FormatFloat(min(1, float64(g.BudgetMiB)/float64(g.CardMiB)), 'f', 3, 64)
	for _, name := range softHints {
		vars.set(name, fraction)
	}
	vars.suggest("XLA_PYTHON_CLIENT_MEM_FRACTION", fraction) // JAX
	vars.suggest("TF_FORCE_GPU_ALLOW_GROWTH", "true")        // TensorFlow: take what is used, not the card
}

// softHints are for commands to use as they see fit: vllm serve
// --gpu-memory-utilization, and torch.cuda.set_per_process_memory_fraction.
var softHints = []string{"BERTH_GPU_MEMORY_UTILIZATION", "BERTH_TORCH_MEMORY_FRACTION"}

// suggest sets a variable unless it is set.
func (e *environ) suggest(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.set(name, value)
	}
}
