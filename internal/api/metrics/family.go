package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// family is one metric: its series, by the values of its labels. The format is
// Prometheus's text; a library for it cost every command half a millisecond before
// it began.
type family struct {
	name, help string
	kind       string    // counter, gauge, histogram or summary
	labels     []string  // in the order of their names
	bounds     []float64 // of a histogram's buckets; of a summary, its quantiles

	mu     sync.Mutex
	series map[string]*series
}

// series is the values of a family for one set of label values.
type series struct {
	labels  []string
	value   float64   // of a counter or a gauge; the sum of the others
	count   float64   // of a histogram or a summary
	buckets []float64 // how much was at most each bound; a summary's quantiles
}

// newFamily makes a metric. One without labels is there from the start, as 0.
func newFamily(kind, name, help string, bounds []float64, labels ...string) *family {
	f := &family{name: name, help: help, kind: kind, labels: labels, bounds: bounds, series: map[string]*series{}}
	if len(labels) == 0 {
		f.of(nil)
	}
	return f
}

// of is the series of these label values. The caller holds the lock, or is alone.
func (f *family) of(values []string) *series {
	key := strings.Join(values, "\xff") // no valid label has that byte
	s := f.series[key]
	if s == nil {
		s = &series{labels: slices.Clone(values), buckets: make([]float64, len(f.bounds))}
		f.series[key] = s
	}
	return s
}

// add counts, for these values of the labels.
func (f *family) add(amount float64, values ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of(values).value += amount
}

// set is the value of a gauge.
func (f *family) set(value float64, values ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of(values).value = value
}

// observe adds a value to a histogram.
func (f *family) observe(value float64, values ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.of(values)
	s.value += value
	s.count++
	for i, bound := range f.bounds {
		if value <= bound {
			s.buckets[i]++
		}
	}
}

// write appends the family as text; nothing if it has no series.
func (f *family) write(out []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.series) == 0 {
		return out
	}
	out = append(out, "# HELP "+f.name+" "+f.help+"\n# TYPE "+f.name+" "+f.kind+"\n"...)
	line := func(suffix string, s *series, value float64, more ...string) {
		out = append(out, f.name+suffix...)
		open := byte('{')
		pair := func(name, text string) {
			out = append(append(out, open), name+`="`+escapeLabel.Replace(text)+`"`...)
			open = ','
		}
		for i, name := range f.labels {
			pair(name, s.labels[i])
		}
		if len(more) > 0 {
			pair(more[0], more[1])
		}
		if open == ',' {
			out = append(out, '}')
		}
		out = append(append(append(out, ' '), number(value)...), '\n')
	}
	for _, s := range slices.SortedFunc(maps.Values(f.series), func(a, b *series) int { return slices.Compare(a.labels, b.labels) }) {
		switch f.kind {
		case "histogram":
			for i, bound := range f.bounds {
				line("_bucket", s, s.buckets[i], "le", number(bound))
			}
			line("_bucket", s, s.count, "le", "+Inf")
		case "summary":
			for i, quantile := range f.bounds {
				line("", s, s.buckets[i], "quantile", number(quantile))
			}
		default:
			line("", s, s.value)
			continue
		}
		line("_sum", s, s.value)
		line("_count", s, s.count)
	}
	return out
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func number(value float64) string {
	if math.IsInf(value, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}

// text is all families in the order of their names.
func text(families []*family) (out []byte) {
	for _, f := range slices.SortedFunc(slices.Values(families), func(a, b *family) int { return cmp.Compare(a.name, b.name) }) {
		out = f.write(out)
	}
	return out
}

// page is families that are read once for each scrape.
type page struct{ families []*family }

func (p *page) add(kind, name, help string, labels ...string) *family {
	f := newFamily(kind, name, help, nil, labels...)
	p.families = append(p.families, f)
	return f
}

func (p *page) gauge(name, help string, value float64) { p.add("gauge", name, help).set(value) }

func (p *page) counter(name, help string, value float64) { p.add("counter", name, help).set(value) }
