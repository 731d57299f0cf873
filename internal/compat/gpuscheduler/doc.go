// Package gpuscheduler is gpu-scheduler: a private berth daemon beside a state
// file, and a loop in the same process that is its client. The loop submits new
// lines of the jobs file and synchronises the state file with the daemon. The
// daemon decides what runs when and where.
//
// Its files are in groups, and each uses only those above it:
//
//	a call: usage call places conda
//	screen sessions: screen screenhold screeninside screens
//	what it knows of jobs and GPUs: index view state
//	the scheduler: output flags feed retry sync loop start
//	commands: add status pause gpuscheduler
package gpuscheduler
