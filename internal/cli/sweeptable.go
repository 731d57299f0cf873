package cli

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// tableOptions are the flags of `berth sweep table`.
type tableOptions struct {
	metrics []string
	sort    string
	batch   string
	csv     bool
	json    bool
}

// The columns of a table beside its parameters and metrics.
const (
	columnID    = "id"
	columnName  = "name"
	columnState = "state"
	columnTime  = "time"
	columnVRAM  = "vram"
)

func newSweepTable() *cobra.Command {
	o := &tableOptions{}
	cmd := &cobra.Command{
		Use:   "table SWEEP | table --batch FILE",
		Short: "Show the results of a sweep, a row for each trial",
		Long: `Show each trial of a sweep with its parameters, its outcome, how long it ran,
the memory it used and its metrics. An array is a table of its indices, and
--batch shows the lines of a jobs file.

--metric NAME or --metric 'PATTERN' picks results from the logs (berth sweep
--help); without it, the metrics of the sweep are shown. --sort takes a
parameter, a metric, id, name, state, time or vram; with a - in front, the
largest comes first.`,
		Example: `  berth sweep table 17
  berth sweep table 17 --metric max:val_acc --sort -val_acc
  berth sweep table 17 --metric 'loss: ([0-9.]+)' --csv > results.csv
  berth sweep table --batch jobs.txt --metric val_acc --json

Exit status: 0 shown; 1 no such sweep, or no daemon; 2 bad usage; 130
interrupted.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.batch != "" {
				return noWords(cmd, args)
			}
			return exactlyOne(cmd, args)
		},
		ValidArgsFunction: completeEndedToo,
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
		q := api.TrialQuery{Batch: session.FileName(o.batch), Metrics: o.metrics}
		if len(args) > 0 {
			q.ID = args[0]
		}
		return o.run(ctx, s, q)
	})
	session.QueueFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&o.metrics, "metric", nil, "a `result` to pick from the logs: val_acc, max:val_acc or 'loss=([0-9.]+)'; may be repeated")
	flags.StringVar(&o.sort, "sort", "", "sort by this `column`; -COLUMN: the largest first")
	flags.StringVar(&o.batch, "batch", "", "the lines of this jobs `file`")
	flags.BoolVar(&o.csv, "csv", false, "print CSV")
	flags.BoolVar(&o.json, "json", false, "print a JSON object")
	cmd.MarkFlagsMutuallyExclusive("csv", "json")
	return cmd
}

func (o *tableOptions) run(ctx context.Context, s *session.Session, q api.TrialQuery) error {
	table, err := api.Call(ctx, s.Client, api.ListTrials, q)
	if err != nil {
		return err
	}
	if err := sortTrials(&table, o.sort); err != nil {
		return err
	}
	if table.Unread > 0 {
		s.Say("note: %s were not read in full: 16 MiB of each log are, for 20 seconds in all", text.CountGrouped(table.Unread, "log"))
	}
	switch {
	case o.json:
		return printJSON(s.Out, table)
	case o.csv:
		return trialCSV(s, &table)
	}
	return s.Screen.Draw(trialTable(&table))
}

// sortTrials sorts the rows of a table by one of its columns. What has no value comes
// last.
func sortTrials(table *api.TrialTable, by string) error {
	column, down := strings.CutPrefix(by, "-")
	if by == "" {
		return nil
	}
	known := []string{columnID, columnName, columnState, columnTime, columnVRAM}
	known = append(known, table.Params...)
	for _, m := range table.Metrics {
		known = append(known, m.Name)
	}
	if !slices.Contains(known, column) {
		return problem.Newf(problem.Invalid, text.DidYouMean(column, known), "--sort: expected %s, found %q", text.Or(known), column)
	}
	slices.SortStableFunc(table.Trials, func(a, b api.TrialRow) int {
		x, y := cellOf(table, &a, column), cellOf(table, &b, column)
		if x == "" || y == "" {
			return cmp.Compare(len(y), len(x)) // one of them is 0
		}
		order := cmp.Compare(x, y)
		m, isM := numberOf(x)
		n, isN := numberOf(y)
		switch {
		case isM && isN:
			order = cmp.Compare(m, n)
		case isM:
			return -1 // numbers come before text
		case isN:
			return 1
		}
		if down {
			return -order
		}
		return order
	})
	return nil
}

// numberOf reads a number. NaN does not count, because nothing is better or worse.
func numberOf(cell string) (n float64, is bool) {
	n, err := strconv.ParseFloat(cell, 64)
	return n, err == nil && !math.IsNaN(n)
}

// cellOf is a value of a row as text; empty: none.
func cellOf(table *api.TrialTable, row *api.TrialRow, column string) string {
	if _, metric := row.Metrics[column]; metric {
		return metricOf(row, column)
	}
	if slices.Contains(table.Params, column) {
		return row.Params[column]
	}
	return plainOf(row, column)
}

// plainOf is a value that every table has.
func plainOf(row *api.TrialRow, column string) string {
	switch column {
	case columnID:
		_, index, _ := strings.Cut(row.ID, "_")
		return cmp.Or(index, row.ID)
	case columnName:
		return row.Name
	case columnState:
		return string(row.State)
	case columnTime:
		if row.Seconds != nil {
			return strconv.FormatFloat(*row.Seconds, 'f', 1, 64)
		}
	case columnVRAM:
		if row.PeakVRAMMiB != nil {
			return strconv.FormatInt(*row.PeakVRAMMiB, 10)
		}
	}
	return ""
}

// metricOf is a metric of a row as text; empty: none.
func metricOf(row *api.TrialRow, name string) string {
	switch value := row.Metrics[name].(type) {
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64)
	case string:
		return value
	}
	return ""
}

// outcomeOf is the state of a trial, or how it ended if not well.
func outcomeOf(row *api.TrialRow) string {
	if row.Outcome != nil && *row.Outcome != job.OK {
		return string(*row.Outcome)
	}
	return string(row.State)
}

func trialTable(table *api.TrialTable) *text.Table {
	t := &text.Table{Columns: []text.Column{{Title: "ID"}}}
	named := slices.ContainsFunc(table.Trials, func(r api.TrialRow) bool { return r.Name != "job"+r.ID && r.Name != table.Name })
	if named {
		t.Columns = append(t.Columns, text.Column{Title: "NAME", Shy: true})
	}
	for _, name := range table.Params {
		t.Columns = append(t.Columns, text.Column{Title: strings.ToUpper(text.Line(name))})
	}
	t.Columns = append(t.Columns, text.Column{Title: "STATE"}, text.Column{Title: "RAN", Right: true}, text.Column{Title: "PEAK VRAM", Right: true, Shy: true})
	for _, m := range table.Metrics {
		t.Columns = append(t.Columns, text.Column{Title: strings.ToUpper(text.Line(m.Name)), Right: true})
	}
	if named {
		t.Concessions = []text.Concession{{Title: "NAME", To: 12}, {Title: "NAME", To: 0}}
	}
	for i := range table.Trials {
		row := &table.Trials[i]
		cells := []string{row.ID}
		if named {
			cells = append(cells, row.Name)
		}
		for _, name := range table.Params {
			cells = append(cells, row.Params[name])
		}
		ran, vram := "-", "-"
		if row.Seconds != nil {
			ran = text.Span(time.Duration(*row.Seconds * float64(time.Second)))
		}
		if row.PeakVRAMMiB != nil {
			vram = text.GiB(*row.PeakVRAMMiB) + "G"
		}
		cells = append(cells, outcomeOf(row), ran, vram)
		for _, m := range table.Metrics {
			cells = append(cells, cmp.Or(metricOf(row, m.Name), "-"))
		}
		t.Row(cells...)
	}
	return t
}

// trialCSV prints a table for other programs.
func trialCSV(s *session.Session, table *api.TrialTable) error {
	w := csv.NewWriter(s.Out)
	head := slices.Concat([]string{columnID, columnName}, table.Params, []string{columnState, "outcome", "attempt", "seconds", "peak_vram_mib"})
	for _, m := range table.Metrics {
		head = append(head, m.Name)
	}
	rows := [][]string{head}
	for i := range table.Trials {
		row := &table.Trials[i]
		cells := []string{row.ID, row.Name}
		for _, name := range table.Params {
			cells = append(cells, row.Params[name])
		}
		outcome := ""
		if row.Outcome != nil {
			outcome = string(*row.Outcome)
		}
		cells = append(cells, string(row.State), outcome, strconv.Itoa(row.Attempt), plainOf(row, columnTime), plainOf(row, columnVRAM))
		for _, m := range table.Metrics {
			cells = append(cells, metricOf(row, m.Name))
		}
		rows = append(rows, cells)
	}
	return w.WriteAll(rows)
}

func newSweepShow() *cobra.Command {
	o, asJSON := &tableOptions{}, false
	cmd := &cobra.Command{
		Use:   "show SWEEP",
		Short: "Show how far a sweep is, and its best trials",
		Long: `Show a sweep: how many of its trials are in each state, how long the rest is
expected to take, why the next one waits, its failures, and the best trial by
each metric that has a best (max: or min:).`,
		Example: `  berth sweep show 17
  berth sweep show @ --metric max:val_acc

Exit status: 0 shown; 1 no such sweep, or no daemon; 2 bad usage; 130
interrupted.`,
		Args:              exactlyOne,
		ValidArgsFunction: completeEndedToo,
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
		table, err := api.Call(ctx, s.Client, api.ListTrials, api.TrialQuery{ID: args[0], Metrics: o.metrics})
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(s.Out, table)
		}
		for _, line := range sweepText(&table, time.Now()) {
			if _, err := fmt.Fprintln(s.Out, text.Line(line)); err != nil {
				return err
			}
		}
		return nil
	})
	session.QueueFlags(cmd)
	cmd.Flags().StringArrayVar(&o.metrics, "metric", nil, "a `result` to pick from the logs: max:val_acc or 'min:loss=([0-9.]+)'; may be repeated")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object, as sweep table does")
	return cmd
}

// sweepText is a sweep in a few lines.
func sweepText(table *api.TrialTable, now time.Time) []string {
	lines := []string{fmt.Sprintf("sweep %s (%s) of %s: %s", table.ID, table.Name, table.User, table.Tasks.String())}
	if left := table.Left(now); left != "" {
		lines = append(lines, "  "+left)
	}
	if table.Command != "" {
		lines = append(lines, "  command: "+table.Command)
	}
	for _, name := range table.Params {
		var values []string
		for i := range table.Trials {
			if v := job.Quote(table.Trials[i].Params[name]); !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		if len(values) > listedOneByOne {
			values = append(values[:listedOneByOne], "…")
		}
		lines = append(lines, "  "+name+": "+strings.Join(values, ", "))
	}
	if table.Reason != "" {
		lines = append(lines, "  next: "+table.Reason)
	}
	for _, m := range table.Metrics {
		if m.Best == "last" {
			continue
		}
		best := *table
		best.Trials = slices.Clone(table.Trials)
		order := m.Name
		if m.Best == "max" {
			order = "-" + order
		}
		_ = sortTrials(&best, order) // the column exists
		if value := cellOf(&best, &best.Trials[0], m.Name); value != "" {
			lines = append(lines, fmt.Sprintf("  %s %s: %s (%s)", m.Best, m.Name, value, trialText(&best, &best.Trials[0])))
		}
	}
	failed := 0
	for i := range table.Trials {
		if row := &table.Trials[i]; row.State == job.Failed {
			if failed++; failed <= 10 {
				lines = append(lines, fmt.Sprintf("  failed (%s): %s", outcomeOf(row), trialText(table, row)))
			}
		}
	}
	if failed > 10 {
		lines = append(lines, fmt.Sprintf("  and %s more", text.Grouped(failed-10)))
	}
	return append(lines, "  berth sweep table "+table.ID+" shows every trial")
}

// trialText is "17_3, lr=1e-3 seed=0".
func trialText(table *api.TrialTable, row *api.TrialRow) string {
	var words []string
	for _, name := range table.Params {
		words = append(words, name+"="+job.Quote(row.Params[name]))
	}
	return row.ID + ", " + strings.Join(words, " ")
}

func newSweepList() *cobra.Command {
	q, asJSON := api.SweepQuery{}, false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sweeps",
		Long: `List your sweeps that have not ended, the newest first; with --all those that
have ended too, among the last 10,000 jobs that have.`,
		Example: `  berth sweep list
  berth sweep list --all

Exit status: 0 listed; 1 no daemon; 2 bad usage; 130 interrupted.`,
		Args: noWords,
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
		sums, err := api.Call(ctx, s.Client, api.ListSweeps, q)
		if err != nil && !s.NoJobsYet(err) {
			return err
		}
		if asJSON {
			return printJSON(s.Out, notNull(sums))
		}
		if len(sums) == 0 {
			_, err := fmt.Fprintln(s.Out, "no sweeps")
			return err
		}
		t := &text.Table{Columns: []text.Column{{Title: "ID"}, {Title: "NAME"}, {Title: "USER"}, {Title: "TRIALS"}, {Title: "PROGRESS"}, {Title: "SUBMITTED"}, {Title: "PARAMETERS", Shy: true}}}
		now := time.Now()
		for _, one := range sums {
			t.Row(one.ID, one.Name, one.User, one.Tasks.String(), cmp.Or(one.Left(now), "-"), render.Moment(*one.SubmittedAt, now), strings.Join(one.Params, ", "))
		}
		return s.Screen.Draw(t)
	})
	session.QueueFlags(cmd)
	cmd.Flags().StringVarP(&q.User, "user", "u", "", "sweeps of this user; *: of all users")
	cmd.Flags().BoolVar(&q.All, "all", false, "include sweeps that have ended")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}
