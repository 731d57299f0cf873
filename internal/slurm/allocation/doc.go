// Package allocation is `berth run --to slurm --allocations N`: it asks Slurm for
// whole allocations and drains one jobs file in them. In each allocation a berth
// run of its own places the jobs by memory; this package deals the lines out,
// follows what became of them, and asks for more while work is left.
//
// It never places a job, and it knows of an allocation only what that leaves on
// the shared file system, and what Slurm says. Everything it decides is in its
// ledger before it is done, so a kill at any moment loses no job and runs none
// twice:
//
//	alloc/ledger.jsonl   what was asked for, dealt out and closed
//	alloc/lock           held by the front process
//	alloc/3/             one allocation, with script, jobs.txt, its berth run's logs,
//	                     its start marker (0.begun) and its end marker (0.end)
//
// Its files are in groups, and each uses only those above it:
//
//	the jobs of the file: options jobs deal
//	what is on disk: directory journal ledger lock
//	one allocation: slurm allocation narrate
//	all of them: front ask resume summary dryrun
//
// A job is dealt again only after its allocation has ended for certain, and what
// that allocation finished has been read.
package allocation
