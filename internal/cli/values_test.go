package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"berth/internal/cli"
)

func TestFlagsSayWhatTheyAllowInPlainWords(t *testing.T) {
	tests := []struct {
		name string
		args string
		says string
	}{
		{"a margin below 0", "--margin -5", `--margin: expected 0 or a size such as 512 (MiB), 1G or 1.5T, found "-5"`},
		{"a margin that is no size", "--margin lots", `--margin: expected 0 or a size such as 512 (MiB), 1G or 1.5T, found "lots"`},
		{"a margin of nothing at all", "--margin=", `--margin: expected 0 or a size such as 512 (MiB), 1G or 1.5T, found ""`},
		{"a margin beyond any machine", "--margin 99999T", `--margin: expected 0 or a size such as 512 (MiB), 1G or 1.5T, found "99999T"`},
		{"a threshold below 0", "--idle-threshold -1G", `--idle-threshold: expected 0 or a size such as 512 (MiB), 1G or 1.5T, found "-1G"`},
		{"a count that is no number", "--oom-retries two", `--oom-retries: expected a whole number, found "two"`},
		{"a count with a fraction", "--sim 1.5", `--sim: expected a whole number, found "1.5"`},
		{"a count that no machine has", "--jobs-per-gpu 5000000", "--jobs-per-gpu: expected a number from 0 to 1000, found 5000000"},
		{"a fraction that is no number", "--tolerance ten", `--tolerance: expected a number such as 0.1, found "ten"`},
		{"a switch that is neither on nor off", "--watch=perhaps", `--watch: expected true, false, or the flag without a value, found "perhaps"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out, complaint bytes.Buffer
			code := cli.Main(append([]string{"run", "jobs.txt"}, strings.Fields(test.args)...), &out, &complaint)
			if code != 2 || !strings.HasPrefix(complaint.String(), "berth: "+test.says) {
				t.Errorf("exit status %d, it says %q, want %q", code, complaint.String(), test.says)
			}
			if strings.Contains(complaint.String(), "strconv") || !strings.Contains(complaint.String(), "hint: see berth run --help\n") {
				t.Errorf("it says %q", complaint.String())
			}
		})
	}
}

func TestSizesInFlagsTakeUnits(t *testing.T) {
	// The jobs file is missing, which is found out only after the flags were
	// taken.
	for _, args := range []string{"--margin 1G", "--margin 0", "--idle-threshold 1.5gib", "--idle-threshold 00", "--margin 300"} {
		var out, complaint bytes.Buffer
		code := cli.Main(append([]string{"run", t.TempDir() + "/none"}, strings.Fields(args)...), &out, &complaint)
		if code != 2 || !strings.Contains(complaint.String(), "no such file") {
			t.Errorf("%s: exit status %d, it says %q", args, code, complaint.String())
		}
	}
}
