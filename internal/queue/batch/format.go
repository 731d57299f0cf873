package batch

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"berth/internal/job/jobfile"
	"berth/internal/machine/modelfiles"
)

// Format is what a jobs file is written in.
type Format string

// The formats. ByName means lines, except that a file that looks like CSV is
// refused: a shell could not run it.
const (
	ByName Format = ""
	Lines  Format = "lines"
	CSV    Format = "csv"
)

// ParseFormat reads the name of a format; if it is empty, the file's name
// decides.
func ParseFormat(name, file string) (Format, error) {
	switch format := Format(strings.ToLower(name)); {
	case format == Lines || format == CSV:
		return format, nil
	case format != ByName:
		return "", fmt.Errorf("expected %s or %s, found %q", Lines, CSV, name)
	case strings.EqualFold(filepath.Ext(file), ".csv"):
		return CSV, nil
	}
	return ByName, nil
}

var errAmbiguous = errors.New("choose csv or lines with --format")

// parse reads a version of the jobs file.
func (s *Source) parse(text []byte) (jobfile.File, error) {
	switch {
	case s.opt.Format == CSV:
		return jobfile.ParseCSVFile(s.opt.File, text, s.table, s.opt.defaults())
	case s.opt.Format == ByName && jobfile.LooksLikeCSV(text):
		return jobfile.File{}, fmt.Errorf("%s: expected shell commands, found lines like %s: %w", s.opt.File, jobfile.CSVFields, errAmbiguous)
	}
	file, err := jobfile.Parse(s.opt.File, text, s.opt.defaults())
	if s.opt.AsGpusched {
		err = cmp.Or(theirMistakes(text), err)
	}
	if err == nil {
		err = modelfiles.Resolve(s.opt.Dir, s.opt.File, &file)
	}
	return file, err
}
