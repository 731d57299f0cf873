package text

import (
	"slices"
	"strings"
)

// Column is one column of a table.
type Column struct {
	Title string
	Right bool // aligned to the right
	// A shy column is left out if all of its cells are empty.
	Shy bool
}

// Concession says how a table that does not fit gives up space: a column shrinks
// to a width, or with 0 is dropped.
type Concession struct {
	Title string
	To    int
}

// Cell is one value, and its colour.
type Cell struct {
	Text  string
	Paint Paint
}

// Table is rows under titles. Concessions are made in order, each only as far as
// needed. Without any title there is no line of titles.
type Table struct {
	Columns     []Column
	Concessions []Concession
	rows        [][]Cell
}

// Gap is the number of spaces between two columns.
const Gap = 2

// Titled is a table of left-aligned columns.
func Titled(titles ...string) *Table {
	t := &Table{}
	for _, title := range titles {
		t.Columns = append(t.Columns, Column{Title: title})
	}
	return t
}

// Add appends a row.
func (t *Table) Add(cells ...Cell) {
	for i := range cells {
		cells[i].Text = Line(cells[i].Text)
	}
	t.rows = append(t.rows, cells)
}

// Row appends a row without colours.
func (t *Table) Row(texts ...string) {
	cells := make([]Cell, len(texts))
	for i, s := range texts {
		cells[i].Text = s
	}
	t.Add(cells...)
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// widths are the widths of the columns, 0 for one that is left out.
func (t *Table) widths(total int) []int {
	natural := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		for _, row := range t.rows {
			natural[i] = max(natural[i], Width(row[i].Text))
		}
		if natural[i] > 0 || !c.Shy {
			natural[i] = max(natural[i], Width(c.Title))
		}
	}
	if total <= 0 {
		return natural
	}
	widths := slices.Clone(natural)
	for _, give := range t.Concessions {
		i := t.column(give.Title)
		over := sum(widths) - total
		if over <= 0 || widths[i] == 0 {
			continue
		}
		if give.To == 0 {
			widths[i] = 0
			continue
		}
		widths[i] = max(widths[i]-over, min(widths[i], give.To))
	}
	t.spend(widths, natural, total)
	return widths
}

// spend gives the space of a dropped column to those that shrank before it, the
// last first.
func (t *Table) spend(widths, natural []int, total int) {
	for _, give := range slices.Backward(t.Concessions) {
		i := t.column(give.Title)
		if spare := total - sum(widths); widths[i] > 0 && spare > 0 {
			widths[i] = min(natural[i], widths[i]+spare)
		}
	}
}

func (t *Table) column(title string) int {
	i := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Title == title })
	if i < 0 {
		panic("bug: no column " + title)
	}
	return i
}

func sum(widths []int) int {
	total := -Gap
	for _, w := range widths {
		if w > 0 {
			total += w + Gap
		}
	}
	return total
}

// Width is the width of the table without a limit.
func (t *Table) Width() int { return sum(t.widths(0)) }

// String is the table without a limit on its width, and without colours.
func (t *Table) String() string { return t.Draw(0, false) }

// Draw is the table within a width, 0 for no limit.
func (t *Table) Draw(columns int, colour bool) string {
	widths := t.widths(columns)
	b := &strings.Builder{}
	titles, titled := make([]Cell, len(t.Columns)), false
	for i, c := range t.Columns {
		titles[i] = Cell{c.Title, Bold}
		titled = titled || c.Title != ""
	}
	if titled {
		t.line(b, widths, titles, colour)
	}
	for _, row := range t.rows {
		t.line(b, widths, row, colour)
	}
	return b.String()
}

func (t *Table) line(b *strings.Builder, widths []int, row []Cell, colour bool) {
	pending := 0 // spaces that are written only if text follows
	first := true
	for i, c := range row {
		if widths[i] == 0 {
			continue
		}
		if !first {
			pending += Gap
		}
		first = false
		shown := Cut(c.Text, widths[i])
		blanks := widths[i] - Width(shown)
		if t.Columns[i].Right {
			pending, blanks = pending+blanks, 0
		}
		if shown != "" {
			b.WriteString(strings.Repeat(" ", pending))
			if colour {
				shown = c.Paint.On(shown)
			}
			b.WriteString(shown)
			pending = 0
		}
		pending += blanks
	}
	b.WriteByte('\n')
}
