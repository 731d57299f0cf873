package sweep

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"berth/internal/job"
	"berth/internal/text"
)

// Axis is parameters that vary together: one, or the columns of a file.
type Axis struct {
	Names []string   `json:"names" minItems:"1" doc:"of the parameters"`
	Rows  [][]string `json:"rows" minItems:"1" doc:"the values of each trial, in the order of the names"`
}

// Bounds on a sweep. The daemon has its own on the number of trials.
const (
	maxParams    = 100
	maxNameBytes = 64
	maxValue     = 64 << 10
	maxTrials    = 1_000_000
)

// ParseAxis reads lr=1e-3,1e-4 or seed=0-4: the value of --param.
func ParseAxis(written string) (Axis, error) {
	name, list, found := strings.Cut(written, "=")
	if !found || !isName(name) {
		return Axis{}, text.Mismatch(written, "NAME=VALUE,VALUE,... as in lr=1e-3,1e-4 or seed=0-4")
	}
	rows, rest, err := CutValues(list, "")
	if err == nil && rest != "" {
		err = errors.New("expected a comma after a closing quote, found " + text.Found(rest))
	}
	if err != nil {
		return Axis{}, fmt.Errorf("%s: %w", name, err)
	}
	return Axis{Names: []string{name}, Rows: rows}, nil
}

// CutValues reads values up to the end of the text, or to one of the bytes of stop
// that is not in quotes. A value is plain text, a range of whole numbers, or text in
// quotes, which may have commas.
func CutValues(list, stop string) (rows [][]string, rest string, err error) {
	for {
		var value string
		quoted := list != "" && (list[0] == '"' || list[0] == '\'')
		if quoted {
			var closed bool
			if value, list, closed = text.Unquote(list); !closed {
				return nil, "", errors.New("expected a closing quote, found the end")
			}
		} else {
			end := strings.IndexAny(list, ","+stop)
			if end < 0 {
				end = len(list)
			}
			value, list = list[:end], list[end:]
			if value == "" {
				return nil, "", errors.New("expected a value, found nothing (write '' for an empty one)")
			}
		}
		if rows, err = addValue(rows, value, quoted); err != nil {
			return nil, "", err
		}
		if list == "" || list[0] != ',' {
			return rows, list, nil
		}
		list = list[1:]
	}
}

func addValue(rows [][]string, value string, quoted bool) ([][]string, error) {
	from, to, step, isRange := cutRange(value)
	switch {
	case !isRange || quoted:
		return append(rows, []string{value}), nil
	case from > to:
		return nil, fmt.Errorf("expected a range from low to high, found %s (put text in quotes)", text.Found(value))
	case (to-from)/step >= maxTrials:
		return nil, fmt.Errorf("expected at most %d values, found %s", maxTrials, text.Found(value))
	}
	width := 0
	if value[0] == '0' {
		width = strings.IndexByte(value, '-') // 001-010
	}
	for n := from; n <= to; n += step {
		rows = append(rows, []string{fmt.Sprintf("%0*d", width, n)})
	}
	return rows, nil
}

// cutRange reads 0-4 and 0-20:5.
func cutRange(value string) (from, to, step int, ok bool) {
	bounds, by, stepped := strings.Cut(value, ":")
	low, high, isRange := strings.Cut(bounds, "-")
	if from, ok = text.Digits(low, 10); !isRange || !ok {
		return 0, 0, 0, false
	}
	if to, ok = text.Digits(high, 10); !ok {
		return 0, 0, 0, false
	}
	step = 1
	if stepped {
		step, ok = text.Digits(by, 10)
	}
	return from, to, step, ok && step > 0
}

// isName reports whether a parameter can be called this. Dots and dashes are common
// in the options of programs.
func isName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r != '.' && r != '-' && (r < '0' || r > '9')) {
			return false
		}
	}
	return name != "" && len(name) <= maxNameBytes
}

