package daemon

import (
	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/problem"
)

// Bounds on what the jobs of a request, and all live jobs of one user, say in
// letters: the tasks of an array repeat it, in the store each for itself. As
// many jobs as a user may have fit easily where each says no more than
// plainJob, and then nobody counts.
const (
	maxRequestBytes = 64 << 20
	maxUserBytes    = 256 << 20
	plainJob        = 16 << 10
	maxDir          = 4096 // bytes; the kernel takes no longer path
	maxTerm         = 256
)

// specBytes is what a job says in letters.
func specBytes(s *job.Spec) int {
	n := 0
	s.Texts(func(text *string) { n += len(*text) })
	return n
}

// roomFor says whether a user's live jobs may say so much more. It looks at
// all of them, so it is asked only where that is much.
func (d *Daemon) roomFor(t *engine.Turn, c api.Caller, more int) *problem.Problem {
	have := 0
	t.Each(0, func(j *job.Job) bool {
		if j.UID == c.UID {
			have += specBytes(&j.Spec)
		}
		return true
	})
	if have+more <= maxUserBytes {
		return nil
	}
	return problem.Newf(problem.TooMuch, "wait for some to end, or put what they say into a script", "your jobs that are not over say %d MiB, and would say more than %d", have>>20, maxUserBytes>>20)
}
