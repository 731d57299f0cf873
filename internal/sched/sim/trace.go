package sim

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"berth/internal/text"
	"berth/internal/text/problem"
)

// Bounds of a trace. Anything beyond them is an error with its line.
const (
	maxTraceMistakes = 10 // reported at once
	maxShown         = 41 // columns of a field in an error
	maxTraceGPUs     = 1_000_000
	maxTracePriority = 1_000_000
	maxTraceVRAMMiB  = 1 << 30
)

// traceColumns are the known columns, each with how it sets a job. The first
// two are required.
var traceColumns = []traceColumn{
	{name: "submit_s", must: true, set: func(j *Job, text string) (err error) {
		j.Submit, err = traceMillis(text, MaxSubmit)
		return err
	}},
	{name: "duration_s", must: true, set: func(j *Job, text string) (err error) {
		j.Duration, err = traceMillis(text, MaxDuration)
		return err
	}},
	{name: "job_id", set: func(j *Job, text string) error { j.ID = text; return nil }},
	{name: "user", set: func(j *Job, text string) error { j.User = text; return nil }},
	{name: "gpus", set: func(j *Job, text string) error {
		gpus, err := traceInt(text, 0, maxTraceGPUs)
		j.GPUs = int(gpus)
		return err
	}},
	{name: "gpu_milli", set: func(j *Job, text string) error {
		milli, err := traceInt(text, 0, 1000)
		// Traces write 0 for jobs without a GPU; that is not a share.
		if milli < 1000 {
			j.Share = float64(milli) / 1000
		}
		return err
	}},
	{name: "vram_mib", set: func(j *Job, text string) (err error) {
		j.VRAMMiB, err = traceInt(text, 0, maxTraceVRAMMiB)
		return err
	}},
	{name: "vram_used_mib", set: func(j *Job, text string) (err error) {
		j.UsedMiB, err = traceInt(text, 0, maxTraceVRAMMiB)
		return err
	}},
	{name: "time_limit_s", set: func(j *Job, text string) (err error) {
		j.Limit, err = traceMillis(text, MaxDuration)
		return err
	}},
	{name: "priority", set: func(j *Job, text string) error {
		priority, err := traceInt(text, -maxTracePriority, maxTracePriority)
		j.Priority = int(priority)
		return err
	}},
	{name: "parks", set: func(j *Job, text string) error {
		switch strings.ToLower(text) {
		case "1", "yes", "true":
			j.Parks = CanPark
		case "0", "no", "false":
			j.Parks = CannotPark
		default:
			return fmt.Errorf("expected yes or no, found %q", text)
		}
		return nil
	}},
	{name: "checkpoint_s", set: func(j *Job, text string) error {
		if strings.EqualFold(text, "term") {
			j.Saves = WhenTold
			return nil
		}
		every, err := traceMillis(text, MaxDuration)
		if err != nil {
			return fmt.Errorf("expected seconds (0 to %s) or term, found %q", plain(MaxDuration.Seconds()), text)
		}
		j.Saves = Saves(every)
		return nil
	}},
	{name: "command", set: func(j *Job, text string) error { j.Command = text; return nil }},
	{name: "name", set: func(j *Job, text string) error {
		if j.Command == "" {
			j.Command = text // a command is more precise than a name
		}
		return nil
	}},
}

// TraceColumns are the names of the known columns.
func TraceColumns() (titles []string) {
	for _, c := range traceColumns {
		titles = append(titles, c.name)
	}
	return titles
}

// columnAliases are other names for columns.
var columnAliases = map[string]string{"time_limit": "time_limit_s", "limit_s": "time_limit_s"}

type traceColumn struct {
	name string
	must bool
	set  func(j *Job, text string) error
}

// traceMillis reads seconds. The range check refuses NaN too.
func traceMillis(found string, most Millis) (Millis, error) {
	seconds, err := strconv.ParseFloat(found, 64)
	if err != nil || !(seconds >= 0 && seconds <= most.Seconds()) {
		return 0, fmt.Errorf("expected 0 to %s seconds, found %q", plain(most.Seconds()), text.Cut(found, maxShown))
	}
	return MillisOf(seconds), nil
}

// traceInt reads a whole number; some programs write 1.0.
func traceInt(found string, low, most float64) (int64, error) {
	value, err := strconv.ParseFloat(found, 64)
	if err != nil || !(value >= low && value <= most) || value != math.Trunc(value) {
		return 0, fmt.Errorf("expected a whole number from %s to %s, found %q", plain(low), plain(most), text.Cut(found, maxShown))
	}
	return int64(value), nil
}

