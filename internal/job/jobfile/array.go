package jobfile

import (
	"fmt"
	"slices"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

const (
	maxIndex      = 1 << 30
	maxArrayParts = 100_000
)

const allowedArray = "indices such as 0-99, 1,3,5-9, 0-20:5 (a step) or 0-99%4 (four at a time)"

// Array is one spec for many tasks, of which at most Limit run at a time (0:
// as many as fit). The indices keep the order in which they were written.
type Array struct {
	Indices []int
	Limit   int
	Step    int // of the last range that has one, as in Slurm
}

// Shape sums the indices up.
func (a *Array) Shape() job.ArrayShape {
	return job.ArrayShape{Tasks: len(a.Indices), Min: slices.Min(a.Indices), Max: slices.Max(a.Indices), Step: a.Step}
}

// span is one part of an array: from, to, and the step between.
type span struct{ from, to, step int }

func (s span) count() int { return (s.to-s.from)/s.step + 1 }

// ParseArray reads "0-99%4", "1,3,5-9" or "0-20:5%2". It counts the tasks
// before it makes the list, and refuses more than max.
func ParseArray(written string, max int) (Array, error) {
	spans, limit, err := arraySpans(written)
	if err != nil {
		return Array{}, err
	}
	count := 0
	for _, s := range spans {
		if count += s.count(); count > max {
			return Array{}, fmt.Errorf("expected at most %d tasks in one array, found more in %s", max, text.Found(written))
		}
	}
	array := Array{Indices: make([]int, 0, count), Limit: limit, Step: 1}
	seen := make(map[int]bool, count)
	for _, s := range spans {
		if s.step > 1 {
			array.Step = s.step
		}
		for index := s.from; index <= s.to; index += s.step {
			if seen[index] {
				return Array{}, fmt.Errorf("expected each index once, found %d twice in %s", index, text.Found(written))
			}
			seen[index] = true
			array.Indices = append(array.Indices, index)
		}
	}
	return array, nil
}

func arraySpans(written string) (spans []span, limit int, err error) {
	list, most, limited := strings.Cut(written, "%")
	if limited {
		n, ok := text.Digits(strings.TrimSpace(most), 10)
		if !ok || n < 1 || n > maxIndex {
			return nil, 0, fmt.Errorf("expected a number of tasks to run at a time after %%, as in 0-99%%4; found %s", text.Found(most))
		}
		limit = n
	}
	for part := range strings.SplitSeq(list, ",") {
		s, ok := cutSpan(strings.TrimSpace(part))
		if !ok {
			if bounds, _, _ := strings.Cut(part, ":"); backwards(strings.TrimSpace(bounds)) {
				return nil, 0, text.Mismatch(written, "a range from low to high")
			}
			return nil, 0, text.Mismatch(written, allowedArray)
		}
		if len(spans) == maxArrayParts {
			return nil, 0, fmt.Errorf("expected at most %d parts, found more", maxArrayParts)
		}
		spans = append(spans, s)
	}
	return spans, limit, nil
}

func cutSpan(part string) (s span, ok bool) {
	bounds, step, stepped := strings.Cut(part, ":")
	low, high, isRange := strings.Cut(bounds, "-")
	s.step = 1
	if s.from, ok = text.Digits(low, 10); !ok {
		return s, false
	}
	s.to = s.from
	if isRange {
		s.to, ok = text.Digits(high, 10)
	}
	if stepped && ok {
		s.step, ok = text.Digits(step, 10)
	}
	return s, ok && (isRange || !stepped) && s.step > 0 && s.from <= s.to && s.to <= maxIndex
}
