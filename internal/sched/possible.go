package sched

import (
	"slices"

	"berth/internal/job/reason"
)

// roomMiB is how much each of the n largest candidates holds when empty.
func (k *candidates) roomMiB(n int) int64 {
	if n < 1 || n > len(k.sizesMiB) {
		return 0
	}
	return k.sizesMiB[n-1]
}

// possible is Feasible without the reason. Every decision asks it of every request
// class, so it costs only a few comparisons.
func (m *machine) possible(k *candidates, a *amounts) bool {
	host := &m.host.size
	switch {
	case host.CPUs > 0 && a.cpus > host.CPUs, host.MemMiB > 0 && a.memMiB > host.MemMiB:
		return false
	case a.gpus == 0 || m.blind():
		return true
	case a.gpus > len(k.places):
		return false
	case a.vramMiB > 0:
		return a.vramMiB <= k.roomMiB(a.gpus)-m.rules.MarginMiB
	case a.share > 0:
		return m.shareFits(k, a) >= a.gpus
	}
	return true
}

// blind reports that the cards were never read, so nothing can be judged.
func (m *machine) blind() bool { return m.unreadable != "" && len(m.slots) == 0 }

// shareFits counts the candidates whose empty memory holds the share.
func (m *machine) shareFits(k *candidates, a *amounts) (n int) {
	for _, place := range k.places {
		c := &m.slots[place]
		if a.share <= 1+shareTolerance && a.budgetOn(c.TotalMiB) <= c.TotalMiB-c.ReservedMiB {
			n++
		}
	}
	return n
}

// impossible is the reason for possible being false.
func (m *machine) impossible(k *candidates, r *Request) reason.Reason {
	host := m.host.size
	why := reason.Reason{Needs: r.GPUs, Share: r.Share, Type: r.Type, Allow: splitIDs(r.Allow)}
	switch {
	case host.CPUs > 0 && r.CPUs > host.CPUs:
		return reason.Reason{Kind: reason.TooManyCPUs, Amount: int64(r.CPUs), Total: int64(host.CPUs)}
	case host.MemMiB > 0 && r.MemMiB > host.MemMiB:
		return reason.Reason{Kind: reason.TooMuchMemory, Amount: r.MemMiB, Total: host.MemMiB}
	case len(k.repeated) > 0:
		why.Kind, why.IDs = reason.RepeatedGPU, k.repeated
	case r.GPUs > len(m.slots):
		why.Kind, why.Total = reason.TooManyGPUs, int64(len(m.slots))
	case len(k.unknown) > 0:
		why.Kind, why.IDs = reason.NoSuchGPU, k.unknown
		why.Cards = m.names()
		if card, parts := m.partitioned(k); len(parts) > 0 {
			why.IDs, why.Cards, why.Parts = []int{card}, parts, true
		}
	case len(k.places) < r.GPUs:
		why.Kind, why.Amount, why.Total = reason.TooFewAllowed, int64(len(k.places)), int64(len(m.slots))
		why.Parts = slices.ContainsFunc(m.slots, func(c slot) bool { return r.oneOf(c.Card) })
		why.Cards = m.names()
	default:
		why.Kind, why.VRAMMiB = reason.TooMuchVRAM, r.VRAMMiB
		why.HoldsMiB = max(0, k.roomMiB(r.GPUs)-m.marginFor(r))
		if r.VRAMMiB == 0 {
			why.VRAMMiB = r.budgetOn(m.slots[k.places[0]].TotalMiB)
		}
	}
	return why
}

// partitioned is the first card that the job names and that is absent because it is
// partitioned: the parts of card 0 are numbered from 100, those of card 1 from 200.
func (m *machine) partitioned(k *candidates) (card int, parts []reason.Card) {
	for _, id := range k.unknown {
		for _, c := range m.slots {
			if c.Part && c.Index/100 == id+1 {
				parts = append(parts, reason.Card{GPU: c.Index, Name: c.Name})
			}
		}
		there := slices.ContainsFunc(m.slots, func(c slot) bool { return c.Index == id })
		if len(parts) > 0 && !there {
			return id, parts
		}
		parts = nil
	}
	return 0, nil
}

// names lists the machine's cards for a reason.
func (m *machine) names() []reason.Card {
	facts := make([]reason.Card, len(m.slots))
	for i, c := range m.slots {
		facts[i] = reason.Card{GPU: c.Index, Name: c.Name}
	}
	return facts
}
