// Command runtests runs go test. A test or subtest that fails is run again alone,
// and if it fails again, with the test that it is part of: if it passes then, it is
// reported as flaky, on a line of its own, and does not fail the run. A repeated
// failure, a panic, a data race or a package that does not build does.
//
//	go run ./scripts/runtests -race -timeout 20m ./...
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of output of a build
	Elapsed                       float64
}

// result is the outcome of a run of tests.
type result struct {
	output map[string][]string // by package and test, separated by a space
	failed []string            // tests whose subtests did not fail, as package and name
	broken []string            // packages that failed without a failed test
	grave  []string            // lines that fail the run, whatever a second run says
	begun  map[string]bool     // tests that have not ended yet
	passed map[string]bool
}

func main() {
	first, err := run(os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	bad := false
	for _, pkg := range first.broken {
		fmt.Printf("\n== %s failed\n%s", pkg, strings.Join(first.output[pkg+" "], ""))
		bad = true
	}
	for _, test := range first.failed {
		fmt.Printf("\n== failed: %s\n%s", test, strings.Join(first.output[test], ""))
	}
	for _, line := range first.grave {
		fmt.Printf("\n== not repeated: %s", line)
		bad = true
	}
	for _, test := range first.failed {
		bad = !passesAlone(test) || bad
	}
	if bad {
		os.Exit(1)
	}
}

// passesAlone runs a test again and prints the outcome.
func passesAlone(test string) bool {
	pkg, name, _ := strings.Cut(test, " ")
	whole, _, _ := strings.Cut(name, "/")
	for i, name := range []string{name, whole} {
		try := i + 1
		args := append(slices.DeleteFunc(slices.Clone(os.Args[1:]), isPackage), "-run", only(name), pkg)
		again, err := run(args, io.Discard)
		switch {
		case err == nil && again.passed[test]:
			fmt.Printf("flaky: %s passed when run again alone (try %d)\n", test, try)
			return true
		case len(again.grave) > 0:
			fmt.Printf("failed again: %s: %s", test, again.grave[0])
			return false
		}
	}
	fmt.Printf("failed again, alone, twice: %s\n", test)
	return false
}

// only is the pattern that selects a test or subtest and no other.
func only(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

func isPackage(arg string) bool { return strings.HasPrefix(arg, "./") }

// run runs go test and writes a line for each package, and why tests were skipped.
func run(args []string, out io.Writer) (*result, error) {
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1"}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := newResult()
	lines := bufio.NewReader(pipe)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				e = event{Action: "output", Output: line}
			}
			r.take(e, out)
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	if err != nil && len(r.failed)+len(r.broken)+len(r.grave) == 0 {
		r.broken = append(r.broken, "go test")
	}
	return r, err
}

func newResult() *result {
	return &result{output: map[string][]string{}, begun: map[string]bool{}, passed: map[string]bool{}}
}

// grave are lines that mean more than a failed test, mostly the end of the
// program before all its tests ran.
var grave = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|signal: |exit status ([02-9]|1\d))`)

func (r *result) take(e event, out io.Writer) {
	pkg := e.Package
	if pkg == "" {
		pkg, _, _ = strings.Cut(e.ImportPath, " ")
	}
	key := pkg + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		r.output[key] = append(r.output[key], e.Output)
		if grave.MatchString(e.Output) {
			r.grave = append(r.grave, key+": "+e.Output)
		}
		if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "?")) {
			fmt.Fprint(out, e.Output)
		}
	case "run":
		r.begun[key] = true
	case "pass":
		delete(r.output, key)
		delete(r.begun, key)
		r.passed[key] = true
	case "skip":
		delete(r.begun, key)
		if e.Test != "" {
			fmt.Fprintf(out, "skipped: %s %s", key, strings.TrimLeft(strings.Join(r.output[key], ""), " "))
		}
	case "fail", "build-fail":
		switch {
		case e.Test != "":
			delete(r.begun, key)
			if !r.anyFailed(key + "/") {
				r.failed = append(r.failed, key)
				fmt.Fprintf(out, "failed: %s\n", key)
			}
		case r.unfinished(pkg):
		case !r.anyFailed(pkg + " "):
			r.broken = append(r.broken, pkg)
		}
	}
}

// anyFailed reports whether a failed test begins so.
func (r *result) anyFailed(prefix string) bool {
	return slices.ContainsFunc(r.failed, func(test string) bool { return strings.HasPrefix(test, prefix) })
}

// unfinished reports the tests of a package that began and did not end because
// their program did.
func (r *result) unfinished(pkg string) bool {
	before := len(r.grave)
	for test := range r.begun {
		if strings.HasPrefix(test, pkg+" ") {
			r.grave = append(r.grave, test+" did not end\n"+strings.Join(r.output[test], ""))
		}
	}
	return len(r.grave) > before
}
