package cli

import (
	"time"

	"berth/internal/text"
)

// spanS is span for seconds that may not be known.
func spanS(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return text.Span(time.Duration(*seconds * float64(time.Second)))
}

// moment writes a time of day, with its date where that is not today's.
func moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}
