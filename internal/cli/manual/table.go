package manual

import (
	"slices"
	"strings"

	"berth/internal/text"
)

// narrowest is how wide a column of wrapped prose must be to be readable.
const narrowest = 18

// table lays out rows under titles within the page, with wrapped cells. Where
// that leaves too little room for prose, each row becomes a short list.
func (t *terminal) table(b *block, indent string) {
	var rows [][]string
	for _, row := range b.rows {
		var cells []string
		for _, cell := range row {
			cells = append(cells, strings.Join(strings.Fields(t.inline(cell)), " "))
		}
		rows = append(rows, cells)
	}
	if widths, fits := columnWidths(rows, t.style.Columns-text.Width(indent)); fits {
		t.grid(rows, widths, indent)
	} else {
		t.entries(rows, indent)
	}
}

// columnWidths shares the columns of the terminal between those of the table:
// each gets what its longest word needs, then the rest goes to the one whose
// text is squeezed most. It tells whether all cells stay readable.
func columnWidths(rows [][]string, total int) (widths []int, fits bool) {
	count := len(rows[0])
	natural, least := make([]int, count), make([]int, count)
	for _, row := range rows {
		for i, cell := range row {
			natural[i] = max(natural[i], width(cell))
			for _, word := range strings.Fields(cell) {
				least[i] = max(least[i], width(word))
			}
		}
	}
	left := total - text.Gap*(count-1)
	for i := range least {
		least[i] = min(natural[i], max(least[i], narrowest))
		left -= least[i]
	}
	if left < 0 {
		return nil, false
	}
	for ; left > 0; left-- {
		most, at := 1.0, -1
		for i := range least {
			if squeezed := float64(natural[i]) / float64(max(1, least[i])); squeezed > most {
				most, at = squeezed, i
			}
		}
		if at < 0 {
			break
		}
		least[at]++
	}
	return least, true
}

func (t *terminal) grid(rows [][]string, widths []int, indent string) {
	spaced := false // rows of several lines have an empty line between them
	for _, row := range rows {
		for i, cell := range row {
			spaced = spaced || len(wrap(cell, widths[i])) > 2
		}
	}
	for number, row := range rows {
		var cells [][]string
		height := 0
		for i, cell := range row {
			cells = append(cells, wrap(cell, widths[i]))
			height = max(height, len(cells[i]))
		}
		if spaced && number > 1 {
			t.out.WriteByte('\n')
		}
		for line := range height {
			var shown strings.Builder
			shown.WriteString(indent)
			for i, cell := range cells {
				part := ""
				if line < len(cell) {
					part = cell[line]
				}
				blanks := strings.Repeat(" ", max(0, widths[i]-width(part))+text.Gap)
				if number == 0 && t.style.Colour {
					part = text.Bold.On(part)
				}
				shown.WriteString(part + blanks)
			}
			t.out.WriteString(strings.TrimRight(shown.String(), " ") + "\n")
		}
		if number == 0 && !t.style.Colour && !slices.Equal(row, make([]string, len(row))) {
			t.rule(widths, indent)
		}
	}
}

// rule underlines the titles.
func (t *terminal) rule(widths []int, indent string) {
	var parts []string
	for _, w := range widths {
		parts = append(parts, strings.Repeat("-", w))
	}
	t.out.WriteString(indent + strings.Join(parts, strings.Repeat(" ", text.Gap)) + "\n")
}

// entries shows each row as its first cell and, below it, the second, which
// explains it, and the others by their titles.
func (t *terminal) entries(rows [][]string, indent string) {
	titles := rows[0]
	for number, row := range rows[1:] {
		if number > 0 {
			t.out.WriteByte('\n')
		}
		t.wrapped(t.paint(row[0]), indent, indent+"  ")
		for i, cell := range row[1:] {
			if i > 0 && cell != "" && titles[i+1] != "" {
				cell = titles[i+1] + ": " + cell
			}
			if cell != "" {
				t.wrapped(cell, indent+"    ", indent+"      ")
			}
		}
	}
}
