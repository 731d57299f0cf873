package daemon

import (
	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/problem"
)

// Bounds on the text in the jobs of a request, and in all unfinished jobs of one
// user: every task of an array repeats it in the store. Jobs of up to plainJob
// bytes are not counted, because as many as a user may have fit easily.
const (
	maxRequestBytes = 64 << 20
	maxUserBytes    = 256 << 20
	plainJob        = 16 << 10
	maxDir          = 4096 // bytes, as in the kernel
	maxTerm         = 256
)

// specBytes is the size of the text in a spec.
func specBytes(s *job.Spec) int {
	n := 0
	s.Texts(func(text *string) { n += len(*text) })
	return n
}

// roomFor checks the text of all unfinished jobs of a user. It scans them, so it
// is called only for large requests.
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
	return problem.Newf(problem.TooMuch, "wait for some to end, or move text into a script", "your unfinished jobs have %d MiB of text, and would exceed %d", have>>20, maxUserBytes>>20)
}
