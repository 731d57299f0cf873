package testkit_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

func TestHoldsLooksUntilItHolds(t *testing.T) {
	looks := 0
	if !testkit.Holds(testkit.Patience, func() bool { looks++; return looks == 3 }) || looks != 3 {
		t.Errorf("looked %d times", looks)
	}
	if testkit.Holds(time.Millisecond, func() bool { return false }) {
		t.Error("what never holds came to hold")
	}
	if !testkit.Holds(0, func() bool { return true }) {
		t.Error("what holds at once does not hold")
	}
}

// failing is a test that is told to fail.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Fatal(...any)          { f.failed = true }
func (f *failing) Fatalf(string, ...any) { f.failed = true }
func (f *failing) Errorf(string, ...any) { f.failed = true }
func (f *failing) Error(...any)          { f.failed = true }

func TestWhatShouldFailFails(t *testing.T) {
	golden := filepath.Join(t.TempDir(), "golden")
	testkit.Write(t, golden, "one\n")
	for name, test := range map[string]struct {
		check func(testing.TB)
		fails bool
	}{
		"it does not come to hold":   {func(t testing.TB) { testkit.Within(t, 0, "", func() bool { return false }) }, true},
		"it holds":                   {func(t testing.TB) { testkit.Within(t, 0, "", func() bool { return true }) }, false},
		"it happens after all":       {func(t testing.TB) { testkit.Never(t, 0, "", func() bool { return true }) }, true},
		"it does not happen":         {func(t testing.TB) { testkit.Never(t, 0, "", func() bool { return false }) }, false},
		"an error":                   {func(t testing.TB) { testkit.Must(t, nil, os.ErrExist) }, true},
		"another text":               {func(t testing.TB) { testkit.Golden(t, golden, []byte("two\n")) }, true},
		"the same text":              {func(t testing.TB) { testkit.Golden(t, golden, []byte("one\n")) }, false},
		"a file that is not there":   {func(t testing.TB) { testkit.Read(t, golden+"2") }, true},
		"a place that cannot be had": {func(t testing.TB) { testkit.Write(t, golden+"/x", "") }, true},
	} {
		f := &failing{TB: t}
		test.check(f)
		if f.failed != test.fails {
			t.Errorf("%s: failed is %v", name, f.failed)
		}
	}
}

func TestFilesInOrder(t *testing.T) {
	const (
		a        = "package x\n\ntype A struct{ *B }\n"         // uses b
		b        = "package x\n\ntype B struct{ C *C }\n"       // uses c
		free     = "package x\n\ntype C int\n"                  // uses neither
		circular = "package x\n\ntype C func(a A) bool\n"       // uses a
		apart    = "//go:build never\n\npackage x\n\nvar _ A\n" // is in another build
	)
	for name, test := range map[string]struct {
		doc, c string
		fails  bool
	}{
		"each uses those above":      {"//\tone: c\n//\ttwo: b\n//\t  a\n", free, false},
		"one uses a later one":       {"//\tone: c\n//\ttwo: a\n//\tthree: b\n", free, true},
		"files of a group are free":  {"//\tone: a b c\n", free, false},
		"a cycle of three":           {"//\tone: a b c\n", circular, true},
		"only part of the package":   {"//\tone: b a\n//\ttwo: c\n", apart, false},
		"a file without a group":     {"//\tone: a b\n", free, true},
		"a group without a file":     {"//\tone: a b c d\n", free, true},
		"a file in two groups":       {"//\tone: a b c\n//\ttwo: c\n", free, true},
		"text before and after them": {"// Read:\n//\n//\tone: a b c\n//\n// See: nothing\n", free, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"doc": "// Package x.\n//\n" + test.doc + "package x\n", "a": a, "b": b, "c": test.c} {
				testkit.Write(t, filepath.Join(dir, file+".go"), text)
			}
			t.Chdir(dir)
			f := &failing{TB: t}
			testkit.FilesInOrder(f, 2)
			if f.failed != test.fails {
				t.Errorf("failed is %v", f.failed)
			}
		})
	}
}

func TestBuildLinksAProgramOncePerRun(t *testing.T) {
	kept, dir := t.TempDir(), filepath.Join(t.TempDir(), "new")
	t.Setenv("BERTH_TEST_BIN", kept)
	testkit.Write(t, filepath.Join(kept, "one+two@", "berth"), "linked before")
	testkit.Must(t, testkit.Build(dir, "one two", "cmd/berth"))
	if got := testkit.Read(t, filepath.Join(dir, "berth")); got != "linked before" {
		t.Errorf("berth is %d bytes, not those linked before", len(got))
	}
}
