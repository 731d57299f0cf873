package batch

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/internal/job"
)

// clean makes text safe to print: a job's name or command must not be able to
// drive the terminal.
func clean(s string) string {
	safe := func(r rune) bool { return r != utf8.RuneError && (unicode.IsPrint(r) || r == ' ') }
	if strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if safe(r) {
			return r
		}
		return '�'
	}, s)
}

// cut shortens text to a number of columns.
func cut(s string, columns int) string {
	if columns < 1 {
		return ""
	}
	runes := []rune(s)
	if len(runes) <= columns {
		return s
	}
	return string(runes[:columns-1]) + "…"
}

// seconds writes a duration as people say it: "2.3s", "74s", "1774s".
func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return strconv.FormatInt(int64(d.Round(time.Second)/time.Second), 10) + "s"
}

// clock writes an elapsed time as m:ss or h:mm:ss.
func clock(d time.Duration) string {
	total := int64(max(d, 0) / time.Second)
	if total >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", total/3600, total/60%60, total%60)
	}
	return fmt.Sprintf("%d:%02d", total/60, total%60)
}

// label names a job: its number, and its name if it was given one.
func label(j *job.Job) string {
	if j.Spec.Name == "" {
		return "job " + j.ID
	}
	return fmt.Sprintf("job %s (%s)", j.ID, clean(j.Spec.Name))
}

// where names the cards of a job: "gpu [0,1]", or "cpu".
func where(j *job.Job) string {
	if len(j.Grant.GPUs) == 0 {
		return "cpu"
	}
	return "gpu [" + joinInts(j.Grant.GPUs) + "]"
}

func joinInts(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// declaration says what a job asked of each card.
func declaration(j *job.Job) string {
	var parts []string
	if j.Grant.Share > 0 {
		parts = append(parts, "share "+strconv.FormatFloat(j.Grant.Share, 'g', 3, 64))
	}
	switch {
	case len(j.Grant.GPUs) == 0:
	case j.VRAMMiB > 0:
		parts = append(parts, fmt.Sprintf("declared %d MiB/gpu", j.VRAMMiB))
	case j.Grant.Share == 0:
		parts = append(parts, "undeclared: alone")
	}
	return strings.Join(parts, ", ")
}

// peaks lists the highest use per card, or says that it is not known.
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

// verdict holds the declaration against the peak.
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
		return text + fmt.Sprintf("over-declared (%.0f%%); lowering it frees packing headroom", percent)
	}
	return text + fmt.Sprintf("within ±%.0f%%", tolerance*100)
}
