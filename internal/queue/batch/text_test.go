package batch

import (
	"testing"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/text"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		declared int64
		peaks    map[int]int64
		outcome  job.Outcome
		want     string
	}{
		{"the highest card counts", 10000, map[int]int64{0: 100, 1: 10500}, job.OK, "declared 10000 MiB → within ±10%"},
		{"at the edge it is within", 10000, map[int]int64{0: 11000}, job.OK, "declared 10000 MiB → within ±10%"},
		{"more", 10000, map[int]int64{0: 13100}, job.OK, "declared 10000 MiB → UNDER-DECLARED (+31%); raise it"},
		{"more, of a job that failed", 10000, map[int]int64{0: 13100}, job.OOM, "declared 10000 MiB → UNDER-DECLARED (+31%); raise it"},
		{"less", 10000, map[int]int64{0: 5500}, job.OK, "declared 10000 MiB → over-declared (-45%); lowering it frees packing headroom"},
		{"less, of a job that did not get as far", 10000, map[int]int64{0: 5500}, "exit:1", ""},
		{"nothing was declared", 0, map[int]int64{0: 5500}, job.OK, ""},
		{"nothing was measured", 10000, nil, job.OK, ""},
	}
	for _, test := range tests {
		j := &job.Job{VRAMMiB: test.declared, Attempt: job.Attempt{PeakMiB: test.peaks}, Outcome: test.outcome}
		if got := verdict(j, 0.1); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestEncodedLinesCannotDriveATerminal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		written := rapid.String().Draw(rt, "text") + rapid.StringOf(rapid.RuneFrom([]rune("\x1b\x7f\u009b\u202e\n🚀é"))).Draw(rt, "more")
		line, err := encodeLine(record{Time: at0, Event: job.EventWarning, Text: written})
		if err != nil {
			rt.Fatal(err)
		}
		if text.Line(string(line)) != string(line) {
			rt.Fatalf("%q", line)
		}
	})
}
