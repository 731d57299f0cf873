package jobfile

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Bounds on what a number may say. They lie far outside any real machine and
// exist so that no later arithmetic can overflow.
const (
	maxSizeMiB  = 1 << 30 // one PiB
	maxDuration = 3650 * 24 * time.Hour
	maxGPUs     = 1024
)

const (
	allowedSize     = "a size above 0 in MiB, or with a unit M, G or T: 18432, 18G, 1.5GiB"
	allowedDuration = "a time above 0: 90 or 90s (seconds), 15m, 2h, 1d, 1:30 (m:s), 1:30:00 (h:m:s)"
	allowedGPUs     = "a whole number of GPUs from 0 to 1024, or a share of one GPU between 0 and 1"
)

// ParseSize reads an amount of memory. A bare number is MiB; M, G and T, with
// or without B or iB and in any case, are powers of 1024. Parts of a MiB are
// rounded up, so that a job never gets less than it asked for.
func ParseSize(s string) (mib int64, err error) {
	value, unit, ok := cutNumber(s)
	if !ok {
		return 0, mismatch(s, allowedSize)
	}
	switch strings.ToLower(unit) {
	case "", "m", "mb", "mib":
	case "g", "gb", "gib":
		value *= 1 << 10
	case "t", "tb", "tib":
		value *= 1 << 20
	default:
		return 0, mismatch(s, allowedSize)
	}
	value = math.Ceil(value)
	if value < 1 {
		return 0, mismatch(s, allowedSize)
	}
	if value > maxSizeMiB {
		return 0, mismatch(s, "at most 1024T")
	}
	return int64(value), nil
}

func formatSize(mib int64) string { return strconv.FormatInt(mib, 10) + "M" }

// ParseDuration reads a span of time: a number with s, m, h or d (seconds
// where there is no unit), or m:s, or h:m:s.
func ParseDuration(s string) (time.Duration, error) {
	if strings.Contains(s, ":") {
		return parseClock(s)
	}
	value, unit, ok := cutNumber(s)
	if !ok {
		return 0, mismatch(s, allowedDuration)
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
		return 0, mismatch(s, allowedDuration)
	}
	return boundDuration(s, math.Round(value))
}

func formatDuration(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// parseClock reads m:s and h:m:s. Only the first part may pass 59.
func parseClock(s string) (time.Duration, error) {
	parts := strings.Split(strings.TrimSpace(s), ":")
	if len(parts) > 3 {
		return 0, mismatch(s, allowedDuration)
	}
	seconds := 0.0
	for i, part := range parts {
		n, ok := digits(part, 9)
		if !ok || (i > 0 && (n > 59 || len(part) > 2)) {
			return 0, mismatch(s, allowedDuration)
		}
		seconds = seconds*60 + float64(n)
	}
	return boundDuration(s, seconds*float64(time.Second))
}

func boundDuration(s string, nanos float64) (time.Duration, error) {
	if nanos < 1 {
		return 0, mismatch(s, allowedDuration)
	}
	if nanos > float64(maxDuration) {
		return 0, mismatch(s, "at most 3650d")
	}
	return time.Duration(nanos), nil
}

// ParseGPUs reads how many GPUs a job wants: a whole count, 0 for none, or a
// share of one. There is no such thing as one and a half cards for a job, so
// a fraction above 1 is rounded up.
func ParseGPUs(s string) (count int, share float64, err error) {
	value, unit, ok := cutNumber(s)
	if !ok || unit != "" || value > maxGPUs {
		return 0, 0, mismatch(s, allowedGPUs)
	}
	if value > 0 && value < 1 {
		return 1, value, nil
	}
	return int(math.Ceil(value)), 0, nil
}

// cutNumber splits "1.5GiB" into its number and its unit. The number is plain
// decimals: no sign, no exponent, no hexadecimal.
func cutNumber(s string) (value float64, unit string, ok bool) {
	s = strings.TrimSpace(s)
	end := 0
	for end < len(s) && (s[end] == '.' || (s[end] >= '0' && s[end] <= '9')) {
		end++
	}
	const longest = 32 // more digits than any of the bounds needs
	if end == 0 || end > longest {
		return 0, "", false
	}
	value, err := strconv.ParseFloat(s[:end], 64)
	if err != nil {
		return 0, "", false
	}
	return value, strings.TrimSpace(s[end:]), true
}

// digits reads a number made of at most the given count of digits and
// nothing else.
func digits(s string, most int) (int, bool) {
	if s == "" || len(s) > most {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}
