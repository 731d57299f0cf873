package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOnlyOneIsRunAgain(t *testing.T) {
	for name, want := range map[string]string{"TestA": "^TestA$", "TestA/one (1.5)": `^TestA$/^one \(1\.5\)$`} {
		if got := only(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestFlakyTests runs real tests: those named Flaky fail the first time.
func TestFlakyTests(t *testing.T) {
	for _, tt := range []struct {
		says  string
		names []string
		busy  bool
		want  bool
	}{
		{"two flaky tests pass", []string{"Flaky1", "Flaky2"}, false, true},
		{"three do not", []string{"Flaky1", "Flaky2", "Flaky3"}, false, false},
		{"unless the machine is busy with other work", []string{"Flaky1", "Flaky2", "Flaky3"}, true, true},
		{"a test that keeps failing never passes", []string{"Broken"}, true, false},
	} {
		t.Run(tt.says, func(t *testing.T) {
			dir := t.TempDir()
			text := "package x\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc fail(t *testing.T) {\n" +
				"\tif os.Mkdir(t.Name(), 0o755) == nil || os.Getenv(\"SET\") != \"yes\" || t.Name() == \"TestBroken\" {\n\t\tt.Fatal(\"no\")\n\t}\n}\n"
			for _, name := range tt.names {
				text += "\nfunc Test" + name + "(t *testing.T) { fail(t) }\n"
			}
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module x/y\n"), 0o644), os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
			t.Chdir(dir)
			var out bytes.Buffer
			if got := passes([]string{"-vet=off", "-run", "Nothing", "./...", "--", "SET=yes", "-vet=off", "./..."}, &lockedWriter{to: &out}, func() bool { return tt.busy }); got != tt.want {
				t.Errorf("it passes: %t\n%s", got, out.String())
			}
			if listed := strings.Count(out.String(), "flaky: x/y Test"); listed != strings.Count(text, "func TestFlaky") {
				t.Errorf("%d flaky tests are listed:\n%s", listed, out.String())
			}
		})
	}
}

func TestWhatFailsARun(t *testing.T) {
	for _, tt := range []struct {
		says                  string
		events                []event
		failed, broken, grave int
	}{
		{"a test that fails can be run again", []event{
			{Action: "output", Package: "p", Test: "TestA", Output: "no\n"}, {Action: "fail", Package: "p", Test: "TestA"}, {Action: "fail", Package: "p"},
		}, 1, 0, 0},
		{"so can one whose subtest fails, and counts once", []event{
			{Action: "fail", Package: "p", Test: "TestA/one"}, {Action: "fail", Package: "p", Test: "TestA"}, {Action: "fail", Package: "p"},
		}, 1, 0, 0},
		{"a package that does not build cannot", []event{{Action: "build-fail", ImportPath: "p [p.test]"}, {Action: "fail", Package: "p"}}, 0, 2, 0},
		{"nor can a panic", []event{
			{Action: "output", Package: "p", Test: "TestA", Output: "panic: no\n"}, {Action: "fail", Package: "p", Test: "TestA"},
		}, 1, 0, 1},
		{"nor a data race", []event{
			{Action: "output", Package: "p", Test: "TestA", Output: "WARNING: DATA RACE\n"}, {Action: "fail", Package: "p", Test: "TestA"},
		}, 1, 0, 1},
		{"nor a program that is killed", []event{
			{Action: "fail", Package: "p", Test: "TestA"}, {Action: "output", Package: "p", Output: "signal: killed\n"}, {Action: "fail", Package: "p"},
		}, 1, 0, 1},
		{"nor one that ends before its tests do", []event{
			{Action: "run", Package: "p", Test: "TestA"}, {Action: "fail", Package: "p", Test: "TestA"}, {Action: "run", Package: "p", Test: "TestB"}, {Action: "fail", Package: "p"},
		}, 1, 0, 1},
		{"a subtest that passes is not its test", []event{
			{Action: "run", Package: "p", Test: "TestA"}, {Action: "pass", Package: "p", Test: "TestA/one"}, {Action: "fail", Package: "p"},
		}, 0, 0, 1},
		{"what passes is all right", []event{{Action: "pass", Package: "p", Test: "TestA"}, {Action: "pass", Package: "p"}}, 0, 0, 0},
	} {
		t.Run(tt.says, func(t *testing.T) {
			r := newResult()
			for _, e := range tt.events {
				r.take(e, io.Discard)
			}
			if got := []int{len(r.failed), len(r.broken), len(r.grave)}; !slices.Equal(got, []int{tt.failed, tt.broken, tt.grave}) {
				t.Errorf("%v: %+v", got, r)
			}
		})
	}
}

func TestTheSlowestTestsAreListed(t *testing.T) {
	r := newResult()
	for _, e := range []event{{Test: "TestA", Elapsed: 2}, {Test: "TestA/part", Elapsed: 9}, {Test: "TestB", Elapsed: 30}, {Elapsed: 40}} {
		e.Action, e.Package = "pass", "p"
		r.take(e, io.Discard)
	}
	var out bytes.Buffer
	tellSlowest([]*result{r}, &out)
	if want := "   30.0  p TestB\n    2.0  p TestA\n"; !strings.HasSuffix(out.String(), "seconds:\n"+want) {
		t.Errorf("%s", out.String())
	}
}
