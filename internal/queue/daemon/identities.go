package daemon

import (
	"berth/internal/job"
	"berth/internal/job/jobfile"
)

// identities finds the keys of stored jobs. A job is that of a line if both execute
// the same and are of the same file.
type identities struct {
	batch   string
	anyFile bool           // jobs of every file count, as with gpusched
	seen    map[string]int // how many jobs of an older berth execute the same
}

// key is the key of the line that a job is, or one that no line of the file has. An
// older berth stored neither the file nor, in the key, what the block says.
func (k *identities) key(j *job.Job) string {
	switch {
	case j.Spec.Batch == "" && j.Spec.Shell != "":
		executed := jobfile.Executed(&j.Spec)
		if executed == j.Spec.Shell {
			return j.Key
		}
		if k.seen == nil {
			k.seen = map[string]int{}
		}
		k.seen[executed]++
		return jobfile.Key(executed, k.seen[executed])
	case j.Spec.Batch == "", j.Spec.Batch == k.batch, k.anyFile:
		return j.Key
	}
	return j.Spec.Batch + "\x00" + j.Key
}
