// Package handover is what berth and a job's wrapper on the node of a cluster tell
// each other, as files of one directory on a file system that both see. The
// directory belongs to the job's user, and so do both sides.
//
//	orders     every job of the batch, in order; its index is its name here
//	script     what sbatch was given
//	0.begun    made by the first to want it: the job when it starts, or berth when
//	           it takes the job back
//	0.stop     made by berth when the job must not go on, whatever Slurm says
//	0.now      what the job uses, replaced every few seconds
//	0.end      the record of its end, complete or absent
//	0.log      what it printed, unless it has an output of its own
//
// The start marker is made exclusively, so a job that Slurm starts a second time,
// or after berth took it back, never runs.
package handover
