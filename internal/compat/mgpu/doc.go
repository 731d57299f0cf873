// Package mgpu is the four mgpu_ programs: three clients of a berth daemon, and
// that daemon. Eight-character ids encode berth's own numbers, so no mapping is
// stored.
//
// Its files, each of which uses only those before it:
//
//	what the four share: mgpu
//	a job: follow srun
//	the others: cancel queue server
package mgpu
