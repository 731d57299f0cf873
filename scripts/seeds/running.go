package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// result is what came of running a test. A test that needs root, or a program
// that is missing, skips itself and says so.
type result struct {
	Outcome string `json:"outcome"` // passed, failed, skipped, or empty: it did not run
	Why     string `json:"why,omitempty"`
}

func (r result) String() string {
	switch {
	case r.Outcome == "":
		return "DID NOT RUN"
	case r.Outcome == failed:
		return "FAILED"
	}
	return strings.TrimSuffix(r.Outcome+": "+r.Why, ": ")
}

const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// storiesTest is the test that runs the stories, each as a subtest.
const (
	storiesPackage = "internal/cli"
	storiesTest    = "TestStories"
)

// runAll runs every test of the report, and gives each its result.
func runAll(root string, found *report, progress io.Writer) error {
	packages, methods := plan(*found)
	results := map[test]result{}
	for _, dir := range slices.Sorted(keysOf(packages)) {
		fmt.Fprintf(progress, "running %d tests of %s\n", len(packages[dir]), dir)
		said, err := goTest(root, dir, packages[dir])
		if err != nil {
			return err
		}
		for t, r := range goResults(said, packages[dir]) {
			results[t] = r
		}
	}
	if len(methods) > 0 {
		fmt.Fprintf(progress, "running %d tests of Python\n", len(methods))
		for t, r := range pythonResults(unittest(root, methods), methods) {
			results[t] = r
		}
	}
	judge(found, results)
	return nil
}

func keysOf(m map[string][]test) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// plan sorts the tests by how they are run: by package of Go, and those of
// Python. Each appears once, without its line.
func plan(found report) (packages map[string][]test, methods []test) {
	packages = map[string][]test{}
	for _, r := range found.Rows {
		for _, t := range r.Tests {
			t.Line = 0
			if path.Ext(t.File) == ".py" {
				if !slices.Contains(methods, t) {
					methods = append(methods, t)
				}
				continue
			}
			dir := path.Dir(t.File)
			if path.Ext(t.File) == ".txtar" {
				dir = storiesPackage
			}
			if !slices.Contains(packages[dir], t) {
				packages[dir] = append(packages[dir], t)
			}
		}
	}
	return packages, methods
}

// goName is the name of a test in the output of go test.
func goName(t test) string {
	if t.Name == "" {
		return storiesTest + "/" + strings.TrimSuffix(path.Base(t.File), ".txtar")
	}
	return t.Name
}

// goTest runs tests of one package: functions first, then stories, because one
// pattern cannot choose some subtests of one function and all of another.
func goTest(root, dir string, tests []test) ([]byte, error) {
	var functions, stories, said []string
	for _, t := range tests {
		if function, story, is := strings.Cut(goName(t), "/"); is {
			stories = append(stories, regexp.QuoteMeta(story))
		} else {
			functions = append(functions, function)
		}
	}
	patterns := []string{}
	if len(functions) > 0 {
		patterns = append(patterns, "^("+strings.Join(functions, "|")+")$")
	}
	if len(stories) > 0 {
		patterns = append(patterns, "^"+storiesTest+"$/^("+strings.Join(stories, "|")+")$")
	}
	for _, pattern := range patterns {
		cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout", "30m", "-run", pattern, "./"+dir)
		cmd.Dir, cmd.Stderr = root, os.Stderr
		out, err := cmd.Output()
		if _, ended := err.(*exec.ExitError); err != nil && !ended {
			return nil, err
		}
		said = append(said, string(out))
	}
	return []byte(strings.Join(said, "")), nil
}

// goResults reads the output of go test -json.
func goResults(said []byte, tests []test) map[test]result {
	type event struct{ Action, Test, Output string }
	ends, output := map[string]string{}, map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(string(said)))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var ev event
		if json.Unmarshal(lines.Bytes(), &ev) != nil || ev.Test == "" {
			continue
		}
		switch ev.Action {
		case "pass", "fail", "skip":
			ends[ev.Test] = map[string]string{"pass": passed, "fail": failed, "skip": skipped}[ev.Action]
		case "output":
			output[ev.Test] += ev.Output
		}
	}
	results := map[test]result{}
	for _, t := range tests {
		r := result{Outcome: ends[goName(t)]}
		if r.Outcome == skipped {
			r.Why = whySkipped(output[goName(t)])
		}
		results[t] = r
	}
	return results
}

// skipLine is what a test said when it skipped itself: "file.go:12: why", or
// "skip: why" in a story.
var skipLine = regexp.MustCompile(`(?m)^\s+(?:\S+\.(?:go|txtar):\d+: |.*\bskip(?:ped)?:? '?)(.+?)'?$`)

func whySkipped(output string) string {
	all := skipLine.FindAllStringSubmatch(output, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// unittest runs tests of Python.
func unittest(root string, methods []test) []byte {
	args := []string{"-m", "unittest", "-v"}
	for _, t := range methods {
		args = append(args, pythonName(t))
	}
	cmd := exec.Command("python3", args...)
	cmd.Dir = filepath.Join(root, "python")
	if abs, err := filepath.Abs(filepath.Join(root, "bin", "berth")); err == nil && os.Getenv("BERTH_BINARY") == "" {
		if _, err := os.Stat(abs); err == nil {
			cmd.Env = append(os.Environ(), "BERTH_BINARY="+abs)
		}
	}
	said, _ := cmd.CombinedOutput() // a test that did not run is reported as such
	return said
}

// pythonName is the name of a test for unittest: tests.test_x.Class.method.
func pythonName(t test) string {
	module := strings.TrimSuffix(strings.TrimPrefix(t.File, "python/"), ".py")
	return strings.ReplaceAll(module, "/", ".") + "." + t.Name
}

// pythonLine is a line of unittest -v: "method (module.Class.method) ... ok".
// Older versions of Python leave the method out of the brackets.
var pythonLine = regexp.MustCompile(`(?m)^(\w+) \(([\w.]+)\)(?:\n.*)? \.\.\. (?:.*?)(ok|FAIL|ERROR|skipped (.*))$`)

// pythonResults reads the output of unittest -v.
func pythonResults(said []byte, methods []test) map[test]result {
	ends := map[string]result{}
	for _, line := range pythonLine.FindAllStringSubmatch(string(said), -1) {
		name := line[2]
		if !strings.HasSuffix(name, "."+line[1]) {
			name += "." + line[1]
		}
		switch {
		case line[3] == "ok":
			ends[name] = result{Outcome: passed}
		case strings.HasPrefix(line[3], "skipped"):
			ends[name] = result{Outcome: skipped, Why: strings.Trim(line[4], `'"`)}
		default:
			ends[name] = result{Outcome: failed}
		}
	}
	results := map[test]result{}
	for _, t := range methods {
		results[t] = ends[pythonName(t)]
	}
	return results
}

// judge puts the results into the report. A row is proved here if one of its
// tests passed; a test that failed or did not run is a problem.
func judge(found *report, results map[test]result) {
	found.Proved = 0
	told := map[test]bool{}
	for i := range found.Rows {
		proved := false
		for j := range found.Rows[i].Tests {
			t := &found.Rows[i].Tests[j]
			key := test{File: t.File, Name: t.Name}
			r := results[key]
			t.Result = &r
			proved = proved || r.Outcome == passed
			if (r.Outcome == failed || r.Outcome == "") && !told[key] {
				told[key] = true
				found.Problems = append(found.Problems, fmt.Sprintf("%s: %s", key, cmp.Or(r.Outcome, "did not run")))
			}
		}
		if proved {
			found.Proved++
		}
	}
}
