package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/cli/front"
	"berth/internal/tests/testkit"
)

// Initialisers run before every command, the shortest too. These numbers do not
// depend on the machine; docs/studies/speed.md says what they cost.
const (
	mostStartBytes = 294_000 // allocated by all initialisers
	mostFrontBytes = 38_000  // of the small program
	mostOwnBytes   = 29_000  // by those of one package; the size of its maps varies by a few hundred bytes

	mostSubmitCalls = 34 // of the small program for one job, on files, sockets and processes
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

// TestASubmitIsAFewCalls: what the small program asks of the kernel for one job, beside
// Go's runtime, with today's number.
func TestASubmitIsAFewCalls(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	dir := t.TempDir()
	testkit.Must(t, testkit.Build(dir, "", "cmd/berth-front"))
	testkit.Must(t, os.Rename(filepath.Join(dir, "berth-front"), filepath.Join(dir, "berth"))) // as it is installed
	socket, traces := filepath.Join(dir, "s"), filepath.Join(dir, "trace")
	l, err := net.Listen("unix", socket)
	testkit.Must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "berth/"+front.Version)
		fmt.Fprintln(w, `{"jobs":[{"id":"7","name":"job7"}]}`)
	})}
	go server.Serve(l)
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-qq", "-o", traces, "-e", "trace=%file,%network,%process,read,write,close,fstat,fcntl,ppoll,poll", filepath.Join(dir, "berth"), "submit", "-g", "0", "--", "true")
	cmd.Env = []string{"BERTH_SOCKET=" + socket, "PATH=/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "submitted job 7\n" {
		t.Fatalf("%v: %s", err, out)
	}
	calls, all := map[string]int{}, 0
	for line := range strings.Lines(testkit.Read(t, traces)) {
		if _, call, found := strings.Cut(line, " "); found && strings.Contains(call, "(") {
			name, _, _ := strings.Cut(strings.TrimSpace(call), "(")
			if calls[name]++; name != "clone" { // threads depend on the machine
				all++
			}
		}
	}
	if t.Logf("%d calls: %v", all, calls); all > mostSubmitCalls || calls["connect"] > 1 || calls["execve"] > 1 || calls["fork"]+calls["vfork"] > 0 {
		t.Errorf("expected at most %d calls, one connection and one program, found %d: %v", mostSubmitCalls, all, calls)
	}
}
