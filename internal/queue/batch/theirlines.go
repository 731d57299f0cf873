package batch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"berth/internal/job/jobfile"
)

// theirMistakes are the lines that gpusched would refuse, in its words. A line with
// berth's own keys is one: the file would not run under gpusched any more.
func theirMistakes(file []byte) error {
	var bad jobfile.Errors
	number := 0
	for line := range bytes.Lines(file) {
		number++
		if err := theirMistake(string(bytes.TrimSpace(line))); err != nil {
			bad.Add("", 0, fmt.Sprintf("jobs file line %d: %v", number, err))
		}
	}
	if len(bad.Problems) == 0 {
		return nil
	}
	return &bad
}

func theirMistake(line string) error {
	if !jobfile.OpensBlock(line) {
		return nil
	}
	block, command, closed := strings.Cut(line[1:], "]")
	switch {
	case !closed:
		return errors.New("unterminated '[...]' attribute block")
	case strings.TrimSpace(command) == "":
		return errors.New("attribute block present but command is empty")
	}
	for _, word := range strings.Fields(block) {
		key, value, pair := strings.Cut(word, "=")
		switch key = strings.ToLower(key); {
		case !pair && key != "cancel":
			return fmt.Errorf("malformed attribute '%s' (expected key=value, or bare 'cancel')", word)
		case pair:
			if err := theirAttribute(key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func theirAttribute(key, value string) error {
	switch key {
	case "vram":
		mib, ok := theirAmount(value, "", "m", "mb", "mib")
		if !ok {
			mib, ok = theirAmount(value, "g", "gb", "gib")
			mib *= 1024
		}
		switch {
		case !ok:
			return fmt.Errorf("cannot parse vram value '%s' (use MiB or a G/GiB suffix)", value)
		case math.RoundToEven(mib) == 0:
			return fmt.Errorf("vram must be positive, got '%s'", value)
		}
	case "timeout":
		switch n, ok := theirAmount(value, "", "s", "m", "h", "d"); {
		case !ok:
			return fmt.Errorf("cannot parse duration '%s' (use s/m/h/d)", value)
		case n == 0:
			return fmt.Errorf("timeout must be positive, got '%s'", value)
		}
	case "gpus", "retries":
		least := map[string]int{"gpus": 1}[key]
		switch n, err := strconv.Atoi(value); {
		case err != nil:
			return fmt.Errorf("%s must be an integer, got '%s'", key, value)
		case n < least:
			return fmt.Errorf("%s must be >= %d, got %d", key, least, n)
		}
	default:
		return fmt.Errorf("unknown attribute '%s' (known: vram, gpus, timeout, retries, cancel)", key)
	}
	return nil
}

// theirAmount reads digits, perhaps with a fraction, and one of the units.
func theirAmount(value string, units ...string) (n float64, ok bool) {
	value = strings.ToLower(value)
	digits := strings.TrimRight(value, "abcdefghijklmnopqrstuvwxyz")
	whole, fraction, point := strings.Cut(digits, ".")
	decimal := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !decimal(whole) || point && !decimal(fraction) || !slices.Contains(units, value[len(digits):]) {
		return 0, false
	}
	n, err := strconv.ParseFloat(digits, 64)
	return n, err == nil
}
