package batch

import (
	"encoding/json"
	"fmt"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

// encodeLine writes a record as one line of JSON.
func encodeLine(r any) ([]byte, error) {
	line, err := json.Marshal(r)
	return text.JSON(line), err
}

// label names a job by its id, and its name if it has one.
func label(j *job.Job) string {
	if j.Spec.Name == "" {
		return "job " + j.ID
	}
	return fmt.Sprintf("job %s (%s)", j.ID, text.Line(j.Spec.Name))
}

// where names the cards of a job: "gpu [0,1]", or "cpu".
func where(j *job.Job) string {
	if j.Spec.To == job.ToSlurm {
		return "slurm " + j.View().Slurm.Where()
	}
	if len(j.Grant.GPUs) == 0 {
		return "cpu"
	}
	return "gpu [" + j.Grant.List() + "]"
}

// declaration is what a job declared for each card.
func declaration(j *job.Job) string {
	var parts []string
	if j.Grant.Share > 0 {
		parts = append(parts, "share "+text.Share(j.Grant.Share))
	}
	switch {
	case len(j.Grant.GPUs) == 0:
	case j.VRAMMiB > 0:
		parts = append(parts, fmt.Sprintf("declared %d MiB/gpu", j.VRAMMiB))
	case j.Grant.Share == 0:
		parts = append(parts, "no vram declared: alone on "+map[bool]string{true: "its GPU", false: "its GPUs"}[len(j.Grant.GPUs) == 1])
	}
	return strings.Join(parts, ", ")
}

// peaks lists the peak memory on each card, if it is known.
func peaks(j *job.Job) string {
	if len(j.Grant.GPUs) == 0 {
		return ""
	}
	if j.PeakMiB == nil {
		return "peak vram n/a"
	}
	parts := make([]string, 0, len(j.Grant.GPUs))
	for _, card := range j.Grant.GPUs {
		if mib, ok := j.PeakMiB[card]; ok {
			parts = append(parts, fmt.Sprintf("gpu%d:%d MiB", card, mib))
		} else {
			parts = append(parts, fmt.Sprintf("gpu%d:n/a", card))
		}
	}
	return "peak vram " + strings.Join(parts, " ")
}

// verdict compares the declaration with the peak.
func verdict(j *job.Job, tolerance float64) string {
	v, percent := job.Judge(j.VRAMMiB, j.PeakMiB, tolerance)
	if v == "" {
		return ""
	}
	text := fmt.Sprintf("declared %d MiB → ", j.VRAMMiB)
	switch v {
	case job.VerdictUnder:
		return text + fmt.Sprintf("UNDER-DECLARED (%+.0f%%); raise it", percent)
	case job.VerdictOver:
		if j.Outcome != job.OK {
			return "" // it may not have reached its peak
		}
		return text + fmt.Sprintf("over-declared (%.0f%%); lowering it frees packing headroom", percent)
	}
	return text + fmt.Sprintf("within ±%.0f%%", tolerance*100)
}
