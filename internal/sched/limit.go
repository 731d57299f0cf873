package sched

import (
	"maps"
	"slices"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// Limit bounds one user's running jobs; a part that is 0 is not limited.
type Limit struct {
	Jobs   int     `json:"jobs,omitempty"`
	GPUs   float64 `json:"gpus,omitempty"`       // counted as CountedGPUs does
	Share  float64 `json:"share_gpus,omitempty"` // of these, what is beyond this is borrowed
	CPUs   int     `json:"cpus,omitempty"`
	MemMiB int64   `json:"mem_mib,omitempty"` // of the host
	Flag   string  `json:"flag,omitempty"`    // the flag that sets it; empty: the config does
}

// WithoutBorrowing is how many GPUs the user may hold by jobs that may not borrow; 0:
// any number.
func (l *Limit) WithoutBorrowing() float64 {
	if l.GPUs > 0 && (l.Share <= 0 || l.GPUs < l.Share) {
		return l.GPUs
	}
	return l.Share
}

// Use is what one user's running jobs hold.
type Use struct {
	Jobs   int     `json:"jobs"` // parked ones included
	GPUs   float64 `json:"gpus"`
	CPUs   int     `json:"cpus,omitempty"`
	MemMiB int64   `json:"mem_mib,omitempty"`
	Parked int     `json:"parked,omitempty"` // of the jobs
	// Unmeasured is what shares add that were not measured yet: each counts as whole
	// GPUs until then.
	Unmeasured float64 `json:"unmeasured,omitempty"`
}

// Add counts one more running job.
func (u *Use) Add(h *Allocation) {
	u.Jobs++
	u.add(h.CountedGPUs(), h.CPUs, h.MemMiB)
}

func (u *Use) add(gpus float64, cpus int, memMiB int64) {
	u.GPUs += gpus
	u.CPUs += cpus
	u.MemMiB += memMiB
}

// limitTolerance lets three thirds be one, in whatever order they were added.
const limitTolerance = 1e-6

// CountedGPUs is what the request counts as against a GPU limit: each of its cards
// once, or its share of each.
func (r *Request) CountedGPUs() float64 { return job.CountedGPUs(r.GPUs, r.Share) }

// CountedGPUs is what a running job counts as against a limit on GPUs: what it
// asked for, or the memory it takes where that is more.
func (h *Allocation) CountedGPUs() float64 { return h.declaredGPUs() + h.OverGPUs }

func (h *Allocation) declaredGPUs() float64 { return job.CountedGPUs(len(h.Cards), h.share()) }

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
	scale Scale
	turn  float64 // usage; under fair share the user with less goes first
}

func newAccount(s *State, user string) account {
	a := account{rules: &s.Rules, user: user, use: s.InUse[user]}
	a.limit, a.own = s.limitOf(user)
	if s.Rules.Fair {
		a.turn, a.scale = s.Usage[user], s.Host.Scale(len(s.Cards))
	}
	return a
}

// limitOf is the user's limit, and whether it is set for this user.
func (s *State) limitOf(user string) (limit Limit, own bool) {
	if limit, own = s.Limits[user]; own {
		return limit, true
	}
	return s.DefaultLimit, false
}

// mostGPUs is how many GPUs the user may hold with such a job; 0: any number. The
// share bounds jobs that may not borrow, and shares of GPUs until they are measured.
func (a *account) mostGPUs(g *class, held *Use) float64 {
	// Mostly there is no share, and the class is not in the processor's cache.
	if a.limit.Share > 0 && (g.neverBorrows || g.unproven && held.Unmeasured > 0) {
		return a.limit.WithoutBorrowing()
	}
	return a.limit.GPUs
}

// exceeded is the part of the user's limit that the job would exceed beside what
// the user holds; gpus is what it adds to them. A job that needs none of something
// is never limited by it.
func (a *account) exceeded(g *class, gpus float64, asked *amounts, held *Use) reason.Resource {
	l, most := &a.limit, a.mostGPUs(g, held)
	switch {
	case most > 0 && asked.gpus > 0 && held.GPUs+held.Unmeasured+gpus > most+limitTolerance:
		return reason.GPUs
	case l.CPUs > 0 && asked.cpus > 0 && held.CPUs+asked.cpus > l.CPUs:
		return reason.CPUs
	case l.MemMiB > 0 && asked.memMiB > 0 && held.MemMiB+asked.memMiB > l.MemMiB:
		return reason.Memory
	}
	return reason.NoResource
}

// allows reports whether the limit admits such a job when the user runs nothing
// else. It is asked of every class.
func (a *account) allows(g *class, asked *amounts) bool {
	return a.exceeded(g, asked.countedGPUs(), asked, &Use{}) == reason.NoResource
}

// beyondShare reports that the job would be borrowed: with it, the user holds more
// GPUs than their share.
func (a *account) beyondShare(g *class, asked *amounts) bool {
	return a.limit.Share > 0 && asked.gpus > 0 && a.use.GPUs+a.use.Unmeasured+a.adds(g, asked) > a.limit.Share+limitTolerance
}

// jobsSpent reports that the user's limit on jobs is reached. A parked job counts
// already.
func (a *account) jobsSpent(g *class) bool {
	return a.limit.Jobs > 0 && a.use.Jobs >= a.limit.Jobs && !g.parked
}

// amountSpent reports that the job would exceed the user's limit on GPUs, CPUs or
// memory.
func (a *account) amountSpent(g *class, asked *amounts) bool {
	return a.exceeded(g, a.adds(g, asked), asked, &a.use) != reason.NoResource
}

// adds is what the job would add to the user's GPUs. An unproven share adds whole
// GPUs while another one is not measured. The first may always start, so that no
// job waits for others to end only because no job like it was measured.
func (a *account) adds(g *class, asked *amounts) float64 {
	if g.unproven && a.use.Unmeasured > 0 {
		return float64(asked.gpus)
	}
	return asked.countedGPUs()
}

// overLimit is the reason for a job that exceeds its user's limit by itself.
func (a *account) overLimit(g *class, asked *amounts) reason.Reason {
	why := a.whyExceeded(reason.OverUserLimit, g, asked.countedGPUs(), asked, &Use{})
	if why.Resource == reason.NoResource {
		why.Needs, why.Share = asked.gpus, asked.share
	}
	return why
}

// whyExceeded is the part of the limit that the job would exceed, in numbers.
func (a *account) whyExceeded(kind reason.Kind, g *class, gpus float64, asked *amounts, held *Use) reason.Reason {
	why := reason.Reason{Kind: kind, User: a.user, Own: a.own}
	switch resource := a.exceeded(g, gpus, asked, held); resource {
	case reason.CPUs:
		why.Resource, why.Held, why.Amount, why.Total = resource, int64(held.CPUs), int64(asked.cpus), int64(a.limit.CPUs)
	case reason.Memory:
		why.Resource, why.Held, why.Amount, why.Total = resource, held.MemMiB, asked.memMiB, a.limit.MemMiB
	default:
		why.HeldGPUs, why.MoreGPUs, why.LimitGPUs, why.Unmeasured = held.GPUs+held.Unmeasured, gpus, a.mostGPUs(g, held), held.Unmeasured > 0
		if why.LimitIsShare = why.LimitGPUs > 0 && why.LimitGPUs != a.limit.GPUs; why.LimitIsShare && g.neverBorrows {
			why.NeverBorrows, why.BorrowS = true, max(0, a.rules.BorrowTime).Seconds()
		}
	}
	return why
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
