package sweep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"berth/internal/text"
)

// Bounds on metrics. A log is its user's, and so is a pattern, but a daemon reads
// both.
const (
	maxMetrics    = 20
	maxPattern    = 250
	maxProgram    = 500      // nodes of a pattern with its repetitions
	maxLine       = 64 << 10 // of a line of a log, only this much is looked at
	maxValueBytes = 200
)

// Metric says how a value is picked from a log.
type Metric struct {
	Name    string
	Best    Best
	pattern *regexp.Regexp
	key     string // in lines that are JSON objects; empty: only the pattern
}

// Best says which of several values counts.
type Best string

// The values that may count.
const (
	Last Best = "last"
	Max  Best = "max"
	Min  Best = "min"
)

// leadingName is the name with which a pattern begins: a letter or _, then also
// digits, dots, slashes and hyphens.
func leadingName(pattern string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	rest := strings.TrimLeft(pattern, letters)
	if rest == pattern {
		return ""
	}
	rest = strings.TrimLeft(rest, letters+"0123456789./-")
	return strings.TrimSuffix(pattern, rest)
}

// parseMetric reads [max:|min:|last:] and a pattern with a group around the value,
// as in val_acc=([0-9.]+), or the name of a value, as in val_acc. A name finds the key
// of JSON lines, and val_acc=0.9 or val_acc: 0.9 in others.
func parseMetric(written string) (Metric, error) {
	m, pattern := Metric{Best: Last}, written
	if word, rest, found := strings.Cut(written, ":"); found && slices.Contains([]Best{Last, Max, Min}, Best(word)) {
		m.Best, pattern = Best(word), rest
	}
	if len(pattern) > maxPattern {
		return m, fmt.Errorf("expected at most %d bytes, found %d", maxPattern, len(pattern))
	}
	if pattern != "" && leadingName(pattern) == pattern {
		m.Name, m.key = pattern, pattern
		m.pattern = regexp.MustCompile(`(?:^|[^\w./-])` + regexp.QuoteMeta(pattern) + `\s*[=:]\s*([-+]?(?:[0-9][0-9.]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?%?|[Nn]a[Nn]|[-+]?[Ii]nf)`)
		return m, nil
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return m, fmt.Errorf("expected a name or a regular expression (RE2), found %s: %w", text.Found(pattern), err)
	}
	if size(tree) > maxProgram {
		return m, fmt.Errorf("expected a smaller regular expression, found %s", text.Found(pattern))
	}
	if m.pattern, err = regexp.Compile(pattern); err != nil {
		return m, err
	}
	if n := m.pattern.NumSubexp(); n != 1 {
		return m, fmt.Errorf("expected one group around the value, as in val_acc=([0-9.]+), found %s in %s", text.Count(n, "group"), text.Found(pattern))
	}
	if m.Name = m.pattern.SubexpNames()[1]; m.Name == "" {
		if m.Name = leadingName(pattern); m.Name == "" {
			m.Name = pattern
		}
	}
	return m, nil
}

// size is how large a pattern gets once its repetitions are written out.
func size(re *syntax.Regexp) int {
	total := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		total = min(total+size(sub), maxProgram+1)
	}
	if re.Op == syntax.OpRepeat {
		total *= max(re.Max, re.Min, 1)
	}
	return min(total, maxProgram+1)
}

// ParseMetrics reads several, whose names differ.
func ParseMetrics(written []string) ([]Metric, error) {
	if len(written) > maxMetrics {
		return nil, fmt.Errorf("expected at most %d metrics, found %d", maxMetrics, len(written))
	}
	var metrics []Metric
	for _, one := range written {
		m, err := parseMetric(one)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(metrics, func(o Metric) bool { return o.Name == m.Name }) {
			return nil, fmt.Errorf("expected metrics with different names, found %s twice (name one with a group: (?P<name>...))", text.Found(m.Name))
		}
		metrics = append(metrics, m)
	}
	return metrics, nil
}

