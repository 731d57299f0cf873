// Package testkit has what tests of several packages need: waiting for a
// condition, the programs under test, files and golden files. Only tests import
// it, and it imports no other package of berth.
package testkit

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen. It allows for a slow
// machine under load, where starting a daemon alone has taken more than a minute.
const Patience = 3 * time.Minute

// glance is how often a condition is checked.
const glance = 5 * time.Millisecond

// Parallel lets n tests of a package run at a time, unless -parallel says otherwise.
// It is for packages whose tests wait for processes more than they compute.
func Parallel(n int) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = flag.Set(f.Name, strconv.Itoa(n)) // a number is valid
	}
}

// Holds waits until a condition holds, and reports whether it does.
func Holds(limit time.Duration, condition func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return condition()
		}
	}
	return true
}

// Eventually fails the test if a condition does not become true.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Patience, what, holds)
}

// Within is Eventually with a limit of its own.
func Within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	if !Holds(limit, holds) {
		t.Fatalf("after %s still not: %s", limit, what)
	}
}

// Never fails the test if a condition becomes true.
func Never(t testing.TB, during time.Duration, what string, happens func() bool) {
	t.Helper()
	if Holds(during, happens) {
		t.Fatalf("it happened: %s", what)
	}
}

// Must fails the test on an error.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Write writes a file, and the directories above it. Its mode is 0644, unless
// one is given.
func Write(t testing.TB, path, text string, mode ...os.FileMode) {
	t.Helper()
	mode = append(mode, 0o644)
	Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Must(t, os.WriteFile(path, []byte(text), mode[0]), os.Chmod(path, mode[0]))
}

// Read is the text of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	Must(t, err)
	return string(text)
}

// Update is the -update flag: rewrite golden files.
var Update = flag.Bool("update", false, "write the golden files anew")

// Golden compares text with a golden file.
func Golden(t testing.TB, path string, got []byte) {
	t.Helper()
	if *Update {
		Must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (-update writes it)", err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s differs (-update if that is meant):\n--- want\n%s--- got\n%s", path, want, got)
	}
}

// Accounts runs a program that changes the accounts of this machine, which others may
// have locked for a moment.
func Accounts(t testing.TB, name string, args ...string) {
	t.Helper()
	var out []byte
	var err error
	Eventually(t, name+" gets its turn", func() bool {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err == nil || !strings.Contains(string(out), "lock")
	})
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}
