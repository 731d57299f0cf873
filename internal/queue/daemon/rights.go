package daemon

import (
	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text/problem"
)

// mayTouch reports whether the caller may change a job or read its output.
func mayTouch(c api.Caller, j *job.Job) bool { return c.Admin || c.UID == j.UID }

// mayBe reports whether the caller may decide what a job executes, by editing it
// or typing into its terminal: its owner, and root, who could become that user
// anyway. Other administrators may not.
func mayBe(c api.Caller, j *job.Job) bool { return c.UID == j.UID || c.UID == 0 }

// notYours is the problem for another user's job: what the caller may not change or
// read, or as an administrator not execute.
func notYours(c api.Caller, j *job.Job) *problem.Problem {
	hint := "its owner and administrators may do this"
	if mayTouch(c, j) {
		hint = "only its owner and root may decide what it executes; an administrator may change when and where it runs, or cancel it"
	}
	return problem.Newf(problem.Forbidden, hint, "job %s belongs to %s", j.ID, j.User)
}

// maySee reports whether the caller may see what a job runs.
func (s *service) maySee(c api.Caller, j *job.Job) bool {
	return mayTouch(c, j) || !s.places.Shared || s.Config().ShowCommands == showAll
}

const showAll = "all"
