package sched

import (
	"maps"
	"slices"

	"berth/internal/job"
	"berth/internal/reason"
)

// Limit bounds one user's running jobs; a part that is 0 is not limited.
type Limit struct {
	Jobs int
	GPUs float64 // counted as CountedGPUs does
	Flag string  // the flag that sets it; empty: the config does
}

// Use is what one user's running jobs hold.
type Use struct {
	Jobs   int // parked ones included
	GPUs   float64
	Parked int // of the jobs
	// Unmeasured is what shares add that were not measured yet: each counts as whole
	// GPUs until then.
	Unmeasured float64
}

// limitTolerance lets three thirds be one, in whatever order they were added.
const limitTolerance = 1e-6

// CountedGPUs is what the request counts as against a GPU limit: each of its cards
// once, or its share of each.
func (r *Request) CountedGPUs() float64 { return job.CountedGPUs(r.GPUs, r.Share) }

// CountedGPUs is what a running job counts as against a limit on GPUs: what it
// asked for, or the memory it takes where that is more.
func (h *Held) CountedGPUs() float64 { return h.declaredGPUs() + h.OverGPUs }

func (h *Held) declaredGPUs() float64 { return job.CountedGPUs(len(h.Cards), h.share()) }

func (a *amounts) countedGPUs() float64 { return job.CountedGPUs(a.gpus, a.share) }

// OverGPUs is how many GPUs a job's memory counts as beyond its grant. On each of
// its cards that is the part of the memory, declared or measured, above its share;
// a whole card cannot be exceeded. On a card that was not allocated to it, it is
// all that was measured. totalMiB is the size of a card; 0: not known.
func OverGPUs(grant job.Grant, declaredMiB int64, peaks map[int]int64, totalMiB func(card int) int64) float64 {
	var over float64
	add := func(card int, usedMiB int64, counted float64) {
		if total := totalMiB(card); total > 0 {
			over += max(0, min(1, float64(usedMiB)/float64(total))-counted)
		}
	}
	for _, card := range grant.GPUs {
		add(card, max(declaredMiB, peaks[card]), job.CountedGPUs(1, grant.Share))
	}
	for _, card := range slices.Sorted(maps.Keys(peaks)) {
		if !slices.Contains(grant.GPUs, card) {
			add(card, peaks[card], 0)
		}
	}
	return over
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

// jobsSpent reports that the user's limit on jobs is reached. A parked job counts
// already.
func (a *account) jobsSpent(g *group) bool {
	return a.limit.Jobs > 0 && a.use.Jobs >= a.limit.Jobs && !g.parked
}

// gpusSpent reports that the job's GPUs would exceed the user's limit. A job
// without GPUs is never affected.
func (a *account) gpusSpent(g *group, asked *amounts) bool {
	return a.limit.GPUs > 0 && asked.gpus > 0 && a.use.GPUs+a.use.Unmeasured+a.adds(g, asked) > a.limit.GPUs+limitTolerance
}

// adds is what the job would add to the user's GPUs. An unproven share adds whole
// GPUs while another one is not measured. The first may always start, so that no
// job waits for others to end only because no job like it was measured.
func (a *account) adds(g *group, asked *amounts) float64 {
	if g.unproven && a.use.Unmeasured > 0 {
		return float64(asked.gpus)
	}
	return asked.countedGPUs()
}

// overLimit is the reason for a job that exceeds its user's limit by itself.
func (a *account) overLimit(asked *amounts) reason.Reason {
	return reason.Reason{
		Kind: reason.OverUserLimit, Needs: asked.gpus, Share: asked.share,
		User: a.user, Own: a.own, MoreGPUs: asked.countedGPUs(), LimitGPUs: a.limit.GPUs,
	}
}

// compareNames orders ids as people count: job 9 before job 10.
func compareNames(a, b string) int {
	switch {
	case len(a) != len(b):
		return len(a) - len(b)
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
