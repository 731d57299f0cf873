package text

import (
	"math"
	"strconv"
	"strings"
)

// GiB writes an amount of memory in GiB: "17.5".
func GiB(mib int64) string { return strconv.FormatFloat(float64(mib)/1024, 'f', 1, 64) }

// MaxSizeMiB is the largest size that is read. No machine comes near it, and no later
// arithmetic can overflow.
const MaxSizeMiB = 1 << 30 // one PiB

// ExpectedSize describes what ParseSize takes.
const ExpectedSize = "a size above 0, such as 18432 (MiB), 18G or 1.5T"

// ParseSize parses an amount of memory. A bare number is MiB; M, G and T, with or
// without B or iB and in any case, are powers of 1024. A fraction of a MiB is
// rounded up, so that a job never gets less than it requested.
func ParseSize(s string) (mib int64, err error) {
	value, unit, ok := CutNumber(s)
	if !ok {
		return 0, Mismatch(s, ExpectedSize)
	}
	switch strings.ToLower(unit) {
	case "", "m", "mb", "mib":
	case "g", "gb", "gib":
		value *= 1 << 10
	case "t", "tb", "tib":
		value *= 1 << 20
	default:
		return 0, Mismatch(s, ExpectedSize)
	}
	value = math.Ceil(value)
	if value < 1 {
		return 0, Mismatch(s, ExpectedSize)
	}
	if value > MaxSizeMiB {
		return 0, Mismatch(s, "at most 1024T")
	}
	return int64(value), nil
}

// FormatSize writes a size that ParseSize reads back.
func FormatSize(mib int64) string { return strconv.FormatInt(mib, 10) + "M" }

// CutNumber splits "1.5GiB" into its number and its unit. The number is plain
// decimals: no sign, no exponent, no hexadecimal.
func CutNumber(s string) (value float64, unit string, ok bool) {
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

// Digits parses a number that consists of at most that many digits.
func Digits(s string, most int) (int, bool) {
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
