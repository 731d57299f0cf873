package slurm

import (
	"strings"
	"time"

	"berth/internal/text"
	"berth/internal/text/problem"
)

// timeLayout is Slurm's own, in local time.
const timeLayout = "2006-01-02T15:04:05"

// separator is in no name, comment or reason that berth writes, and people cannot
// type it by accident.
const separator = "\x1f"

// rows reads a table whose last column is the name of a job. Lines of another form,
// such as a banner of the site, are skipped.
func rows(program, out string, columns int) (table [][]string, err error) {
	for line := range strings.Lines(out) {
		cells := strings.SplitN(strings.TrimRight(line, "\r\n"), separator, columns)
		if len(cells) < columns {
			continue
		}
		for i := range cells[:columns-1] { // a job may be named None
			cells[i] = value(cells[i])
		}
		table = append(table, cells)
	}
	if len(table) == 0 && strings.TrimSpace(out) != "" {
		return nil, unexpected(program, out)
	}
	return table, nil
}

// value removes Slurm's words for an absent value.
func value(cell string) string {
	switch cell = strings.TrimSpace(cell); cell {
	case "N/A", "n/a", "None", "none", "(null)", "NULL", "Unknown", "None assigned", "(none)":
		return ""
	}
	return cell
}

// moment reads a time; zero: not known.
func moment(cell string) time.Time {
	at, err := time.ParseInLocation(timeLayout, cell, time.Local)
	if err != nil {
		return time.Time{}
	}
	return at
}

// span reads a time limit, such as 1-02:00:00 or 30:00; 0: none, or not known.
func span(cell string) time.Duration {
	days, clock, hasDays := strings.Cut(cell, "-")
	if !hasDays {
		days, clock = "0", cell
	}
	total, ok := text.Digits(days, 6)
	parts := strings.Split(clock, ":")
	if !ok || len(parts) > 3 || hasDays && len(parts) != 3 {
		return 0
	}
	if len(parts) == 1 { // minutes alone
		parts = append(parts, "00")
	}
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	total *= 24
	for i, part := range parts {
		n, ok := text.Digits(part, 8)
		if !ok {
			return 0
		}
		if i > 0 {
			total *= 60
		}
		total += n
	}
	return time.Duration(total) * time.Second
}

func unexpected(program, out string) error {
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return problem.Newf(problem.Unable, "check the cluster with: berth doctor --slurm", "%s: expected a table, found %s", program, text.Found(first))
}
