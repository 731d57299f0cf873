package jobfile

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"

	"berth/internal/job"
	"berth/internal/text"
)

// ParseCSVFile reads a CSV jobs file as Parse reads one of shell lines. A line
// is identified by its script, environment and arguments, and by how many equal
// lines precede it; not by its priority or GPUs.
func ParseCSVFile(name string, text []byte, sizes Sizes, defaults job.Spec) (File, error) {
	jobs, err := ParseCSV(name, text)
	errs := &Errors{}
	errors.As(err, &errs)
	file := File{Lines: make([]*Line, 0, len(jobs)), Unterminated: unterminated(text)}
	occurrences := make(map[string]int, len(jobs))
	for _, j := range jobs {
		spec, err := j.Spec(sizes)
		if err != nil {
			errs.Add(name, j.Line, err.Error())
			continue
		}
		spec.Retries, spec.Batch = defaults.Retries, defaults.Batch
		content := j.Key()
		occurrences[content]++
		file.Lines = append(file.Lines, &Line{
			Number: j.Line, Command: spec.Command(), Spec: spec,
			Key: content + "#" + strconv.Itoa(occurrences[content]), Occurrence: occurrences[content],
		})
	}
	if len(errs.Problems) > 0 {
		slices.SortStableFunc(errs.Problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
		return file, errs
	}
	return file, nil
}

// unterminated reports whether the last line is a job without its newline.
func unterminated(text []byte) bool {
	last := trim(text[bytes.LastIndexByte(text, '\n')+1:])
	return len(last) > 0 && last[0] != '#'
}

// csvStart is a priority and a comma; no shell command starts like that.
var csvStart = text.Pattern(`^"?[+-]?[0-9]+"?[ \t]*,`)

// LooksLikeCSV reports whether every job of a file starts like a line of CSV.
func LooksLikeCSV(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	found := false
	for len(text) > 0 {
		raw, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		if raw = trim(raw); len(raw) == 0 || raw[0] == '#' {
			continue
		}
		if !csvStart().Match(raw) {
			return false
		}
		found = true
	}
	return found
}
