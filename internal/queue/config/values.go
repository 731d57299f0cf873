package config

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/internal/job/jobfile"
	"berth/internal/queue/notify"
	"berth/internal/text"
)

// A value arrives in the parser's own type: string, int64, float64, bool, a list
// or a table. Every reader below answers a bad one with what it expected and
// what it found.

// mismatch is the error for a bad value.
func mismatch(found any, allowed string) error {
	return fmt.Errorf("expected %s, found %s", allowed, shown(found))
}

// shown is a value as the user wrote it, shortened.
func shown(value any) string {
	const most = 60
	switch v := value.(type) {
	case string:
		return text.Quote(v, most)
	case int64, float64, bool:
		return fmt.Sprint(v)
	case time.Time:
		return "a date"
	case map[string]any:
		return "a table"
	}
	return "a list"
}

const (
	allowedSize     = "0 or more MiB, or a size with a unit M, G or T: 512, \"1G\", \"1.5GiB\""
	allowedDuration = "a time: 90 or \"90s\" (seconds), \"15m\", \"2h\", \"7d\", \"1:30:00\" (h:m:s)"
	allowedIDs      = "GPU ids: \"0-3,5\", or [0, 1, 3]"
)

// readSize reads MiB, or a size with a unit.
func readSize(value any) (mib int64, err error) {
	written, ok := numberOrText(value)
	if !ok {
		return 0, mismatch(value, allowedSize)
	}
	if isZero(written) {
		return 0, nil
	}
	if mib, err = text.ParseSize(written); err != nil {
		return 0, mismatch(value, allowedSize)
	}
	return mib, nil
}

// readBytes reads a size and returns bytes; none allows 0 for no limit.
func readBytes(lowMiB, highMiB int64, none bool) func(any) (int64, error) {
	return func(value any) (int64, error) {
		mib, err := readSize(value)
		if err != nil {
			return 0, err
		}
		if mib == 0 && none {
			return 0, nil
		}
		if mib < lowMiB || mib > highMiB {
			allowed := fmt.Sprintf("a size from %dM to %dM", lowMiB, highMiB)
			if none {
				allowed += ", or 0 for no limit"
			}
			return 0, mismatch(value, allowed)
		}
		return mib << 20, nil
	}
}

// readDuration reads a duration of at least low; 0 is accepted if none says what
// it means.
func readDuration(low time.Duration, none string) func(any) (time.Duration, error) {
	allowed := allowedDuration
	if low > time.Nanosecond {
		allowed += fmt.Sprintf(", at least %v", low)
	}
	if none != "" {
		allowed += ", or 0: " + none
	}
	return func(value any) (time.Duration, error) {
		written, ok := numberOrText(value)
		if !ok {
			return 0, mismatch(value, allowed)
		}
		if isZero(written) && none != "" {
			return 0, nil
		}
		d, err := text.ParseDuration(written)
		if err != nil || d < low {
			return 0, mismatch(value, allowed)
		}
		return d, nil
	}
}

// readBypass reads the overtake limit, of at least a second.
func readBypass(value any) (time.Duration, error) {
	if value == "never" {
		return 0, nil
	}
	return readDuration(time.Second, "no limit (also \"never\")")(value)
}

