package store

import (
	"slices"

	"berth/internal/job"
)

// Commands, paths and variables on Linux are bytes, but JSON would silently
// replace what is not UTF-8. A job with such bytes is stored widened, each byte
// as the character of the same number, and narrowed again when it is read.

// texts visits every string of a job.
func texts(j *job.Job, visit func(*string)) {
	for _, s := range []*string{
		&j.ID, &j.Key, &j.User, (*string)(&j.State), (*string)(&j.Outcome), &j.Detail,
		&j.Keep, (*string)(&j.Stop), &j.Signal, &j.Log, &j.PreemptedFor,
	} {
		visit(s)
	}
	for i := range j.Grant.UUIDs {
		visit(&j.Grant.UUIDs[i])
	}
	j.Spec.Texts(visit)
}

// widened is a copy of the job with every byte as a character.
func widened(j *job.Job) *job.Job {
	j = j.Clone()
	j.Spec.Argv = slices.Clone(j.Spec.Argv)
	j.Spec.Env = slices.Clone(j.Spec.Env)
	j.Spec.After = slices.Clone(j.Spec.After)
	j.Spec.Notify = slices.Clone(j.Spec.Notify)
	j.Spec.Trial = j.Spec.Trial.Clone()
	texts(j, func(s *string) {
		wide := make([]rune, len(*s))
		for i := range len(*s) {
			wide[i] = rune((*s)[i])
		}
		*s = string(wide)
	})
	return j
}

// narrow undoes widened, in place.
func narrow(j *job.Job) {
	texts(j, func(s *string) {
		bytes := make([]byte, 0, len(*s))
		for _, r := range *s {
			bytes = append(bytes, byte(r))
		}
		*s = string(bytes)
	})
}
