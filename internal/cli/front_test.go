package cli_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/cli/session"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// program runs one of the programs in a directory.
func program(t *testing.T, path string, args ...string) said {
	t.Helper()
	var out, complaint strings.Builder
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Args[0], cmd.Stdout, cmd.Stderr = "berth", &out, &complaint
	if err := cmd.Run(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended {
			t.Fatal(err)
		}
	}
	return said{cmd.ProcessState.ExitCode(), out.String(), complaint.String()}
}

// startFakeOfThisVersion is startFake with a daemon as a user has it.
func startFakeOfThisVersion(t *testing.T) *fakeDaemon {
	t.Helper()
	f := newFakeDaemon()
	socket := filepath.Join(t.TempDir(), "s")
	f.serveAs(t, socket, session.Version)
	t.Setenv("BERTH_SOCKET", socket)
	t.Setenv("BERTH_SIM", "")
	return f
}

// TestTheSmallProgramSubmitsPlainJobs alone, in one request, which is the one that
// the whole program sends.
func TestTheSmallProgramSubmitsPlainJobs(t *testing.T) {
	f := startFakeOfThisVersion(t)
	t.Setenv("BERTH_HOST_TOKEN", "secret")
	t.Setenv("QUOTED", "a\"b\\c\n\x01é")
	alone := filepath.Join(t.TempDir(), "berth") // berth-main is not beside it
	testkit.Must(t, os.Link(filepath.Join(binaries, "berth"), alone))
	program(t, alone, "--version").wants(t, 0, "berth "+session.Version+"\n", "")
	for _, flags := range [][]string{
		{"--", "true"},
		{"--", "python", "train.py", "--name", "ü \"x\""},
		{"-g", "0", "-n", "train", "--", "a 'b'\n\tc"},
		{"-e", "A=1", "-e", "B=x=y", "--hold", "--time=2h", "-p", "-3", "--", "true"},
		{"--gpus", "0.5", "--vram", "18G", "--preemptible", "--inject-gpus=--cuda=physical", "--", "python", "x"},
		{"--pty", "--after", "12:ok,@", "-c4", "--", "true"},
		{"-q", "--socket", os.Getenv("BERTH_SOCKET"), "--", "true"},
	} {
		f.forget()
		got := program(t, alone, append([]string{"submit"}, flags...)...)
		small := f.lastSubmission(t)
		if requests := f.forget(); !cmp.Equal(requests, []string{"submit"}) {
			t.Errorf("%q took the requests %q", flags, requests)
		}
		want := berth(append([]string{"submit"}, flags...)...)
		if want.code != 0 || got.code != 0 || got.err != "" || strings.Trim(got.out, "0123456789") != strings.Trim(want.out, "0123456789") && !strings.HasPrefix(got.out, "submitted job ") {
			t.Errorf("%q: %+v, and the whole program %+v", flags, got, want)
		}
		if diff := cmp.Diff(f.lastSubmission(t), small); diff != "" {
			t.Errorf("%q sends something else:\n%s", flags, diff)
		}
	}
}

// TestTheSmallProgramLeavesTheRest to the whole one, with the request that was sent.
func TestTheSmallProgramLeavesTheRest(t *testing.T) {
	f := startFakeOfThisVersion(t)
	small, whole := filepath.Join(binaries, "berth"), filepath.Join(binaries, "berth-main")
	unprintable := "--name=\xff"
	for _, line := range []struct {
		args    []string
		sends   int
		refusal *problem.Problem
	}{
		{[]string{"submit", "--dedup", "--", "true"}, 1, nil}, // it has a note
		{[]string{"submit", "--array", "0-3", "--", "true"}, 1, nil},
		{[]string{"submit", "--json", "-n", "x", "--", "true"}, 1, nil},
		{[]string{"submit", "--export", "none", "--", "true"}, 1, nil},
		{[]string{"submit", "-g", "12", "--", "true"}, 1, problem.Newf(problem.Refused, "lower --gpus", "job asks for 12 GPUs; this machine has 8")},
		{[]string{"submit", "-t", "1h", "--", "true"}, 1, problem.Newf(problem.Invalid, "", "timeout: no")},
		{[]string{"submit", "--time", "soon", "--", "true"}, 1, problem.Newf(problem.Invalid, "", "timeout: no")},
		{[]string{"submit", "--timeout", "3", "--", "true"}, 0, nil},
		{[]string{"submit", "--name=", "--", "true"}, 0, nil},
		{[]string{"submit", unprintable, "--", "true"}, 0, nil},
		{[]string{"submit", "-g"}, 0, nil},
		{[]string{"submit", "--"}, 0, nil},
		{[]string{"version", "--help"}, 0, nil},
		{nil, 0, nil},
	} {
		var ends []said
		for _, path := range []string{small, whole} {
			f.forget()
			f.refuse(line.refusal)
			ends = append(ends, program(t, path, line.args...))
			f.refuse(nil)
			submits := slices.DeleteFunc(f.forget(), func(request string) bool { return request != "submit" })
			if len(submits) > line.sends {
				t.Errorf("%s %q asked %d times, want %d", path, line.args, len(submits), line.sends)
			}
		}
		for i := range ends { // ids differ
			ends[i].out, ends[i].err = strings.Map(noDigits, ends[i].out), strings.Map(noDigits, ends[i].err)
		}
		if diff := cmp.Diff(ends[1], ends[0], cmp.AllowUnexported(said{})); diff != "" {
			t.Errorf("%q:\n%s", line.args, diff)
		}
	}
}

// forget returns the requests since it was last called.
func (f *fakeDaemon) forget() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	requests := f.requests
	f.requests = nil
	return requests
}

// refuse sets what the next submissions are answered with.
func (f *fakeDaemon) refuse(p *problem.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = p
}

func noDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}

// TestALostReplyIsNotARequestForMore: nobody knows whether the job was accepted.
func TestALostReplyIsNotARequestForMore(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	testkit.Must(t, err)
	defer listener.Close()
	asked := make(chan int, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			n, _ := conn.Read(make([]byte, 4096)) // how much does not matter
			asked <- n
			conn.Close()
		}
	}()
	t.Setenv("BERTH_SOCKET", socket)
	program(t, filepath.Join(binaries, "berth"), "submit", "--", "true").wants(t, 1, "", "berth: talk to the daemon at "+socket)
	if len(asked) != 1 {
		t.Errorf("it asked %d times", len(asked))
	}
}
