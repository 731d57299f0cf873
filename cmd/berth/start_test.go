package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// Initialisers run before every command, the shortest too. These numbers do not
// depend on the machine; docs/studies/speed.md says what they cost.
const (
	mostStartBytes = 294_000 // allocated by all initialisers
	mostFrontBytes = 38_000  // of the small program
	mostOwnBytes   = 28_000  // by those of one package
)

func TestACommandStartsWithLittleWork(t *testing.T) {
	startsWithin(t, "berth", mostStartBytes)
}

func TestTheSmallProgramStartsWithLess(t *testing.T) {
	startsWithin(t, "berth-front", mostFrontBytes)
}

func startsWithin(t *testing.T, program string, most int) {
	dir := t.TempDir()
	testkit.Must(t, testkit.Build(dir, "", "cmd/"+program))
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, program), "--version")
	cmd.Args[0] = "berth"
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	testkit.Must(t, cmd.Run())
	total := 0
	for line := range strings.Lines(trace.String()) {
		var name string
		var at, took float64
		var bytes, allocs int
		if _, err := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &name, &at, &took, &bytes, &allocs); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if total += bytes; bytes > mostOwnBytes {
			t.Errorf("%s allocates %d bytes before main begins; at most %d may be", name, bytes, mostOwnBytes)
		}
	}
	if t.Logf("%d bytes", total); total > most {
		t.Errorf("the packages allocate %d bytes before main begins; at most %d may be", total, most)
	}
}
