package render

import (
	"time"

	"berth/internal/text"
)

// SpanOfSeconds is text.Span for seconds that may be unknown.
func SpanOfSeconds(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return text.Span(time.Duration(*seconds * float64(time.Second)))
}

// Moment writes a time of day, or a date and time if it is not today.
func Moment(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}
