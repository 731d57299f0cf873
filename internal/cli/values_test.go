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
		{"a margin below 0", "--margin -5", `--margin: found "-5", allowed 0 or more MiB, or a size with a unit M, G or T: 512, 1G, 1.5GiB`},
		{"a margin that is no size", "--margin lots", `--margin: found "lots", allowed 0 or more MiB`},
		{"a margin of nothing at all", "--margin=", `--margin: found "", allowed 0 or more MiB`},
		{"a margin beyond any machine", "--margin 99999T", `--margin: found "99999T", allowed 0 or more MiB`},
		{"a threshold below 0", "--idle-threshold -1G", `--idle-threshold: found "-1G", allowed 0 or more MiB`},
		{"a count that is no number", "--oom-retries two", `--oom-retries: found "two", allowed a whole number`},
		{"a count with a fraction", "--sim 1.5", `--sim: found "1.5", allowed a whole number`},
		{"a count that no machine has", "--jobs-per-gpu 5000000", "--jobs-per-gpu 5000000: allowed are 0 to 1000"},
		{"a fraction that is no number", "--tolerance ten", `--tolerance: found "ten", allowed a number such as 0.1`},
		{"a switch that is neither on nor off", "--watch=perhaps", `--watch: found "perhaps", allowed true or false, or the flag alone`},
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
