package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// row is one promise of docs/reference/compatibility.md.
type row struct {
	ID      string
	Program string // the heading above it
	Promise string
	Tests   []test
}

// rowForm is how rows are numbered: a letter for the program, then a number.
var rowForm = regexp.MustCompile(`^([A-Z])([1-9][0-9]*)$`)

// readRows reads the rows of the tables of the page. The numbers of a letter
// run from 1 without a gap, so that a row lost in an edit is noticed.
func readRows(page string) (rows []row, problems []string) {
	program := ""
	last := map[string]int{}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			program = title
		}
		cells := cellsOf(line)
		if len(cells) == 0 {
			continue
		}
		form := rowForm.FindStringSubmatch(cells[0])
		if form == nil {
			continue // the head of a table
		}
		if len(cells) != 3 || cells[1] == "" {
			problems = append(problems, fmt.Sprintf("docs/reference/compatibility.md: %s is not | row | what it promises | note |", cells[0]))
			continue
		}
		number, _ := strconv.Atoi(form[2])
		if number != last[form[1]]+1 {
			problems = append(problems, fmt.Sprintf("docs/reference/compatibility.md: %s comes after %s%d", cells[0], form[1], last[form[1]]))
		}
		last[form[1]] = number
		rows = append(rows, row{ID: cells[0], Program: program, Promise: cells[1], Tests: []test{}})
	}
	return rows, problems
}

// cellsOf are the cells of a line of a table; \| is a bar inside of one.
func cellsOf(line string) []string {
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") || len(line) < 2 {
		return nil
	}
	const bar = "\x00"
	cells := strings.Split(strings.ReplaceAll(line[1:len(line)-1], `\|`, bar), "|")
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cell, bar, "|"))
	}
	return cells
}
