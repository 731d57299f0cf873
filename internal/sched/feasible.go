package sched

import (
	"slices"

	"berth/internal/reason"
)

// Feasible reports whether the request could be placed on this machine if
// nothing else ran on it, and otherwise why not. What is free now, paused or
// unwell plays no part, and neither do limits of users.
func Feasible(s State, r Request) (reason.Reason, bool) {
	k := newKinship(newBoard(&s), &r)
	if a := r.amounts(); k.possible(&a) {
		return reason.Reason{}, true
	}
	return k.impossible(&r), false
}

// FeasibleFor is Feasible for a job of this user, whose limit on GPUs may be
// less than the machine has.
func FeasibleFor(s State, user string, r Request) (reason.Reason, bool) {
	if why, ok := Feasible(s, r); !ok {
		return why, false
	}
	a, asked := newAccount(&s, user), r.amounts()
	if !a.allows(&asked) {
		return a.overLimit(&asked), false
	}
	return reason.Reason{}, true
}

// CapMiB is the most VRAM per GPU that a retry of the request may declare and
// still be placed: what the largest cards it allows can hold beside the
// margin, as many of them as it needs. It is 0 where no card is known.
func CapMiB(s State, r Request) int64 {
	return max(0, newKinship(newBoard(&s), &r).roomMiB(r.GPUs)-s.Rules.MarginMiB)
}

// roomMiB is how much each of the n largest candidates holds when empty.
func (k *kinship) roomMiB(n int) int64 {
	if n < 1 || n > len(k.sizes()) {
		return 0
	}
	return k.sizes()[n-1]
}

// possible is Feasible without the reason. It is asked of every kind of
// request in every decision, so it costs a few comparisons.
func (k *kinship) possible(a *amounts) bool {
	host := &k.board.host
	switch {
	case host.CPUs > 0 && a.cpus > host.CPUs, host.MemMiB > 0 && a.memMiB > host.MemMiB:
		return false
	case a.gpus == 0 || k.blind():
		return true
	case a.gpus > len(k.candidates):
		return false
	case a.vramMiB > 0:
		return a.vramMiB <= k.roomMiB(a.gpus)-k.board.rules.MarginMiB
	case a.share > 0:
		return k.shareFits(a) >= a.gpus
	}
	return true
}

// blind reports that there never was a reading to judge by.
func (k *kinship) blind() bool { return k.board.unreadable != "" && len(k.board.slots) == 0 }

// shareFits counts the candidates whose empty memory holds the share.
func (k *kinship) shareFits(a *amounts) (n int) {
	for _, c := range k.candidates {
		if a.share <= 1+shareTolerance && a.budgetOn(c.TotalMiB) <= c.TotalMiB-c.ReservedMiB {
			n++
		}
	}
	return n
}

// impossible says what possible found wrong.
func (k *kinship) impossible(r *Request) reason.Reason {
	host := k.board.host
	why := reason.Reason{Needs: r.GPUs, Share: r.Share, Type: r.Type, Allow: splitIDs(r.Allow)}
	switch {
	case host.CPUs > 0 && r.CPUs > host.CPUs:
		return reason.Reason{Kind: reason.TooManyCPUs, Amount: int64(r.CPUs), Total: int64(host.CPUs)}
	case host.MemMiB > 0 && r.MemMiB > host.MemMiB:
		return reason.Reason{Kind: reason.TooMuchMemory, Amount: r.MemMiB, Total: host.MemMiB}
	case len(k.repeated) > 0:
		why.Kind, why.IDs = reason.RepeatedGPU, k.repeated
	case r.GPUs > len(k.board.slots):
		why.Kind, why.Total = reason.TooManyGPUs, int64(len(k.board.slots))
	case len(k.unknown) > 0:
		why.Kind, why.IDs = reason.NoSuchGPU, k.unknown
		why.Cards = k.names()
		if card, parts := k.partitioned(); len(parts) > 0 {
			why.IDs, why.Cards, why.Parts = []int{card}, parts, true
		}
	case len(k.candidates) < r.GPUs:
		why.Kind, why.Amount, why.Total = reason.TooFewAllowed, int64(len(k.candidates)), int64(len(k.board.slots))
		why.Parts = slices.ContainsFunc(k.board.slots, func(c *slot) bool { return r.oneOf(c.Card) })
		why.Cards = k.names()
	default:
		why.Kind, why.VRAMMiB = reason.TooMuchVRAM, r.VRAMMiB
		why.HoldsMiB = max(0, k.roomMiB(r.GPUs)-k.board.marginFor(r))
		if r.VRAMMiB == 0 {
			why.VRAMMiB = r.budgetOn(k.candidates[0].TotalMiB)
		}
	}
	return why
}

// partitioned is the first card asked for by its number that is not there because
// its parts are, numbered from 100 for card 0 and 200 for card 1.
func (k *kinship) partitioned() (card int, parts []reason.Card) {
	for _, id := range k.unknown {
		for _, c := range k.board.slots {
			if c.Part && c.Index/100 == id+1 {
				parts = append(parts, reason.Card{GPU: c.Index, Name: c.Name})
			}
		}
		there := slices.ContainsFunc(k.board.slots, func(c *slot) bool { return c.Index == id })
		if len(parts) > 0 && !there {
			return id, parts
		}
		parts = nil
	}
	return 0, nil
}

// names lists the machine's cards, for a reason that says what there is.
func (k *kinship) names() []reason.Card {
	facts := make([]reason.Card, len(k.board.slots))
	for i, c := range k.board.slots {
		facts[i] = reason.Card{GPU: c.Index, Name: c.Name}
	}
	return facts
}