// ReadGrid reads a CSV file with a row of names: each further row is a trial.
func ReadGrid(content string) (Axis, error) {
	r := csv.NewReader(strings.NewReader(strings.TrimPrefix(content, "\ufeff")))
	names, err := r.Read()
	if errors.Is(err, io.EOF) {
		return Axis{}, errors.New("expected a row with the names of the parameters, found nothing")
	}
	if err != nil {
		return Axis{}, err
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	a := Axis{Names: names}
	for {
		row, err := r.Read()
		switch {
		case errors.Is(err, io.EOF) && len(a.Rows) == 0:
			return a, errors.New("expected rows of values below the names, found none")
		case errors.Is(err, io.EOF):
			return a, nil
		case errors.Is(err, csv.ErrFieldCount):
			line, _ := r.FieldPos(0)
			return a, fmt.Errorf("line %d: expected %s, found %d", line, text.Count(len(names), "value"), len(row))
		case err != nil:
			return a, err
		case len(a.Rows) == maxTrials:
			return a, fmt.Errorf("expected at most %d rows, found more", maxTrials)
		}
		a.Rows = append(a.Rows, row)
	}
}

// names are the parameters of all axes, in order.
func names(axes []Axis) (all []string) {
	for _, a := range axes {
		all = append(all, a.Names...)
	}
	return all
}

// Trials are the product of the axes, the first of which varies slowest. None is
// there twice.
func Trials(axes []Axis, most int) ([][]job.Param, error) {
	count := 1
	seen := map[string]bool{}
	for _, a := range axes {
		for _, name := range a.Names {
			if !isName(name) {
				return nil, fmt.Errorf("expected the name of a parameter (letters, digits, _ . and -), found %s", text.Found(name))
			}
			if seen[name] {
				return nil, fmt.Errorf("expected each parameter once, found %s twice", name)
			}
			seen[name] = true
		}
		if err := checkRows(a); err != nil {
			return nil, err
		}
		if count *= len(a.Rows); count > min(most, maxTrials) {
			return nil, fmt.Errorf("expected at most %d trials, found more", min(most, maxTrials))
		}
	}
	if len(seen) == 0 || len(seen) > maxParams {
		return nil, fmt.Errorf("expected 1 to %d parameters, found %d", maxParams, len(seen))
	}
	trials := make([][]job.Param, count)
	for i := range trials {
		trials[i] = make([]job.Param, 0, len(seen))
		for k, left := 0, i; k < len(axes); k++ {
			stride := 1
			for _, a := range axes[k+1:] {
				stride *= len(a.Rows)
			}
			row := axes[k].Rows[left/stride]
			left %= stride
			for c, name := range axes[k].Names {
				trials[i] = append(trials[i], job.Param{Name: name, Value: row[c]})
			}
		}
	}
	return trials, nil
}

func checkRows(a Axis) error {
	if len(a.Names) == 0 || len(a.Rows) == 0 {
		return errors.New("expected a parameter with at least one value, found none")
	}
	seen := map[string]bool{}
	for i, row := range a.Rows {
		if len(row) != len(a.Names) {
			return fmt.Errorf("expected %s in each row, found %d", text.Count(len(a.Names), "value"), len(row))
		}
		key := ""
		for c, value := range row {
			if len(value) > maxValue || strings.IndexByte(value, 0) >= 0 || !utf8.ValidString(value) {
				return fmt.Errorf("%s: expected values of up to %d bytes of UTF-8 without a NUL byte", a.Names[c], maxValue)
			}
			key += strconv.Itoa(len(value)) + ":" + value
		}
		if seen[key] && len(row) == 1 {
			return fmt.Errorf("%s: expected each value once, found %s twice", a.Names[0], text.Found(row[0]))
		}
		if seen[key] {
			return fmt.Errorf("expected each row once, row %d (%s) is there twice", i+1, text.Found(strings.Join(row, ",")))
		}
		seen[key] = true
	}
	return nil
}

// More are the trials that new values add to a sweep: the new values, with each
// combination that the sweep has of its other parameters, except trials that it has.
func More(have [][]job.Param, axes []Axis, most int) ([][]job.Param, error) {
	given, err := Trials(axes, most)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, trial := range have {
		known[keyOf(trial)] = true
	}
	for _, name := range names(axes) {
		if len(have) > 0 && !hasParam(have[0], name) {
			return nil, fmt.Errorf("the sweep has no parameter %s; its parameters are %s", text.Found(name), strings.Join(paramNames(have[0]), ", "))
		}
	}
	var more [][]job.Param
	for _, fresh := range given {
		for _, trial := range have {
			trial = over(trial, fresh)
			if key := keyOf(trial); !known[key] {
				known[key] = true
				if more = append(more, trial); len(more) > most {
					return nil, fmt.Errorf("expected at most %d trials, found more", most)
				}
			}
		}
	}
	return more, nil
}

// over is a trial with other values of some parameters.
func over(trial, values []job.Param) []job.Param {
	trial = append([]job.Param(nil), trial...)
	for i := range trial {
		for _, v := range values {
			if v.Name == trial[i].Name {
				trial[i].Value = v.Value
			}
		}
	}
	return trial
}

// keyOf is equal for trials with the same values.
func keyOf(trial []job.Param) string {
	var b strings.Builder
	for _, p := range trial {
		fmt.Fprintf(&b, "%s=%d:%s,", p.Name, len(p.Value), p.Value)
	}
	return b.String()
}

func hasParam(trial []job.Param, name string) bool {
	for _, p := range trial {
		if p.Name == name {
			return true
		}
	}
	return false
}

func paramNames(trial []job.Param) (names []string) {
	for _, p := range trial {
		names = append(names, p.Name)
	}
	return names
}