// Value is a metric of one trial: a number, or text.
type Value struct {
	Number float64
	Text   string // as it was written
}

// IsNumber reports whether it can be compared.
func (v Value) IsNumber() bool { return !math.IsNaN(v.Number) }

// JSON is a number where JSON has it, else text.
func (v Value) JSON() any {
	if v.IsNumber() && !math.IsInf(v.Number, 0) {
		return v.Number
	}
	return v.Text
}

func valueOf(written string) Value {
	number, err := strconv.ParseFloat(strings.TrimSuffix(written, "%"), 64)
	if err != nil {
		number = math.NaN()
	}
	return Value{Number: number, Text: written}
}

// Picker picks metrics from a log that is written to it.
type Picker struct {
	metrics []Metric
	values  []*Value
	line    []byte
}

// NewPicker picks these metrics.
func NewPicker(metrics []Metric) *Picker {
	return &Picker{metrics: metrics, values: make([]*Value, len(metrics))}
}

// Write takes the next part of the log. A progress bar ends its lines with a
// carriage return.
func (p *Picker) Write(part []byte) (int, error) {
	n := len(part)
	for len(part) > 0 {
		end := bytes.IndexAny(part, "\r\n")
		if end < 0 {
			p.add(part)
			break
		}
		if len(p.line) == 0 {
			p.read(part[:min(end, maxLine)])
		} else {
			p.add(part[:end])
			p.Gap()
		}
		part = part[end+1:]
	}
	return n, nil
}

func (p *Picker) add(part []byte) {
	p.line = append(p.line, part[:min(len(part), maxLine-len(p.line))]...)
}

// Gap ends the line: what follows is from another place of the log.
func (p *Picker) Gap() {
	p.read(p.line)
	p.line = p.line[:0]
}

// Values are what was picked, in the order of the metrics; nil: nothing.
func (p *Picker) Values() []*Value {
	p.Gap()
	return p.values
}

func (p *Picker) read(line []byte) {
	var object map[string]any
	for i := range p.metrics {
		m := &p.metrics[i]
		if m.key != "" && !bytes.Contains(line, []byte(lastOf(m.key))) {
			continue
		}
		if trimmed := bytes.TrimSpace(line); m.key != "" && len(trimmed) > 0 && trimmed[0] == '{' {
			if object == nil && json.Unmarshal(trimmed, &object) != nil {
				object = map[string]any{}
			}
			if v, found := inObject(object, m.key); found {
				p.observe(i, v)
				continue
			}
		}
		if at := m.pattern.FindSubmatchIndex(line); at != nil && at[2] >= 0 && at[3]-at[2] <= maxValueBytes {
			p.observe(i, valueOf(strings.ToValidUTF8(string(line[at[2]:at[3]]), "�")))
		}
	}
}

func (p *Picker) observe(i int, v Value) {
	m, old := &p.metrics[i], p.values[i]
	switch {
	case old == nil || m.Best == Last || !old.IsNumber():
	case !v.IsNumber(), m.Best == Max && v.Number <= old.Number, m.Best == Min && v.Number >= old.Number:
		return
	}
	p.values[i] = &v
}

// lastOf is the last part of a path, which its line has in any case.
func lastOf(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// inObject finds a key, or a path such as val.acc.
func inObject(object map[string]any, key string) (Value, bool) {
	found, known := object[key]
	if !known {
		head, rest, nested := strings.Cut(key, ".")
		if inner, ok := object[head].(map[string]any); nested && ok {
			return inObject(inner, rest)
		}
		return Value{}, false
	}
	switch v := found.(type) {
	case float64:
		return Value{Number: v, Text: strconv.FormatFloat(v, 'g', -1, 64)}, true
	case string:
		return valueOf(v), len(v) <= maxValueBytes
	case bool:
		return valueOf(strconv.FormatBool(v)), true
	}
	return Value{}, false
}
