package engine

import (
	"strconv"

	"berth/internal/job"
)

// softCap asks frameworks to stay within the job's budget. They may ignore
// it; nothing here enforces anything.
func softCap(j *job.Job) map[string]string {
	g := j.Grant
	if j.Spec.Cap != "soft" || g.BudgetMiB <= 0 || g.CardMiB <= 0 {
		return nil
	}
	fraction := strconv.FormatFloat(min(1, float64(g.BudgetMiB)/float64(g.CardMiB)), 'f', 3, 64)
	return map[string]string{
		"XLA_PYTHON_CLIENT_MEM_FRACTION": fraction, // JAX
		"TF_FORCE_GPU_ALLOW_GROWTH":      "true",   // TensorFlow: take what is used, not the card
		"BERTH_GPU_MEMORY_UTILIZATION":   fraction, // for vllm serve --gpu-memory-utilization
	}
}
