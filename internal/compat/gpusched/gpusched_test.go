package gpusched

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"berth/internal/compat/frontend"
)

// asGpusched is a call of gpusched with a berth that only notes what it was
// asked.
func asGpusched(args ...string) (code int, asked []string, out, errOut string) {
	var o, e bytes.Buffer
	code = Program.Main(&frontend.Call{Name: "gpusched", Args: args, Out: &o, Err: &e, Version: "9.9",
		Berth: func(args []string, _, errOut io.Writer) int {
			asked = args
			io.WriteString(errOut, "berth: no room\nhint: see berth run --help, or berth doctor")
			return 7
		}})
	return code, asked, o.String(), e.String()
}

func TestGpuschedHasItsOwnDefaults(t *testing.T) {
	// seeds: G44 G45 G46 G47 G48 G50 G22
	code, asked, _, _ := asGpusched("jobs.txt")
	want := []string{"run", "--format=lines", "--as-gpusched", "--idle-threshold=200", "--margin=512", "--tolerance=0.10", "--spike-buffer=0.10",
		"--poll=5", "--oom-retries=0", "--log-dir=gpusched_logs", "--", "jobs.txt"}
	if !slices.Equal(asked, want) || code != 7 {
		t.Errorf("status %d, asked %q\nwant %q", code, asked, want)
	}
}

func TestGpuschedTakesItsFlagsAnywhereAndCutShort(t *testing.T) {
	_, asked, _, _ := asGpusched("--gpus", "0,1,3", "--idle=100", "-v", "jobs.txt", "--marg", "1", "--tol", "0.2", "--spike-buffer", "0.5",
		"--poll", "0.5", "--exclusive", "--watch", "--oom-retries", "2", "--fresh", "--retry-failed", "--log-dir", "out", "--sim", "2")
	want := []string{"run", "--format=lines", "--as-gpusched", "--gpus=0,1,3", "--idle-threshold=100", "--margin=1", "--tolerance=0.2", "--spike-buffer=0.5", "--poll=0.5",
		"--oom-retries=2", "--log-dir=out", "--sim=2", "--exclusive", "--watch", "--fresh", "--retry-failed", "--verbose", "--", "jobs.txt"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q\nwant  %q", asked, want)
	}
	if _, asked, _, _ = asGpusched("--", "-v"); !slices.Equal(asked[len(asked)-2:], []string{"--", "-v"}) {
		t.Errorf("a file called -v is asked for as %q", asked)
	}
}

func TestGpuschedRefusesWhatItDoesNotUnderstand(t *testing.T) {
	// seeds: G52
	for _, args := range [][]string{{}, {"a", "b"}, {"jobs.txt", "--nope"}, {"jobs.txt", "--ver"}, {"jobs.txt", "--sim"}, {"jobs.txt", "--json"}} {
		code, asked, out, errOut := asGpusched(args...)
		if code != 2 || asked != nil || out != "" || !strings.HasPrefix(errOut, "gpusched: ") || !strings.Contains(errOut, "\nhint: ") {
			t.Errorf("%q: status %d, asked %q, said %q %q", args, code, asked, out, errOut)
		}
	}
}

func TestGpuschedSpeaksInItsOwnName(t *testing.T) {
	// seeds: G59
	_, _, _, errOut := asGpusched("jobs.txt")
	if want := "gpusched: no room\nhint: see gpusched --help, or berth doctor"; errOut != want {
		t.Errorf("said %q, want %q", errOut, want)
	}
	if code, asked, out, _ := asGpusched("--version"); code != 0 || asked != nil || out != "gpusched 0.4.0 (berth 9.9)\n" {
		t.Errorf("--version: status %d, %q", code, out)
	}
	for _, args := range [][]string{{"--help"}, {"-h"}, {"jobs.txt", "--help"}} {
		code, asked, out, _ := asGpusched(args...)
		if code != 0 || asked != nil || out != usage {
			t.Errorf("%q: status %d, asked %q", args, code, asked)
		}
	}
	for line := range strings.Lines(usage) {
		if len([]rune(line)) > 81 {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
}
