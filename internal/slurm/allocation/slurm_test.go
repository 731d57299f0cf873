package allocation

import (
	"slices"
	"testing"

	"berth/internal/queue/batch"
)

// TestTheEnvironmentOfAnAllocation: its jobs have the variables that they would have
// here.
func TestTheEnvironmentOfAnAllocation(t *testing.T) {
	o := Options{Options: batch.Options{Env: []string{"PATH=/bin", "WANDB_API_KEY=x", "LC_ALL=de_DE.UTF-8", "SLURM_CONF=/c", "SLURM_JOB_ID=1", "SBATCH_PARTITION=p", "CUDA_VISIBLE_DEVICES=3"}}}
	if got := o.environ(); !slices.Equal(got, []string{"PATH=/bin", "WANDB_API_KEY=x", "LC_ALL=de_DE.UTF-8", "SLURM_CONF=/c"}) {
		t.Errorf("%q", got)
	}
}
