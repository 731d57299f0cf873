package render

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// Column is a column of the list: as a cell of the table, and as a value in CSV.
type Column struct {
	Name, title string
	right, shy  bool
	cell        func(r *Row, now time.Time) text.Cell
	Value       func(v *job.View, now time.Time) string
}

// Columns are all columns. The first ones are shown unless --columns chooses
// others.
var Columns = []Column{
	plainColumn("id", func(v *job.View) string { return v.ID }),
	plainColumn("name", func(v *job.View) string { return v.Name }),
	plainColumn("user", func(v *job.View) string { return v.User }),
	{Name: "state", title: "STATE", cell: StateCell, Value: func(v *job.View, _ time.Time) string { return string(v.State) }},
	{Name: "gpus", title: "GPUS", cell: func(r *Row, _ time.Time) text.Cell { return text.Cell{Text: RowGPUs(r)} }, Value: gpusValue},
	{Name: "vram", title: "VRAM/DECL", shy: true, cell: cellOf(func(v *job.View, _ time.Time) string { return VRAMText(*v) }), Value: func(v *job.View, _ time.Time) string { return numberOrNone(v.VRAMMiB) }},
	{Name: "time", title: "TIME", right: true, cell: cellOf(func(v *job.View, now time.Time) string { return TimeText(*v, now) }), Value: timeValue},
	{Name: "reason", title: "REASON", shy: true, cell: func(r *Row, now time.Time) text.Cell { return text.Cell{Text: rowNote(r, now)} }, Value: func(v *job.View, _ time.Time) string { return StringOrNone(v.Reason) }},
	{Name: "command", title: "COMMAND", shy: true, cell: cellOf(func(v *job.View, _ time.Time) string { return CommandText(*v) }), Value: func(v *job.View, _ time.Time) string { return StringOrNone(v.Command) }},
	plainColumn("priority", func(v *job.View) string { return strconv.Itoa(v.Priority) }),
	plainColumn("outcome", func(v *job.View) string { return string(valueOr(v.Outcome, "")) }),
	plainColumn("exit", func(v *job.View) string { return numberOrNone(v.ExitCode) }),
	plainColumn("attempt", func(v *job.View) string { return strconv.Itoa(v.Attempt) }),
	timeColumn("submitted", func(v *job.View) *time.Time { return v.SubmittedAt }),
	timeColumn("started", func(v *job.View) *time.Time { return v.StartedAt }),
	timeColumn("ended", func(v *job.View) *time.Time { return v.EndedAt }),
	{Name: "gpu-ids", title: "GPU-IDS", cell: cellOf(gpuIDsValue), Value: gpuIDsValue},
	{Name: "peak", title: "PEAK", right: true, cell: cellOf(peakText), Value: peakValue},
	{Name: "util", title: "UTIL", right: true, cell: cellOf(utilValue), Value: utilValue},
	plainColumn("batch", func(v *job.View) string { return StringOrNone(v.Batch) }),
	plainColumn("group", func(v *job.View) string { return StringOrNone(v.Group) }),
	{Name: "parked", title: "PARKED", right: true, cell: cellOf(parkedText), Value: parkedValue},
	plainColumn("host", func(v *job.View) string { return numberOrNone(v.HostMiB) }),
	plainColumn("log", func(v *job.View) string { return StringOrNone(v.Log) }),
}

// UsualColumns is how many columns are shown by default.
const UsualColumns = 9

func ColumnNames() []string {
	names := make([]string, len(Columns))
	for i := range Columns {
		names[i] = Columns[i].Name
	}
	return names
}

func cellOf(written func(*job.View, time.Time) string) func(*Row, time.Time) text.Cell {
	return func(r *Row, now time.Time) text.Cell { return text.Cell{Text: written(&r.View, now)} }
}

// plainColumn is the same in both forms.
func plainColumn(name string, of func(*job.View) string) Column {
	value := func(v *job.View, _ time.Time) string { return of(v) }
	return Column{Name: name, title: strings.ToUpper(name), cell: cellOf(value), Value: value}
}

// timeColumn is a time of day for people, and RFC 3339 in CSV.
func timeColumn(name string, of func(*job.View) *time.Time) Column {
	shown := func(v *job.View, now time.Time) string {
		if t := of(v); t != nil {
			return Moment(*t, now)
		}
		return ""
	}
	value := func(v *job.View, _ time.Time) string {
		if t := of(v); t != nil {
			return t.Format(time.RFC3339)
		}
		return ""
	}
	return Column{Name: name, title: strings.ToUpper(name), cell: cellOf(shown), Value: value}
}

func valueOr[T any](p *T, none T) T {
	if p == nil {
		return none
	}
	return *p
}

func StringOrNone(s *string) string { return valueOr(s, "") }

func numberOrNone[N int | int64](n *N) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}

