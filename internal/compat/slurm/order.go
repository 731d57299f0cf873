package slurm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/text"
)

// key is one letter of squeue --sort.
type key struct {
	field   *field
	reverse bool
}

// sortKeys reads "-p,i" and "-pi".
func sortKeys(letters string) (keys []key, err error) {
	fields, reverse := jobFields(), false
	for i := range len(letters) {
		switch letter := letters[i]; letter {
		case ',', '+':
			reverse = false
		case '-':
			reverse = true
		default:
			at := slices.IndexFunc(fields, func(f field) bool { return f.letter == letter })
			if at < 0 {
				return nil, text.Mismatch(letters, "letters of --format")
			}
			keys, reverse = append(keys, key{&fields[at], reverse}), false
		}
	}
	return keys, nil
}

// order sorts a list by its columns. Without keys it stays as it is.
func order(a *asker, entries []entry, keys []key) {
	if len(keys) == 0 {
		return
	}
	type row struct {
		entry
		values []string
	}
	rows := make([]row, len(entries))
	for i := range entries { // a value may have to be asked for, so it is made once
		rows[i].entry = entries[i]
		for _, k := range keys {
			rows[i].values = append(rows[i].values, k.field.value(a, &entries[i]))
		}
	}
	slices.SortStableFunc(rows, func(x, y row) int {
		for i, k := range keys {
			c := compare(k.field, &x.entry, &y.entry, x.values[i], y.values[i])
			if k.reverse {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	for i := range rows {
		entries[i] = rows[i].entry
	}
}

// compare orders two values of a column: states as Slurm counts them, numbers,
// ids and durations by size, other words by their letters.
func compare(f *field, x, y *entry, a, b string) int {
	if f.letter == 't' || f.letter == 'T' {
		return cmp.Compare(stateRank(x), stateRank(y))
	}
	if c := slices.Compare(size(a), size(b)); size(a) != nil && size(b) != nil {
		return c
	}
	return cmp.Compare(a, b)
}

func stateRank(e *entry) int {
	_, short := state(&e.View)
	return slices.Index([]string{"PD", "R", "S", "CD", "CA", "F", "TO", "NF", "OOM"}, short)
}

// size is a value as numbers to compare, or nil if it is a word.
func size(value string) []int64 {
	if value == "UNLIMITED" {
		return []int64{1 << 62}
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return []int64{n}
	}
	if d, ok := duration(value); ok {
		return []int64{int64(d / time.Second)}
	}
	array, task, isTask := strings.Cut(value, "_") // 17_3, 17_[4-9%2]
	first := strings.TrimPrefix(task, "[")
	first = first[:len(first)-len(strings.TrimLeft(first, "0123456789"))]
	n, err := strconv.ParseInt(array, 10, 64)
	m, isNumber := text.Digits(first, 10)
	if err != nil || !isTask || !isNumber {
		return nil
	}
	return []int64{n, int64(m)}
}

// duration reads what clock writes.
func duration(value string) (d time.Duration, ok bool) {
	rest := value
	if before, after, long := strings.Cut(value, "-"); long {
		days, whole := text.Digits(before, 6)
		if !whole {
			return 0, false
		}
		d, rest = time.Duration(days)*24*time.Hour, after
	}
	parts := strings.Split(rest, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, false
	}
	seconds := 0
	for _, part := range parts {
		n, whole := text.Digits(part, 6)
		if !whole {
			return 0, false
		}
		seconds = seconds*60 + n
	}
	return d + time.Duration(seconds)*time.Second, true
}
