package sched

import (
	"math"

	"berth/internal/job"
)

// shareOfCard is the part of a card that shares divide. The rest covers the
// processes' CUDA contexts, so that two halves really fit.
const shareOfCard = 0.95

// rounding keeps a product such as 1000 × 1.1 from being pushed to the next
// whole MiB by the last bit of a float.
const rounding = 1e-6

// Budget is what a job is charged on one card: its declaration, or its peak plus
// the spike buffer once that is more.
func Budget(declaredMiB, peakMiB int64, spikeBuffer float64) int64 {
	if peakMiB <= declaredMiB {
		return declaredMiB
	}
	return int64(math.Ceil(float64(peakMiB)*(1+spikeBuffer) - rounding))
}

// shareBudget is the budget of a share of a card of this size. It is never zero,
// which would mean "no budget".
func shareBudget(share float64, totalMiB int64) int64 {
	return max(1, int64(math.Floor(share*shareOfCard*float64(totalMiB)+rounding)))
}

// CardBudgets is the initial budget of a grant on each of its cards. A share is a
// part of its card, so cards of different sizes give different budgets;
// Grant.BudgetMiB is the largest.
func CardBudgets(grant job.Grant, declaredMiB int64, cards []Card) []int64 {
	budgets := make([]int64, len(grant.GPUs))
	for i, index := range grant.GPUs {
		switch {
		case grant.Alone:
		case declaredMiB > 0:
			budgets[i] = declaredMiB
		default:
			budgets[i] = grant.BudgetMiB
			for c := range cards {
				if cards[c].Index == index && grant.Share > 0 {
					budgets[i] = shareBudget(grant.Share, cards[c].TotalMiB)
				}
			}
		}
	}
	return budgets
}

// AllocationOf is what one of our running jobs holds: its grant, with each card's budget
// raised to the measured peak, and charged for that.
func AllocationOf(j *job.Job, rules Rules, cards []Card) Allocation {
	request := NewRequest(j.Spec, j.VRAMMiB, rules)
	budgets := CardBudgets(j.Grant, j.VRAMMiB, cards)
	for i, index := range j.Grant.GPUs {
		budgets[i] = Budget(budgets[i], j.PeakMiB[index], rules.SpikeBuffer)
	}
	return Allocation{
		Job: j.ID, Array: j.Array(), Cards: j.Grant.GPUs, BudgetMiB: budgets,
		Share: j.Grant.Share, OverGPUs: j.OverGPUs, Alone: j.Grant.Alone, Exclusive: j.Grant.Exclusive,
		CPUs: request.CPUs, MemMiB: request.MemMiB,
	}
}
