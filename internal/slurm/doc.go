// Package slurm translates between berth and Slurm: a job's spec into options of
// sbatch, and what squeue, sacct and sinfo print into values. Whatever Slurm cannot
// do is refused with the reason, never dropped.
//
// The package is pure: it runs no program, reads no file and knows no clock. It
// reads the releases of Slurm from 20.11 on, and skips what it does not understand.
//
// Its files are in groups, and each uses only those above it:
//
//	options as users write them: options words
//	the cluster and its GPUs: values cluster memory nodes
//	what sbatch is given: given gpus translate batch
//	what Slurm says: temporary queue why account remembered
//
// Below it, client runs Slurm's programs, cluster hands single jobs over, node runs
// one on a node, handover is the directory through which these two speak, and
// allocation packs many jobs into whole allocations. Start with translate.go here,
// then cluster.
package slurm
