package cli

import (
	"fmt"
	"time"

	"berth/internal/text"
	"berth/internal/text/problem"
)

// parseWhen parses a time in the past: how long ago (2h, 7d), or a local date or
// time.
func parseWhen(flag, written string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, written, now.Location()); err == nil {
			return t, nil
		}
	}
	if ago, err := text.ParseDuration(written); err == nil {
		return now.Add(-ago), nil
	}
	return time.Time{}, problem.Newf(problem.Invalid, fmt.Sprintf("for example: --%s 7d", flag), "--%s: expected how long ago (90m, 7d) or a time (2026-03-01, 2026-03-01T16:00), found %q", flag, written)
}

// optionalWhen is parseWhen for a flag that may be left out.
func optionalWhen(flag, text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	t, err := parseWhen(flag, text, now)
	return &t, err
}
