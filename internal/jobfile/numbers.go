package jobfile

import (
	"math"

	"berth/internal/text"
)

// maxGPUs lies far outside of any machine, so that no later arithmetic can
// overflow.
const maxGPUs = 1024

const allowedGPUs = "a whole number of GPUs from 0 to 1024, or a share of one GPU between 0 and 1"

// parseGPUs reads how many GPUs a job wants: a whole count, 0 for none, or a
// share of one. There is no such thing as one and a half cards for a job, so
// a fraction above 1 is rounded up.
func parseGPUs(s string) (count int, share float64, err error) {
	value, unit, ok := text.CutNumber(s)
	if !ok || unit != "" || value > maxGPUs {
		return 0, 0, text.Mismatch(s, allowedGPUs)
	}
	if value > 0 && value < 1 {
		return 1, value, nil
	}
	return int(math.Ceil(value)), 0, nil
}
