package jobfile

import (
	"fmt"
	"strings"
)

// maxProblems bounds a report: people fix the first few and try again.
const maxProblems = 20

// Problem is one error in one line.
type Problem struct {
	File string // "": not in a file
	Line int    // 0: in no particular line
	Text string
}

func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Text
	case p.Line == 0:
		return fmt.Sprintf("%s: %s", p.File, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Errors are the errors in a jobs file, in the order of its lines. It keeps at
// most 20; More counts the rest.
type Errors struct {
	Problems []Problem
	More     int
}

func (e *Errors) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.String())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.More)
	}
	return b.String()
}

// Add adds a problem, if there is room for it.
func (e *Errors) Add(file string, line int, text string) {
	if len(e.Problems) == maxProblems {
		e.More++
		return
	}
	e.Problems = append(e.Problems, Problem{File: file, Line: line, Text: text})
}
