package jobfile

import (
	"fmt"
	"strconv"
	"strings"

	"berth/internal/text"
)

const (
	maxSelected  = 100_000 // ids and ranges of one command
	maxIDDigits  = 15
	maxLastSteps = 1_000_000
)

const allowedSelection = "job ids such as 7, 1-3,7, 17_0 or 17_0-3, names such as train or 'sweep-*', @ for your last job, @~1 for the one before, or all"

// Selection is the jobs a command applies to. An id may be that of a whole
// array, which only the daemon can tell.
type Selection struct {
	IDs    []string // "7", "17_0"
	Ranges []Range
	Names  []string // patterns; only the daemon knows which jobs they match
	Last   []int    // @ is 0, @~1 is 1
	All    bool
}

// Range is a range of ids, both ends included: of jobs ("1-3"), or of the
// tasks of one array ("17_0-3").
type Range struct {
	Array    string // empty: jobs
	From, To int64
}

// Empty reports whether nothing was selected.
func (s Selection) Empty() bool {
	return !s.All && len(s.IDs) == 0 && len(s.Ranges) == 0 && len(s.Names) == 0 && len(s.Last) == 0
}

// ParseSelection reads the ids and names a command was given, each word a list. A
// job named twice is selected once.
func ParseSelection(words []string) (Selection, error) {
	var s Selection
	seen := map[any]bool{}
	for _, word := range words {
		for part := range strings.SplitSeq(word, ",") {
			if !s.add(strings.TrimSpace(part), seen) {
				if backwards(part) {
					return Selection{}, text.Mismatch(part, "a range from low to high")
				}
				return Selection{}, text.Mismatch(part, allowedSelection)
			}
			if len(seen) > maxSelected {
				return Selection{}, fmt.Errorf("expected at most %d ids, found more: use ranges", maxSelected)
			}
		}
	}
	if s.All && len(seen) > 0 {
		return Selection{}, fmt.Errorf("expected all alone, found other ids beside it")
	}
	return s, nil
}

func (s *Selection) add(part string, seen map[any]bool) bool {
	if strings.EqualFold(part, "all") {
		s.All = true
		return true
	}
	if back, ok := parseLast(part); ok {
		s.Last = appendNew(s.Last, back, seen)
		return true
	}
	if isName(part) {
		s.Names = appendNew(s.Names, part, seen)
		return true
	}
	if low, high, isRange := strings.Cut(part, "-"); isRange {
		r, ok := cutRange(low, high)
		s.Ranges = appendNew(s.Ranges, r, seen)
		return ok
	}
	id, ok := parseJobID(part)
	s.IDs = appendNew(s.IDs, id, seen)
	return ok
}

// isName reports whether a word can only be a name: it has a character that no id
// has.
func isName(word string) bool {
	if _, err := parseName(word); err != nil || word[0] == '@' {
		return false
	}
	return strings.ContainsFunc(word, func(c rune) bool { return !strings.ContainsRune("0123456789-_~ ", c) })
}

func appendNew[T comparable](list []T, item T, seen map[any]bool) []T {
	if seen[item] {
		return list
	}
	seen[item] = true
	return append(list, item)
}

func cutRange(low, high string) (r Range, ok bool) {
	if array, task, isTask := strings.Cut(low, "_"); isTask {
		base, ok := text.Digits(array, maxIDDigits)
		if !ok {
			return r, false
		}
		r.Array, low = strconv.Itoa(base), task
	}
	from, ok := text.Digits(low, maxIDDigits)
	to, ok2 := text.Digits(high, maxIDDigits)
	r.From, r.To = int64(from), int64(to)
	return r, ok && ok2 && from <= to
}

// backwards reports whether a range such as 5-2 or 17_5-2 has its higher end first.
func backwards(part string) bool {
	low, high, isRange := strings.Cut(part, "-")
	_, swapped := cutRange(high, low)
	if array, task, isTask := strings.Cut(low, "_"); isTask {
		_, swapped = cutRange(array+"_"+high, task)
	}
	return isRange && swapped
}

// parseJobID reads "17" or "17_3" and returns it without leading zeros.
func parseJobID(word string) (id string, ok bool) {
	job, task, isTask := strings.Cut(word, "_")
	base, ok := text.Digits(job, maxIDDigits)
	if !ok || !isTask {
		return strconv.Itoa(base), ok
	}
	index, ok := text.Digits(task, maxIDDigits)
	return strconv.Itoa(base) + "_" + strconv.Itoa(index), ok
}

// parseLast reads "@", the caller's last job, or "@~N", the Nth before it.
func parseLast(word string) (back int, ok bool) {
	if word == "@" {
		return 0, true
	}
	steps, found := strings.CutPrefix(word, "@~")
	if !found {
		return 0, false
	}
	back, ok = text.Digits(steps, 7)
	return back, ok && back <= maxLastSteps
}

func lastWord(back int) string {
	if back == 0 {
		return "@"
	}
	return "@~" + strconv.Itoa(back)
}
