package running

import "berth/internal/job"

// program is one of a user's programs, by what its command has in common with others.
type program struct{ user, kind string }

// Refusals are the programs whose jobs with several GPUs could not be parked: they
// share memory between cards, which does not change from one run to the next. A berth
// that starts tries each again.
type Refusals map[program]bool

// refusalsMost bounds them; then all are tried again.
const refusalsMost = 1000

// Learn takes in whether a job could be parked, and reports whether that is new.
func (r Refusals) Learn(j *job.Job, kind string, refused bool) bool {
	p := program{j.User, kind}
	if len(j.Grant.GPUs) < 2 || kind == "" || r[p] == refused {
		return false
	}
	if delete(r, p); refused {
		if len(r) >= refusalsMost {
			clear(r)
		}
		r[p] = true
	}
	return true
}
