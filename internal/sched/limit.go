package sched

import "berth/internal/reason"

// Limit bounds one user's running jobs; a part that is 0 is not limited.
type Limit struct {
	Jobs int
	GPUs float64 // counted as CountedGPUs does
}

// Use is what one user's running jobs hold.
type Use struct {
	Jobs int
	GPUs float64
}

// limitTolerance lets three thirds be one, in whatever order they were added.
const limitTolerance = 1e-6

// CountedGPUs is what the request counts as against a GPU limit: each of its cards
// once, or its share of each.
func (r *Request) CountedGPUs() float64 { return countedGPUs(r.GPUs, r.Share) }

// CountedGPUs is what a running job counts as against a limit on GPUs.
func (h *Held) CountedGPUs() float64 { return countedGPUs(len(h.Cards), h.share()) }

func (a *amounts) countedGPUs() float64 { return countedGPUs(a.gpus, a.share) }

// countedGPUs counts whole cards even where a job declared only part of their
// memory, because others may not be able to use the rest. A share promises that
// they can, so it counts as what it is.
func countedGPUs(gpus int, share float64) float64 {
	if share > 0 {
		return share * float64(gpus)
	}
	return float64(gpus)
}

// account is what a decision knows about one user.
type account struct {
	rules *Rules
	user  string
	limit Limit
	own   bool // the limit is set for this user
	use   Use
	turn  float64 // usage; under fair share the user with less goes first
}

func newAccount(s *State, user string) account {
	a := account{rules: &s.Rules, user: user, limit: s.DefaultLimit, use: s.InUse[user]}
	if limit, own := s.Limits[user]; own {
		a.limit, a.own = limit, true
	}
	if s.Rules.Fair {
		a.turn = s.Usage[user]
	}
	return a
}

// allows reports whether the limit admits such a job when the user runs nothing
// else. It is asked of every request class.
func (a *account) allows(asked *amounts) bool {
	return a.limit.GPUs <= 0 || asked.gpus == 0 || asked.countedGPUs() <= a.limit.GPUs+limitTolerance
}

// jobsSpent reports that the user's limit on jobs is reached.
func (a *account) jobsSpent() bool { return a.limit.Jobs > 0 && a.use.Jobs >= a.limit.Jobs }

// gpusSpent reports that the job's GPUs would exceed the user's limit. A job
// without GPUs is never affected.
func (a *account) gpusSpent(asked *amounts) bool {
	return a.limit.GPUs > 0 && asked.gpus > 0 && a.use.GPUs+asked.countedGPUs() > a.limit.GPUs+limitTolerance
}

// overLimit is the reason for a job that exceeds its user's limit by itself.
func (a *account) overLimit(asked *amounts) reason.Reason {
	return reason.Reason{
		Kind: reason.OverUserLimit, Needs: asked.gpus, Share: asked.share,
		User: a.user, Own: a.own, MoreGPUs: asked.countedGPUs(), LimitGPUs: a.limit.GPUs,
	}
}
