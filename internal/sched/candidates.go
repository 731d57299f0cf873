package sched

import (
	"cmp"
	"slices"

	"berth/internal/job"
)

// candidates are the cards that a family of requests may have at all.
type candidates struct {
	places   []int   // among a machine's slots, in the order of the job's ids where it names them
	unknown  []int   // ids that no card has, or that the job rules out itself
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

// option is a card the job fits on.
type option struct {
	slot      *slot
	budgetMiB int64
	leftMiB   int64 // headroom once the job is there
}

// enough reports whether so many of the candidates have room for the request, and
// are not reserved for others.
func (m *machine) enough(k *candidates, r *Request, reserved reserved) bool {
	missing := r.GPUs
	for i := 0; missing > 0 && missing <= len(k.places)-i; i++ {
		c := &m.slots[k.places[i]]
		if _, obstacle := m.fit(c, r); obstacle == "" && reserved.by(c, r) == nil {
			missing--
		}
	}
	return missing <= 0
}

// grant finds cards for the request: all it asks for, or none. Cards that are
// reserved for others are not among them.
func (m *machine) grant(k *candidates, r *Request, reserved reserved) (job.Grant, bool) {
	options := make([]option, 0, len(k.places))
	for _, place := range k.places {
		c := &m.slots[place]
		if budgetMiB, obstacle := m.fit(c, r); obstacle == "" && reserved.by(c, r) == nil {
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

// wholeFirst leaves parts of cards out where a whole one is to be had: of a job
// that does not say how much it needs nobody knows that a part is enough.
func wholeFirst(options []option) []option {
	part := func(o option) bool { return o.slot.Part }
	if whole := func(o option) bool { return !part(o) }; !slices.ContainsFunc(options, whole) {
		return options
	}
	return slices.DeleteFunc(options, part)
}
