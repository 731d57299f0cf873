package cli

import (
	"bufio"
	"strings"
)

// column is one column of a table. Where a table does not fit, columns
// shrink to their least width in the order of their rank, and then those that
// may go are left out, also in that order.
type column struct {
	title string
	least int  // columns it needs to mean anything; 0: it never shrinks
	rank  int  // smaller gives way earlier
	drops bool // may be left out
	right bool // numbers stand to the right
}

// cell is one value, and its colour.
type cell struct {
	text  string
	paint paint
}

// table is rows under titles.
type table struct {
	columns []column
	rows    [][]cell
}

const gap = 2

func (t *table) add(cells ...cell) {
	for i := range cells {
		cells[i].text = printable(cells[i].text)
	}
	t.rows = append(t.rows, cells)
}

// widths are those of the columns, 0 for one that is left out or empty.
func (t *table) widths(total int) []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		for _, row := range t.rows {
			widths[i] = max(widths[i], columnsOf(row[i].text))
		}
		if widths[i] > 0 || !c.drops {
			widths[i] = max(widths[i], columnsOf(c.title))
		}
	}
	if total <= 0 {
		return widths
	}
	for _, i := range t.byRank(func(c column) bool { return c.least > 0 }) {
		if over := tableWidth(widths) - total; over > 0 && widths[i] > 0 {
			widths[i] = max(widths[i]-over, min(widths[i], t.columns[i].least))
		}
	}
	for _, i := range t.byRank(func(c column) bool { return c.drops }) {
		if tableWidth(widths) > total {
			widths[i] = 0
		}
	}
	t.spend(widths, total)
	return widths
}

// spend gives what dropped columns left to those that had to shrink, those
// that shrank last first.
func (t *table) spend(widths []int, total int) {
	order := t.byRank(func(c column) bool { return c.least > 0 })
	for n := range order {
		i := order[len(order)-1-n]
		spare := total - tableWidth(widths)
		if widths[i] == 0 || spare <= 0 {
			continue
		}
		wanted := columnsOf(t.columns[i].title)
		for _, row := range t.rows {
			wanted = max(wanted, columnsOf(row[i].text))
		}
		widths[i] += min(spare, max(0, wanted-widths[i]))
	}
}

// byRank lists the columns that match, smaller ranks first.
func (t *table) byRank(match func(column) bool) []int {
	var order []int
	for i, c := range t.columns {
		if !match(c) {
			continue
		}
		at := len(order)
		for at > 0 && t.columns[order[at-1]].rank > c.rank {
			at--
		}
		order = append(order[:at], append([]int{i}, order[at:]...)...)
	}
	return order
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
	w := bufio.NewWriter(s.out)
	titles := make([]cell, len(t.columns))
	for i, c := range t.columns {
		titles[i] = cell{c.title, bold}
	}
	t.line(w, s, widths, titles)
	for _, row := range t.rows {
		t.line(w, s, widths, row)
	}
	return w.Flush()
}

func (t *table) line(w *bufio.Writer, s screen, widths []int, row []cell) {
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
		text := cut(c.text, widths[i])
		blanks := widths[i] - columnsOf(text)
		if t.columns[i].right {
			pending, blanks = pending+blanks, 0
		}
		if text != "" {
			w.WriteString(strings.Repeat(" ", pending))
			w.WriteString(s.painted(c.paint, text))
			pending = 0
		}
		pending += blanks
	}
	w.WriteByte('\n')
}
