// Package node runs one job of a batch on the node of a cluster: `berth __node`,
// which Slurm's script executes as the job's user. It is a berth for one job, with
// store, engine and supervisor in a directory of the node, on the GPUs that Slurm
// gave. So a job is measured, stopped and judged as on any machine of berth's.
//
// A second process, the guard, waits beside it. If the wrapper is killed, the guard
// stops the job and writes the record. If the record cannot be written because the
// shared disk is full, either tries until it can or Slurm kills it; the record is
// also printed to Slurm's output file, and nowhere else.
//
// The job begins only with the start marker of internal/slurm/handover, and its end
// comes back as the record there. The package may not place the job, retry it, or
// ask Slurm anything: it runs where it is, once.
package node
