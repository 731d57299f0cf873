package text

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Span writes a time compactly: 3s, 4m12s, 2h05m, 3d4h.
func Span(d time.Duration) string {
	seconds := int64(max(d, 0) / time.Second) // the clock may have been set back
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

// Brief writes a duration without trailing zeros: 2h, 30m, 1h30m, 45s, 7d.
func Brief(d time.Duration) string {
	d = d.Round(time.Second)
	text := ""
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / unit.length; n > 0 {
			text += fmt.Sprintf("%d%s", n, unit.name)
			d %= unit.length
		}
	}
	return cmp.Or(text, "0s")
}

// Seconds writes a time in seconds: "2.3s", "74s", "1774s".
func Seconds(d time.Duration) string {
	d = max(d, 0)
	if d < 10*time.Second {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return strconv.FormatInt(int64(d.Round(time.Second)/time.Second), 10) + "s"
}

// Clock writes a time as m:ss or h:mm:ss.
func Clock(d time.Duration) string {
	total := int64(max(d, 0) / time.Second)
	if total >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", total/3600, total/60%60, total%60)
	}
	return fmt.Sprintf("%d:%02d", total/60, total%60)
}

// Hours writes a time in hours (48h, 1.5h), or in minutes below an hour.
func Hours(d time.Duration) string {
	switch {
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 10*time.Hour:
		return Decimal(math.Floor(d.Hours()*10)/10) + "h"
	}
	return fmt.Sprintf("%dh", d/time.Hour)
}

// OfSeconds is the duration of a number of seconds.
func OfSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// MaxDuration is the longest time that is read. No job comes near it, and no later
// arithmetic can overflow.
const MaxDuration = 3650 * 24 * time.Hour

const expectedDuration = "a duration above 0, such as 90 (seconds), 15m, 2h, 1d or 1:30:00"

// ParseDuration parses a number with s, m, h or d (seconds without a unit), m:s
// or h:m:s.
func ParseDuration(s string) (time.Duration, error) {
	if strings.Contains(s, ":") {
		return parseClock(s)
	}
	value, unit, ok := CutNumber(s)
	if !ok {
		return 0, Mismatch(s, expectedDuration)
	}
	switch strings.ToLower(unit) {
	case "", "s":
		value *= float64(time.Second)
	case "m":
		value *= float64(time.Minute)
	case "h":
		value *= float64(time.Hour)
	case "d":
		value *= float64(24 * time.Hour)
	default:
		return 0, Mismatch(s, expectedDuration)
	}
	return boundDuration(s, math.Round(value))
}

// parseClock parses m:s and h:m:s. Only the first part may exceed 59.
func parseClock(s string) (time.Duration, error) {
	parts := strings.Split(strings.TrimSpace(s), ":")
	if len(parts) > 3 {
		return 0, Mismatch(s, expectedDuration)
	}
	seconds := 0.0
	for i, part := range parts {
		n, ok := Digits(part, 9)
		if !ok || (i > 0 && (n > 59 || len(part) > 2)) {
			return 0, Mismatch(s, expectedDuration)
		}
		seconds = seconds*60 + float64(n)
	}
	return boundDuration(s, seconds*float64(time.Second))
}

func boundDuration(s string, nanos float64) (time.Duration, error) {
	if nanos < 1 {
		return 0, Mismatch(s, expectedDuration)
	}
	if nanos > float64(MaxDuration) {
		return 0, Mismatch(s, "at most 3650d")
	}
	return time.Duration(nanos), nil
}

// FormatDuration writes a time that ParseDuration reads back.
func FormatDuration(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