// plain formats a bound as a user would type it.
func plain(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

// traceReader reads one trace.
type traceReader struct {
	name     string
	csv      *csv.Reader
	fields   []*traceColumn // by position in a row; nil: ignored
	width    int
	mistakes []string
	more     int // mistakes beyond those reported
	work     Workload
}

// ReadTrace reads a trace: a CSV file with a header. Errors have the file's name
// and the line; source is the name of the workload.
func ReadTrace(name, source string, r io.Reader) (*Workload, error) {
	t := &traceReader{name: name, csv: csv.NewReader(r), work: Workload{Source: source}}
	t.csv.ReuseRecord, t.csv.FieldsPerRecord, t.csv.TrimLeadingSpace = true, -1, true
	if err := t.header(); err != nil {
		return nil, err
	}
	for {
		record, err := t.csv.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.unreadable(err)
			break // the rest after a broken quote cannot be trusted
		}
		if len(t.work.Jobs)+t.work.LeftOut >= MaxJobs {
			t.mistake("expected at most %s jobs, found more", text.Grouped(MaxJobs))
			break
		}
		t.row(record)
	}
	return t.result()
}

// header reads which columns there are.
func (t *traceReader) header() error {
	record, err := t.csv.Read()
	switch {
	case errors.Is(err, io.EOF):
		return t.refuse(t.name + ": expected a header and a line for each job, found an empty file")
	case err != nil:
		t.unreadable(err)
		return t.refuse(t.mistakes...)
	}
	seen := map[string]bool{}
	for i, title := range record {
		if i == 0 {
			title = strings.TrimPrefix(title, "\ufeff")
		}
		title = strings.ToLower(strings.TrimSpace(title))
		if name, other := columnAliases[title]; other {
			title = name
		}
		k := slices.IndexFunc(traceColumns, func(c traceColumn) bool { return c.name == title })
		if k < 0 {
			t.fields = append(t.fields, nil)
			continue
		}
		if seen[title] {
			t.mistake("expected each column once, found %s twice", title)
		}
		seen[title] = true
		t.fields = append(t.fields, &traceColumns[k])
	}
	t.width = len(record)
	for _, c := range traceColumns {
		if c.must && !seen[c.name] {
			t.mistake("expected a column %s, found none%s", c.name, nearColumn(c.name, record))
		}
	}
	if len(t.mistakes) > 0 {
		return t.refuse(t.mistakes...)
	}
	return nil
}

// nearColumn suggests a column with a similar name.
func nearColumn(name string, titles []string) string {
	if near := text.Nearest(name, titles); near != "" {
		return fmt.Sprintf(" (is it %s?)", text.Cut(near, maxShown))
	}
	return ""
}

// row reads one job.
func (t *traceReader) row(record []string) {
	if len(record) != t.width {
		t.mistake("expected %s as in the header, found %d", text.Count(t.width, "field"), len(record))
		return
	}
	line, _ := t.csv.FieldPos(0)
	j := Job{GPUs: 1}
	for i, column := range t.fields {
		if column == nil {
			continue
		}
		text := strings.TrimSpace(record[i])
		if text == "" && !column.must {
			continue // the source does not have it
		}
		if err := column.set(&j, text); err != nil {
			t.mistakeAt(line, "%s: %v", column.name, err)
			return
		}
	}
	if j.GPUs == 0 {
		t.work.LeftOut++
		return
	}
	if j.ID == "" {
		j.ID = strconv.Itoa(line)
	}
	t.work.add(j, "line "+strconv.Itoa(line))
}

func (t *traceReader) mistake(format string, args ...any) {
	line, _ := t.csv.FieldPos(0)
	t.mistakeAt(line, format, args...)
}

func (t *traceReader) mistakeAt(line int, format string, args ...any) {
	if len(t.mistakes) >= maxTraceMistakes {
		t.more++
		return
	}
	t.mistakes = append(t.mistakes, fmt.Sprintf("%s:%d: %s", t.name, line, fmt.Sprintf(format, args...)))
}

// unreadable reports a line that is not CSV, or a read error.
func (t *traceReader) unreadable(err error) {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		t.mistakeAt(parse.Line, "%v", parse.Err)
		return
	}
	t.mistakes = append(t.mistakes, fmt.Sprintf("%s: %v", t.name, err))
}

func (t *traceReader) result() (*Workload, error) {
	if t.more > 0 {
		t.mistakes = append(t.mistakes, fmt.Sprintf("and %s more", text.Grouped(t.more)))
	}
	if len(t.mistakes) > 0 {
		return nil, t.refuse(t.mistakes...)
	}
	return &t.work, nil
}

func (t *traceReader) refuse(mistakes ...string) error {
	return &problem.Problem{Kind: problem.Invalid, What: strings.Join(mistakes, "\n"), Hint: "berth simulate --help lists the columns of a trace"}
}
