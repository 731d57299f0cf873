// Package slurm has the programs of Slurm that scripts and people call: srun and
// scontrol inside a job, and sbatch, squeue, scancel, sinfo, sacct and salloc in front
// of a berth daemon.
//
// Its files are in groups, and each uses only those above it:
//
//	options and the environment: options ids variables stdin steps
//	jobs as Slurm shows them: queue columns order dependency
//	lists: squeue sacct sinfo json sacctmgr
//	steps and jobs: srun tasks sbatch salloc
//	the rest: scancel signal scontrol programs
package slurm
