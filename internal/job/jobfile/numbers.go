package jobfile

import (
	"fmt"
	"math"

	"berth/internal/text"
)

// maxGPUs is far beyond any machine, and keeps later arithmetic from
// overflowing.
const maxGPUs = 1024

const allowedGPUs = "a number of GPUs from 0 to 1024, or a share of one such as 0.5"

// parseGPUs reads the number of GPUs a job needs: a whole number, 0 for a CPU
// job, or a share of one. A fraction above 1 is rounded up: no job can have one
// and a half GPUs.
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

// roundedUp mentions a fraction above 1, of which a job gets the next whole number.
func roundedUp(asked string, gpus int) string {
	if value, _, _ := text.CutNumber(asked); gpus < 2 || value == float64(gpus) {
		return ""
	}
	return fmt.Sprintf("gpus: %s means %d whole GPUs; a fraction below 1 shares one", asked, gpus)
}
