// Package cluster hands jobs over to Slurm and follows them there. It is a
// goroutine beside the engine, with another one for each user who has such jobs: a
// user's slow home directory holds nobody else up.
//
// What it wants to do is on disk before it does it, and what happened becomes a
// fact through the engine's Turn. It decides nothing about a job except whether
// Slurm still has it. Everything that touches Slurm or a user's files is a request,
// carried out with that user's rights.
//
// Its files are in groups, and each uses only those above it:
//
//	what is done with a user's rights: request attach serve
//	the jobs of a user: cluster worker follow compare handover
package cluster
