// Command seeds lists the tests for each promise of the five programs that berth
// replaces. The promises are the rows of docs/reference/compatibility.md; a test
// names its rows in a comment, `seeds: K13 K14`.
//
// It exits 1 if a row has no test, a comment names an unknown row, or a comment is
// not in a test, or in one that never runs.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

func main() {
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	os.Exit(run(*root, os.Stdout, os.Stderr))
}

func run(root string, out, errOut io.Writer) int {
	found, err := look(root)
	if err != nil {
		fmt.Fprintf(errOut, "seeds: %v\n", err)
		return 2
	}
	show(out, found)
	for _, problem := range found.Problems {
		fmt.Fprintf(errOut, "seeds: %s\n", problem)
	}
	if len(found.Problems) > 0 {
		return 1
	}
	return 0
}

// report is the result.
type report struct {
	Rows     []row
	Proved   int // rows with a test
	Problems []string
}

// look reads the page and every test of the repository.
func look(root string) (report, error) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "compatibility.md"))
	if err != nil {
		return report{}, err
	}
	rows, problems := readRows(string(page))
	tags, misplaced, err := collect(root)
	if err != nil {
		return report{}, err
	}
	return match(rows, tags, append(problems, misplaced...)), nil
}

// match gives each row its tests, and reports mismatches.
func match(rows []row, tags []tag, problems []string) report {
	at := map[string]int{}
	for i, r := range rows {
		at[r.ID] = i
	}
	for _, t := range tags {
		for _, id := range t.ids {
			i, known := at[id]
			if !known {
				problems = append(problems, fmt.Sprintf("%s:%d: %q is not a row of docs/reference/compatibility.md", t.File, t.Line, id))
				continue
			}
			rows[i].Tests = append(rows[i].Tests, t.test)
		}
	}
	found := report{Rows: rows, Problems: problems}
	for _, r := range rows {
		if len(r.Tests) > 0 {
			found.Proved++
			continue
		}
		found.Problems = append(found.Problems, fmt.Sprintf("%s has no test: %s", r.ID, r.Promise))
	}
	return found
}

// show prints the report: a row, and each of its tests on a line.
func show(out io.Writer, found report) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	program := ""
	for _, r := range found.Rows {
		if r.Program != program {
			program = r.Program
			fmt.Fprintf(table, "%s\n", program)
		}
		tests := make([]string, 0, len(r.Tests))
		for _, t := range r.Tests {
			tests = append(tests, t.String())
		}
		if len(tests) == 0 {
			tests = []string{"(no test)"}
		}
		fmt.Fprintf(table, "  %s\t%s\n", r.ID, strings.Join(tests, "\n  \t"))
	}
	table.Flush()
	fmt.Fprintf(out, "%d of %d rows have a test\n", found.Proved, len(found.Rows))
}
