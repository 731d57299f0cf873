package waiting

import (
	"berth/internal/job"
	"berth/internal/queue/store"
)

// Shorter texts and environments are not counted: as many as a user may have fit
// easily.
const (
	plainText    = 2 << 10
	plainEnviron = 8 << 10
)

// texts counts the bytes of text in unfinished jobs by user: their own, and each
// captured environment once.
type texts struct {
	users    map[string]int
	jobs     map[string]int    // by id; none 0
	environs map[[2]string]int // how many jobs of a user have an environment
}

func newTexts() texts {
	return texts{users: map[string]int{}, jobs: map[string]int{}, environs: map[[2]string]int{}}
}

// textBytes is what a job's own text counts as.
func textBytes(j *job.Job) int {
	if bytes := j.Spec.TextBytes(); bytes > plainText {
		return bytes
	}
	return 0
}

func environBytes(name string) int {
	if bytes := store.BlobBytes(name); bytes > plainEnviron {
		return bytes
	}
	return 0
}

// weigh counts a job's own text anew.
func (t *texts) weigh(j *job.Job) { t.set(j, textBytes(j)) }

func (t *texts) set(j *job.Job, bytes int) {
	if t.users[j.User] += bytes - t.jobs[j.ID]; t.users[j.User] == 0 {
		delete(t.users, j.User)
	}
	if t.jobs[j.ID] = bytes; bytes == 0 {
		delete(t.jobs, j.ID)
	}
}

func (t *texts) add(j *job.Job) {
	t.weigh(j)
	key := [2]string{j.User, j.Environ}
	if bytes := environBytes(j.Environ); bytes > 0 {
		if t.environs[key]++; t.environs[key] == 1 {
			t.users[j.User] += bytes
		}
	}
}

func (t *texts) remove(j *job.Job) {
	key := [2]string{j.User, j.Environ}
	if bytes := environBytes(j.Environ); bytes > 0 {
		if t.environs[key]--; t.environs[key] == 0 {
			delete(t.environs, key)
			t.users[j.User] -= bytes
		}
	}
	t.set(j, 0)
}

// TextOf is how many bytes the jobs' own text counts as.
func TextOf(jobs []*job.Job) (bytes int) {
	for _, j := range jobs {
		bytes += textBytes(j)
	}
	return bytes
}
