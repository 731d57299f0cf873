package batch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
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

// encodeLine writes a record as one line of JSON. JSON allows characters in a
// string that drive a terminal all the same; they are written as escapes,
// which read back as the same text.
func encodeLine(r any) ([]byte, error) {
	line, err := json.Marshal(r)
	if err != nil || bytes.IndexFunc(line, drivesTerminal) < 0 {
		return line, err
	}
	escaped := make([]byte, 0, len(line)+64)
	for _, r := range string(line) {
		if !drivesTerminal(r) {
			escaped = utf8.AppendRune(escaped, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			escaped = fmt.Appendf(escaped, `\u%04x`, unit)
		}
	}
	return escaped, nil
}

func drivesTerminal(r rune) bool {
	return r >= utf8.RuneSelf && !unicode.IsPrint(r) || r == 0x7f
}

// Cut shortens text to a number of columns.
func Cut(s string, columns int) string {
	if columns < 1 {
		return ""
	}
	used, fits := 0, 0 // fits: bytes that leave a column for the ellipsis
	for i, r := range s {
		if used < columns {
			fits = i
		}
		if used += Width(r); used > columns {
			return s[:fits] + "…"
		}
	}
	return s
}

// wide are the characters that take two columns of a terminal: East Asian
// scripts and pictures. A line that is longer than it seems would wrap, and
// the live view would no longer know how many lines it drew.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1},
		{0x2e80, 0x303e, 1},
		{0x3041, 0xa4cf, 1},
		{0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1},
		{0xfe30, 0xfe6f, 1},
		{0xff00, 0xff60, 1},
		{0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x1f300, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

// Width is how many columns of a terminal a character takes.
func Width(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// seconds writes a duration as people say it: "2.3s", "74s", "1774s".
func seconds(d time.Duration) string {
	d = max(d, 0) // the clock may have been set back
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

// count writes a number with its noun: "1 job", "12 jobs".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
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
	return "gpu [" + j.Grant.List() + "]"
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
		if j.Outcome != job.OK {
			return "" // it did not get as far as its peak
		}
		return text + fmt.Sprintf("over-declared (%.0f%%); lowering it frees packing headroom", percent)
	}
	return text + fmt.Sprintf("within ±%.0f%%", tolerance*100)
}
