package sched

import (
	"cmp"
	"slices"

	"berth/internal/job"
)

// kinship is what a decision knows of all requests that differ in amounts
// only: which cards they may have at all, and which amounts failed already.
type kinship struct {
	board      *board
	candidates []*slot // in the order of the job's ids where it names them
	unknown    []int   // ids that no card has, or that the job rules out itself
	repeated   []int   // ids named more than once
	sizesMiB   []int64 // what the candidates hold when empty, largest first; nil until it is asked for
	failed     []amounts
	short      []amounts // that failed though nothing was kept of the cards, so that how long they last is all one
	noRoom     []attempt // for which no room could be made either
	fitted     amounts   // that had room when it was last asked, if nothing was booked since
}

// covers reports whether a asks for as much of the cards as b and for as long,
// or more.
func (a *amounts) covers(b *amounts) bool { return a.coversCards(b) && a.lasts.covers(b.lasts) }

// coversCards is covers for however long.
func (a *amounts) coversCards(b *amounts) bool {
	return a.gpus >= b.gpus && a.vramMiB >= b.vramMiB && a.share >= b.share
}

func newKinship(b *board, r *Request) *kinship {
	k := &kinship{board: b}
	if ids := splitIDs(r.IDs); ids != nil {
		k.addIDs(r, ids)
	} else if r.GPUs > 0 {
		k.candidates = make([]*slot, 0, len(b.slots))
		for _, c := range b.slots {
			if r.allows(c.Card) {
				k.candidates = append(k.candidates, c)
			}
		}
	}
	return k
}

// sizes are what the candidates hold when empty, largest first.
func (k *kinship) sizes() []int64 {
	if k.sizesMiB == nil {
		k.sizesMiB = make([]int64, len(k.candidates))
		for i, c := range k.candidates {
			k.sizesMiB[i] = c.TotalMiB - c.ReservedMiB
		}
		slices.SortFunc(k.sizesMiB, func(a, b int64) int { return cmp.Compare(b, a) })
	}
	return k.sizesMiB
}

func (k *kinship) addIDs(r *Request, ids []int) {
	for i, id := range ids {
		c := k.board.slot(id)
		switch {
		case slices.Contains(ids[:i], id):
			k.repeated = append(k.repeated, id)
		case c == nil || !r.allows(c.Card):
			k.unknown = append(k.unknown, id)
		default:
			k.candidates = append(k.candidates, c)
		}
	}
}

// hopeless reports whether the amounts are at least those of a request that
// failed before. Within a decision headroom only shrinks, so it would fail.
func (k *kinship) hopeless(a *amounts) bool {
	for i := range k.short {
		if a.coversCards(&k.short[i]) {
			return true
		}
	}
	for i := range k.failed {
		if a.covers(&k.failed[i]) {
			return true
		}
	}
	return false
}

// fail remembers that these amounts did not fit.
func (k *kinship) fail(a *amounts) {
	k.failed = slices.DeleteFunc(k.failed, func(f amounts) bool { return f.covers(a) })
	k.failed = append(k.failed, *a)
}

// grant finds cards for the request: all it asks for, or none. Cards that are
// kept for others are not among them.
func (k *kinship) grant(r *Request, kept keeper) (job.Grant, bool) {
	options := make([]option, 0, len(k.candidates))
	for _, c := range k.candidates {
		if budgetMiB, obstacle := k.board.fit(c, r); obstacle == "" && kept.by(c, r) == nil {
			options = append(options, option{slot: c, budgetMiB: budgetMiB, leftMiB: c.headroomMiB - budgetMiB})
		}
	}
	if len(options) < r.GPUs {
		return job.Grant{}, false
	}
	if r.undeclared() && r.IDs == "" {
		options = wholeFirst(options)
	}
	// Named cards are all taken, in the order of the candidates: the job's.
	options = choose(options, r.GPUs, k.board.rules.Placement)
	g := job.Grant{Share: r.Share, Alone: r.undeclared(), Exclusive: r.Exclusive}
	for _, o := range options {
		g.GPUs = append(g.GPUs, o.slot.Index)
		g.UUIDs = append(g.UUIDs, o.slot.UUID)
		g.BudgetMiB = max(g.BudgetMiB, o.budgetMiB)
	}
	return g, true
}

// wholeFirst leaves parts of cards out where a whole one is to be had: of a job
// that does not say how much it needs nobody knows that a part is enough.
func wholeFirst(options []option) []option {
	part := func(o option) bool { return o.slot.Part }
	if whole := func(o option) bool { return !part(o) }; !slices.ContainsFunc(options, whole) {
		return options
	}
	return slices.DeleteFunc(options, part)
}