// gpusValue is the number of GPUs the job asks for.
func gpusValue(v *job.View, _ time.Time) string {
	if v.Share != nil {
		return strconv.FormatFloat(*v.Share, 'g', -1, 64)
	}
	return strconv.Itoa(v.GPUs)
}

func gpuIDsValue(v *job.View, _ time.Time) string {
	if v.Slurm != nil {
		return text.Numbers(v.Slurm.GPUIDs)
	}
	return text.Numbers(v.GPUIDs)
}

// timeValue is in seconds.
func timeValue(v *job.View, now time.Time) string {
	span, known := SpanOf(*v, now)
	if !known {
		return ""
	}
	return strconv.FormatFloat(span.Seconds(), 'f', 0, 64)
}

// parkedFor returns the total time a job was parked.
func parkedFor(v *job.View, now time.Time) time.Duration {
	span := text.OfSeconds(v.ParkedS)
	if v.ParkedSince != nil {
		span += max(0, now.Sub(*v.ParkedSince))
	}
	return span
}

func parkedText(v *job.View, now time.Time) string {
	if v.Parkings == 0 {
		return ""
	}
	return text.Span(parkedFor(v, now))
}

// parkedValue is in seconds.
func parkedValue(v *job.View, now time.Time) string {
	return strconv.FormatFloat(parkedFor(v, now).Seconds(), 'f', 0, 64)
}

func peakText(v *job.View, _ time.Time) string {
	if len(v.PeakVRAMMiB) == 0 {
		return ""
	}
	return text.GiB(PeakOf(v)) + "G"
}

func peakValue(v *job.View, _ time.Time) string {
	if len(v.PeakVRAMMiB) == 0 {
		return ""
	}
	return strconv.FormatInt(PeakOf(v), 10)
}

func utilValue(v *job.View, _ time.Time) string {
	if v.AvgUtil == nil {
		return ""
	}
	return strconv.FormatFloat(*v.AvgUtil, 'f', 0, 64)
}

// ChooseColumns finds the columns that --columns names, or those by default.
func ChooseColumns(names []string, usual []Column) ([]Column, error) {
	if len(names) == 0 {
		return usual, nil
	}
	chosen := make([]Column, len(names))
	for i, name := range names {
		at := slices.IndexFunc(Columns, func(c Column) bool { return c.Name == strings.ToLower(strings.TrimSpace(name)) })
		if at < 0 {
			return nil, problem.Newf(problem.Invalid, text.DidYouMean(name, ColumnNames()), "--columns: expected %s, found %q", text.Or(ColumnNames()), name)
		}
		chosen[i] = Columns[at]
	}
	return chosen, nil
}

// How the list gives up space: first what other commands show in full, then all
// but the id, the state, the GPUs and the time.
var (
	concessions = []text.Concession{
		{Title: "COMMAND", To: 32}, {Title: "NAME", To: 20}, {Title: "USER", To: 8}, {Title: "REASON", To: 32}, {Title: "VRAM/DECL", To: 0}, {Title: "USER", To: 0},
		{Title: "COMMAND", To: 16}, {Title: "REASON", To: 20}, {Title: "STATE", To: 18}, {Title: "NAME", To: 12}, {Title: "COMMAND", To: 12}, {Title: "NAME", To: 10},
		{Title: "STATE", To: 12}, {Title: "COMMAND", To: 0}, {Title: "GPUS", To: 5}, {Title: "NAME", To: 6}, {Title: "REASON", To: 0},
	}
	// Columns that were chosen shrink, but stay.
	chosenConcessions = []text.Concession{
		{Title: "LOG", To: 20}, {Title: "COMMAND", To: 24}, {Title: "REASON", To: 20}, {Title: "NAME", To: 16}, {Title: "USER", To: 8}, {Title: "LOG", To: 8},
		{Title: "COMMAND", To: 8}, {Title: "REASON", To: 8}, {Title: "NAME", To: 6}, {Title: "STATE", To: 8}, {Title: "GPUS", To: 5}, {Title: "GPU-IDS", To: 5},
	}
)

func JobTable(rows []Row, shown []Column, chosen bool, now time.Time) *text.Table {
	t := &text.Table{}
	for _, c := range shown {
		t.Columns = append(t.Columns, text.Column{Title: c.title, Right: c.right, Shy: c.shy && !chosen})
	}
	give := concessions
	if chosen {
		give = chosenConcessions
	}
	for _, g := range give {
		if slices.ContainsFunc(shown, func(c Column) bool { return c.title == g.Title }) {
			t.Concessions = append(t.Concessions, g)
		}
	}
	for i := range rows {
		cells := make([]text.Cell, len(shown))
		for k, c := range shown {
			cells[k] = c.cell(&rows[i], now)
		}
		t.Add(cells...)
	}
	return t
}
