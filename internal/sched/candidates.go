package sched

import (
	"cmp"
	"slices"

	"berth/internal/job"
)

// candidates are the cards that requests of one family may ever have.
type candidates struct {
	places   []int   // indices into a machine's slots, in the order of the job's ids if it names any
	unknown  []int   // ids without a card, or excluded by the job itself
	repeated []int   // ids named more than once
	sizesMiB []int64 // what the cards hold when empty, largest first
}

func newCandidates(m *machine, r *Request) candidates {
	var k candidates
	ids := splitIDs(r.IDs)
	for i, id := range ids {
		place := slices.IndexFunc(m.slots, func(c slot) bool { return c.Index == id })
		switch {
		case slices.Contains(ids[:i], id):
			k.repeated = append(k.repeated, id)
		case place < 0 || !r.allows(m.slots[place].Card):
			k.unknown = append(k.unknown, id)
		default:
			k.places = append(k.places, place)
		}
	}
	if ids == nil && r.GPUs > 0 {
		for place := range m.slots {
			if r.allows(m.slots[place].Card) {
				k.places = append(k.places, place)
			}
		}
	}
	for _, place := range k.places {
		k.sizesMiB = append(k.sizesMiB, m.slots[place].TotalMiB-m.slots[place].ReservedMiB)
	}
	slices.SortFunc(k.sizesMiB, func(a, b int64) int { return cmp.Compare(b, a) })
	return k
}

// option is a card that the job fits on.
type option struct {
	slot      *slot
	budgetMiB int64
	leftMiB   int64 // headroom once the job is there
}

// keeps reports whether a card is reserved from a request; nil: no card is.
type keeps func(c *slot, r *Request) bool

// room is the job's budget on the card, and false where it does not fit or the card
// is reserved.
func (m *machine) room(c *slot, r *Request, kept keeps) (budgetMiB int64, ok bool) {
	budgetMiB, obstacle := m.fit(c, r)
	return budgetMiB, obstacle == "" && (kept == nil || !kept(c, r))
}

// enough reports whether enough of the candidates have room for the request.
func (m *machine) enough(k *candidates, r *Request, kept keeps) bool {
	missing := r.GPUs
	for i := 0; missing > 0 && missing <= len(k.places)-i; i++ {
		if _, ok := m.room(&m.slots[k.places[i]], r, kept); ok {
			missing--
		}
	}
	return missing <= 0
}

// grant finds the best cards for the request: all it asks for, or none.
func (m *machine) grant(k *candidates, r *Request, kept keeps) (job.Grant, bool) {
	options := make([]option, 0, len(k.places))
	for _, place := range k.places {
		c := &m.slots[place]
		if budgetMiB, ok := m.room(c, r, kept); ok {
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
	options = choose(options, r.GPUs, m.rules.Placement)
	g := job.Grant{Share: r.Share, Alone: r.undeclared(), Exclusive: r.Exclusive}
	for _, o := range options {
		g.GPUs = append(g.GPUs, o.slot.Index)
		g.UUIDs = append(g.UUIDs, o.slot.UUID)
		g.BudgetMiB = max(g.BudgetMiB, o.budgetMiB)
	}
	return g, true
}

// wholeFirst drops parts of cards if a whole card is free: a part may be too small
// for a job that declares nothing.
func wholeFirst(options []option) []option {
	part := func(o option) bool { return o.slot.Part }
	if whole := func(o option) bool { return !part(o) }; !slices.ContainsFunc(options, whole) {
		return options
	}
	return slices.DeleteFunc(options, part)
}
