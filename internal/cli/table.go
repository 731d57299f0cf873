package cli

import (
	"io"
	"slices"
	"strings"

	"berth/internal/text"
)

// column is one column of a table.
type column struct {
	title string
	right bool // numbers stand to the right
	// shy columns are left out where no row has anything in them.
	shy bool
}

// concession is what a table does where it does not fit: a column shrinks to
// so many columns of the terminal, or with 0 goes.
type concession struct {
	title string
	to    int
}

// cell is one value, and its colour.
type cell struct {
	text  string
	paint paint
}

// table is rows under titles. The concessions are made in their order, each
// only as far as it must be.
type table struct {
	columns     []column
	concessions []concession
	rows        [][]cell
}

const gap = 2

func (t *table) add(cells ...cell) {
	for i := range cells {
		cells[i].text = text.Line(cells[i].text)
	}
	t.rows = append(t.rows, cells)
}

// widths are those of the columns, 0 for one that is left out.
func (t *table) widths(total int) []int {
	natural := make([]int, len(t.columns))
	for i, c := range t.columns {
		for _, row := range t.rows {
			natural[i] = max(natural[i], text.Width(row[i].text))
		}
		if natural[i] > 0 || !c.shy {
			natural[i] = max(natural[i], text.Width(c.title))
		}
	}
	if total <= 0 {
		return natural
	}
	widths := slices.Clone(natural)
	for _, give := range t.concessions {
		i := t.column(give.title)
		over := tableWidth(widths) - total
		if over <= 0 || widths[i] == 0 {
			continue
		}
		if give.to == 0 {
			widths[i] = 0
			continue
		}
		widths[i] = max(widths[i]-over, min(widths[i], give.to))
	}
	t.spend(widths, natural, total)
	return widths
}

// spend gives what a column left that went to those that had shrunk before
// it, the last first.
func (t *table) spend(widths, natural []int, total int) {
	for _, give := range slices.Backward(t.concessions) {
		i := t.column(give.title)
		if spare := total - tableWidth(widths); widths[i] > 0 && spare > 0 {
			widths[i] = min(natural[i], widths[i]+spare)
		}
	}
}

func (t *table) column(title string) int {
	i := slices.IndexFunc(t.columns, func(c column) bool { return c.title == title })
	if i < 0 {
		panic("bug: no column " + title)
	}
	return i
}

func tableWidth(widths []int) int {
	total := -gap
	for _, w := range widths {
		if w > 0 {
			total += w + gap
		}
	}
	return total
}

// draw writes the table as wide as the screen is.
func (t *table) draw(s screen) error {
	widths := t.widths(s.width)
	w := &strings.Builder{}
	titles := make([]cell, len(t.columns))
	for i, c := range t.columns {
		titles[i] = cell{c.title, bold}
	}
	t.line(w, s, widths, titles)
	for _, row := range t.rows {
		t.line(w, s, widths, row)
	}
	_, err := io.WriteString(s.out, w.String())
	return err
}

func (t *table) line(w *strings.Builder, s screen, widths []int, row []cell) {
	pending := 0 // blanks that are written only if something follows
	first := true
	for i, c := range row {
		if widths[i] == 0 {
			continue
		}
		if !first {
			pending += gap
		}
		first = false
		written := text.Cut(c.text, widths[i])
		blanks := widths[i] - text.Width(written)
		if t.columns[i].right {
			pending, blanks = pending+blanks, 0
		}
		if written != "" {
			w.WriteString(strings.Repeat(" ", pending))
			w.WriteString(s.painted(c.paint, written))
			pending = 0
		}
		pending += blanks
	}
	w.WriteByte('\n')
}
