// Command seeds lists the tests for each promise of the five programs that berth
// replaces. The promises are the rows of docs/reference/compatibility.md; a test
// names its rows in a comment, `seeds: K13 K14`. With -run it also runs them,
// and says of each whether it passed or skipped itself, and why.
//
// It exits 1 if a row has no test, a comment names an unknown row, a comment is
// not in a test, or in one that never runs, or a test failed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("seeds", flag.ContinueOnError)
	flags.SetOutput(errOut)
	asJSON := flags.Bool("json", false, "print the report as JSON")
	runTests := flags.Bool("run", false, "run the tests")
	root := flags.String("root", ".", "the repository")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(errOut, "seeds: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	found, err := look(*root)
	if err != nil {
		fmt.Fprintf(errOut, "seeds: %v\n", err)
		return 2
	}
	if *runTests {
		if err := runAll(*root, &found, errOut); err != nil {
			fmt.Fprintf(errOut, "seeds: %v\n", err)
			return 2
		}
	}
	if *asJSON {
		printer := json.NewEncoder(out)
		printer.SetIndent("", "  ")
		if err := printer.Encode(found); err != nil {
			fmt.Fprintf(errOut, "seeds: %v\n", err)
			return 2
		}
	} else {
		show(out, found, *runTests)
	}
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
	Rows     []row    `json:"rows"`
	Proved   int      `json:"proved"` // rows with a test; after a run, with one that passed
	Problems []string `json:"problems"`
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
func show(out io.Writer, found report, ran bool) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	program := ""
	for _, r := range found.Rows {
		if r.Program != program {
			program = r.Program
			fmt.Fprintf(table, "%s\n", program)
		}
		tests := make([]string, 0, len(r.Tests))
		for _, t := range r.Tests {
			line := t.String()
			if t.Result != nil {
				line += "\t" + t.Result.String()
			}
			tests = append(tests, line)
		}
		if len(tests) == 0 {
			tests = []string{"(no test)"}
		}
		fmt.Fprintf(table, "  %s\t%s\n", r.ID, strings.Join(tests, "\n  \t"))
	}
	table.Flush()
	what := "have a test"
	if ran {
		what = "have a test that passed here"
	}
	fmt.Fprintf(out, "%d of %d rows %s\n", found.Proved, len(found.Rows), what)
}
