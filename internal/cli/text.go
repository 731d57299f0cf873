package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth/internal/batch"
)

// columnsOf is how many columns of a terminal the text takes.
func columnsOf(text string) int {
	n := 0
	for _, r := range text {
		n += batch.Width(r)
	}
	return n
}

// gib writes an amount of memory as people read it: "17.5".
func gib(mib int64) string { return strconv.FormatFloat(float64(mib)/1024, 'f', 1, 64) }

// span writes a time compactly: 3s, 4m12s, 2h05m, 3d4h.
func span(d time.Duration) string {
	seconds := int64(max(d, 0) / time.Second)
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%dm%02ds", seconds/60, seconds%60)
	case seconds < 86400:
		return fmt.Sprintf("%dh%02dm", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%dd%dh", seconds/86400, seconds/3600%24)
}

// spanS is span for seconds that may not be known.
func spanS(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return span(time.Duration(*seconds * float64(time.Second)))
}

// grouped writes a count with its thousands apart: 49,950.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	if n < 0 {
		return digits
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// plural writes a count with its noun: "1 job", "1,200 jobs".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(n) + " " + noun + "s"
}

// moment writes a time of day, with its date where that is not today's.
func moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}

// cards writes indices as people type them: "0,1".
func cards(indices []int) string {
	words := make([]string, len(indices))
	for i, index := range indices {
		words[i] = strconv.Itoa(index)
	}
	return strings.Join(words, ",")
}
