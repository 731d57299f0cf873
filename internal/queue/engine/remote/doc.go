// Package remote is the jobs that a Slurm cluster runs: those to hand over, and
// those it has. It keeps what it is told about them.
//
// It does not talk to the cluster: internal/slurm/cluster does. Start with remote.go.
package remote
