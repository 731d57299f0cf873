package reason

import (
	"strconv"

	"berth/internal/text"
)

// Bounds on a sentence: beyond them it counts instead of naming.
const (
	maxCardsNamed = 8
	maxJobsNamed  = 3
)

func gpus(indices []int) string {
	names := make([]string, len(indices))
	for i, index := range indices {
		names[i] = "gpu" + strconv.Itoa(index)
	}
	return text.Some(names, maxCardsNamed)
}

// countGPUs counts GPUs, including fractions of one.
func countGPUs(n float64) string {
	if words := text.Decimal(n); words != "1" {
		return words + " GPUs"
	}
	return "1 GPU"
}
