package jobfile

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/text"
)

const allowedBegin = "a time such as now+90 (seconds), now+2h, 16:00, noon, midnight, tomorrow, 2026-03-01 or 2026-03-01T16:00"

// maxAhead bounds how far ahead a job may begin, so that a mistyped year does
// not hide it for good.
const maxAhead = text.MaxDuration

// ParseBegin reads the earliest time a job may start. Times and dates without
// a zone use that of now; a date alone means its midnight.
func ParseBegin(written string, now time.Time) (time.Time, error) {
	at, err := beginForm(written)
	if err != nil {
		return time.Time{}, err
	}
	now = now.Round(0) // the store keeps only the wall clock
	begin := at(now)
	const shown = "2006-01-02 15:04:05 MST"
	if begin.Before(now) {
		return time.Time{}, fmt.Errorf("expected a time in the future, found %s (it is now %s)", text.Found(written), now.Format(shown))
	}
	if begin.Sub(now) > maxAhead {
		return time.Time{}, fmt.Errorf("expected a time at most 3650 days from now, found %s (it is now %s)", text.Found(written), now.Format(shown))
	}
	return begin, nil
}

// beginForm parses the text; the function it returns applies it to a time.
func beginForm(written string) (at func(now time.Time) time.Time, err error) {
	written = strings.TrimSpace(written)
	lower := strings.ToLower(written)
	switch lower {
	case "now":
		return func(now time.Time) time.Time { return now }, nil
	case "noon":
		return nextClock(12, 0, 0), nil
	case "midnight", "tomorrow":
		return func(now time.Time) time.Time { return onDay(now, 1, 0, 0, 0) }, nil
	}
	if later, found := strings.CutPrefix(lower, "now+"); found {
		return fromNow(written, later)
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, written); err == nil {
			return nextClock(t.Hour(), t.Minute(), t.Second()), nil
		}
	}
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(written)); err == nil {
		return func(time.Time) time.Time { return t }, nil
	}
	for _, layout := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05"} {
		if t, err := time.Parse(layout, strings.ToUpper(written)); err == nil {
			return func(now time.Time) time.Time {
				return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			}, nil
		}
	}
	return nil, text.Mismatch(written, allowedBegin)
}

// unitWords are the units as words, with and without their s.
var unitWords = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

func fromNow(written, later string) (func(time.Time) time.Time, error) {
	after, err := text.ParseDuration(later)
	if count, word, ok := text.CutNumber(later); ok && err != nil {
		if nanos := count * float64(unitWords[strings.TrimSuffix(word, "s")]); nanos >= 1 && nanos <= float64(text.MaxDuration) {
			after, err = time.Duration(nanos), nil
		}
	}
	if err != nil {
		return nil, text.Mismatch(written, allowedBegin)
	}
	return func(now time.Time) time.Time { return now.Add(after) }, nil
}

// nextClock is the next time the clock shows this, today or tomorrow.
func nextClock(hour, minute, second int) func(time.Time) time.Time {
	return func(now time.Time) time.Time {
		today := onDay(now, 0, hour, minute, second)
		if today.Before(now) {
			return onDay(now, 1, hour, minute, second)
		}
		return today
	}
}

func onDay(now time.Time, days, hour, minute, second int) time.Time {
	return time.Date(now.Year(), now.Month(), now.Day()+days, hour, minute, second, 0, now.Location())
}