func numberOrText(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

// isZero reports a plain 0, with or without a unit: "0", "0d", "0.0".
func isZero(text string) bool {
	digits := strings.TrimRightFunc(strings.TrimSpace(text), unicode.IsLetter)
	number, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	return err == nil && number == 0
}

// readCount reads a whole number.
func readCount(low, high int64) func(any) (int, error) {
	return func(value any) (int, error) {
		n, ok := value.(int64)
		if !ok || n < low || n > high {
			return 0, mismatch(value, fmt.Sprintf("a whole number from %d to %d", low, high))
		}
		return int(n), nil
	}
}

// readNumber reads a number with or without a fraction. NaN is in no range.
func readNumber(low, high float64) func(any) (float64, error) {
	return func(value any) (float64, error) {
		n := math.NaN()
		switch v := value.(type) {
		case int64:
			n = float64(v)
		case float64:
			n = v
		}
		if !(n >= low && n <= high) {
			return 0, mismatch(value, fmt.Sprintf("a number from %v to %v", low, high))
		}
		return n, nil
	}
}

func readFlag(value any) (bool, error) {
	b, ok := value.(bool)
	if !ok {
		return false, mismatch(value, "true or false")
	}
	return b, nil
}

// readWord reads one of a few words.
func readWord[T ~string](known ...T) func(any) (T, error) {
	return func(value any) (T, error) {
		text, ok := value.(string)
		if !ok || !slices.Contains(known, T(text)) {
			quoted := make([]string, len(known))
			for i, k := range known {
				quoted[i] = strconv.Quote(string(k))
			}
			return "", mismatch(value, strings.Join(quoted, " or "))
		}
		return T(text), nil
	}
}

// readText reads a short text that good accepts; an empty one switches the
// setting off.
func readText(allowed string, good func(string) bool) func(any) (string, error) {
	const longest = 1024
	return func(value any) (string, error) {
		s, ok := value.(string)
		if !ok || len(s) > longest || (s != "" && !good(s)) {
			return "", mismatch(value, allowed)
		}
		return s, nil
	}
}

// isName accepts the names of users, groups and hosts.
func isName(s string) bool {
	return s != "" && len(s) <= 255 && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == '/' || r == ':'
	})
}

func readIDs(value any) ([]int, error) {
	parts, isList := value.([]any)
	if !isList {
		parts = []any{value}
	}
	words := make([]string, len(parts))
	for i, part := range parts {
		switch v := part.(type) {
		case string:
			words[i] = v
		case int64:
			words[i] = strconv.FormatInt(v, 10)
		default:
			return nil, mismatch(value, allowedIDs)
		}
	}
	found, err := jobfile.ParseIDs(strings.Join(words, ","))
	if err != nil {
		return nil, mismatch(strings.Join(words, ","), allowedIDs)
	}
	slices.Sort(found)
	return found, nil
}

func readNames(value any) ([]string, error) {
	const most, allowed = 100, "a list of up to 100 host names: [\"gpu1.example.org\"]"
	list, ok := value.([]any)
	if !ok || len(list) > most {
		return nil, mismatch(value, allowed)
	}
	var found []string
	for _, part := range list {
		name, ok := part.(string)
		if !ok || !isName(name) {
			return nil, mismatch(part, allowed)
		}
		found = append(found, name)
	}
	return found, nil
}

// readTargets reads whom administrators' messages go to. A bad target is not
// repeated: it may be a secret.
func readTargets(value any) ([]string, error) {
	const allowed = "a list of up to 8 targets: [\"mailto:admin@example.org\"]"
	list, ok := value.([]any)
	if !ok || len(list) > notify.MaxRules {
		return nil, mismatch(value, allowed)
	}
	var found []string
	for _, part := range list {
		written, ok := part.(string)
		if !ok {
			return nil, mismatch(part, allowed)
		}
		target, err := notify.ParseTarget(written)
		if err != nil {
			return nil, err
		}
		found = append(found, target.String())
	}
	return found, nil
}

// isServer accepts HOST:PORT, and nothing.
func isServer(s string) bool {
	host, port, found := cutLast(s, ":")
	number, err := strconv.ParseUint(port, 10, 16)
	return s == "" || found && host != "" && err == nil && number > 0
}

// isLogin accepts a name without control characters, and nothing.
func isLogin(s string) bool {
	return len(s) <= 256 && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// isAddress accepts an address that mail can be sent from.
func isAddress(s string) bool {
	_, err := notify.ParseTarget("mailto:" + s)
	return err == nil
}

// Bounds on values: beyond what any machine needs, and within what berth can
// keep in memory.
const (
	million         = 1_000_000
	maxEnvironMiB   = 4 // a request to the API may be a little larger
	maxTextMiB      = 1 << 20
	maxLogMiB       = 1 << 30
	maxMetricsUsers = 1000
	maxCPUs         = 1 << 16 // as many as a job may ask for
	shortestPoll    = 10 * time.Millisecond
	shortestHistory = time.Minute
	shortestIdle    = time.Second
	shortestRun     = time.Second
)

// absolute reports whether a path does not depend on where the daemon was
// started.
func absolute(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }
