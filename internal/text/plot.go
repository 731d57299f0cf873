package text

import (
	"fmt"
	"math"
	"strings"
)

// Plot is an area chart for a terminal.
type Plot struct {
	Values []float64 // from left to right, in equal steps; NaN: unknown
	Line   float64   // a level drawn across the chart; 0: none
	Top    float64   // the least height of the chart
	Rows   int
	ASCII  bool
}

// PlotSteps is how many values fit a chart of that many columns.
func PlotSteps(columns int, ascii bool) int {
	if ascii {
		return columns
	}
	return 2 * columns
}

// Draw returns the rows of the chart, from the top, each beginning with its level
// on the axis.
func (p Plot) Draw() []string {
	top := math.Max(p.Top, p.Line)
	for _, v := range p.Values {
		if v > top { // never true for NaN
			top = v
		}
	}
	if top <= 0 {
		top = 1
	}
	label := func(level float64) string { return fmt.Sprintf("%6.1f", level) }
	lineRow := -1
	if p.Line > 0 {
		lineRow = p.Rows - max(1, int(math.Ceil(p.Line/top*float64(p.Rows))))
	}
	axis, edge := " │", " ┤"
	if p.ASCII {
		axis, edge = " |", " +"
	}
	rows := make([]string, p.Rows)
	for row := range rows {
		left := strings.Repeat(" ", 6) + axis
		switch {
		case row == lineRow:
			left = label(p.Line) + edge
		case row == 0:
			left = label(top) + edge
		case row == p.Rows-1:
			left = label(0) + edge
		}
		rows[row] = strings.TrimRight(left+p.row(row, top, row == lineRow), " ")
	}
	return rows
}

// row draws one row of cells.
func (p Plot) row(row int, top float64, line bool) string {
	var b strings.Builder
	empty := ' '
	switch {
	case line && p.ASCII:
		empty = '-'
	case line:
		empty = '╌'
	}
	per := PlotSteps(1, p.ASCII)
	for at := 0; at < len(p.Values); at += per {
		if p.ASCII {
			b.WriteRune(asciiCell(p.filled(at, row, 1, top), empty))
			continue
		}
		b.WriteRune(brailleCell(p.filled(at, row, 4, top), p.filled(at+1, row, 4, top), empty))
	}
	return b.String()
}

// filled is how many of the dots of a cell a value fills, from below. A value
// above zero fills at least the lowest dot of the chart.
func (p Plot) filled(at, row, dots int, top float64) int {
	if at >= len(p.Values) || math.IsNaN(p.Values[at]) || p.Values[at] <= 0 {
		return 0
	}
	height := max(1, int(math.Round(p.Values[at]/top*float64(p.Rows*dots))))
	return min(dots, max(0, height-(p.Rows-1-row)*dots))
}

func asciiCell(filled int, empty rune) rune {
	if filled > 0 {
		return '#'
	}
	return empty
}

// The dots of a braille cell, from below.
var (
	leftDots  = [5]rune{0, 0x40, 0x44, 0x46, 0x47}
	rightDots = [5]rune{0, 0x80, 0xa0, 0xb0, 0xb8}
)

func brailleCell(left, right int, empty rune) rune {
	if left == 0 && right == 0 {
		return empty
	}
	return 0x2800 + leftDots[left] + rightDots[right]
}

// Spark draws values in one row, a column each. Blanks are unknown.
func Spark(values []float64, top float64, ascii bool) string {
	const blocks, plain = "▁▂▃▄▅▆▇█", "_.-=+*%#"
	levels := []rune(blocks)
	if ascii {
		levels = []rune(plain)
	}
	var b strings.Builder
	for _, v := range values {
		if math.IsNaN(v) || top <= 0 {
			b.WriteByte(' ')
			continue
		}
		level := int(v / top * float64(len(levels)))
		b.WriteRune(levels[max(0, min(len(levels)-1, level))])
	}
	return b.String()
}
