package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

func TestTheLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	const limit = 100
	l, err := OpenLog(filepath.Join(dir, "berth.log"), limit)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 500 {
		if n, err := fmt.Fprintf(l, "line %03d\n", i); err != nil || n != 9 {
			t.Fatal(n, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1+logFiles {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, entry := range entries {
		if info, _ := entry.Info(); info.Size() > limit {
			t.Errorf("%s has %d bytes", entry.Name(), info.Size())
		}
	}
	if text := testkit.Read(t, filepath.Join(dir, "berth.log")); !strings.HasSuffix(text, "line 499\n") {
		t.Errorf("the newest file ends in %q", text)
	}
	// The old ones follow in order, without a gap.
	newest := testkit.Read(t, filepath.Join(dir, "berth.log"))
	older := testkit.Read(t, filepath.Join(dir, "berth.log.1"))
	var first, last int
	fmt.Sscanf(newest, "line %d", &first)
	fmt.Sscanf(older[len(older)-9:], "line %d", &last)
	if last+1 != first {
		t.Errorf("line %d is followed by line %d", last, first)
	}
}

func TestTheLogGoesOnWhereItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.log")
	testkit.Write(t, path, strings.Repeat("x", 90)+"\n")
	l, err := OpenLog(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fmt.Fprintln(l, "short")
	if text := testkit.Read(t, path); !strings.HasSuffix(text, "x\nshort\n") {
		t.Errorf("it has %q", text)
	}
	fmt.Fprintln(l, "one that is too much")
	if text := testkit.Read(t, path); text != "one that is too much\n" {
		t.Errorf("after rotation it has %q", text)
	}
	// One line above the bound is written all the same.
	long := strings.Repeat("y", 200)
	fmt.Fprintln(l, long)
	if text := testkit.Read(t, path); text != long+"\n" {
		t.Errorf("it has %q", text)
	}
	first, err := OpenLog(filepath.Join(t.TempDir(), "berth.log"), 100)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	fmt.Fprintln(first, long)
	if _, err := os.Stat(first.path + ".1"); !os.IsNotExist(err) {
		t.Errorf("an empty file was rotated: %v", err)
	}
}

func TestALogThatCannotBeWrittenStopsNobody(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLog(filepath.Join(dir, "berth.log"), 20)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if n, err := fmt.Fprint(l, "more than fits in here\n"); err != nil || n != 23 {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(l, "it is back\n")
	if text := testkit.Read(t, filepath.Join(dir, "berth.log")); text != "it is back\n" {
		t.Errorf("it has %q", text)
	}
}

func TestLogLevels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.log")
	l, err := OpenLog(path, LogBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, level := range Levels {
		if _, err := NewLogger(l, level); err != nil {
			t.Errorf("%s: %v", level, err)
		}
	}
	if _, err := NewLogger(l, "loud"); err == nil || !strings.Contains(err.Error(), "debug") {
		t.Errorf("loud: %v", err)
	}
	logger, _ := NewLogger(l, "warn")
	logger.Info("quiet")
	logger.Warn("heard")
	if text := testkit.Read(t, path); strings.Contains(text, "quiet") || !strings.Contains(text, "heard") {
		t.Errorf("it has %q", text)
	}
}
