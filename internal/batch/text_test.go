package batch

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
)

func TestClean(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"plain words stay", "python train.py --lr 0.1", "python train.py --lr 0.1"},
		{"so do other scripts", "训练 größe ✓", "训练 größe ✓"},
		{"an escape sequence loses its teeth", "\x1b[2Jgone", "�[2Jgone"},
		{"a newline cannot forge a line", "a\n[12:00:00] job 1 finished", "a�[12:00:00] job 1 finished"},
		{"a carriage return cannot write over one", "a\rb", "a�b"},
		{"nor can bytes that are not text", "a\xffb", "a�b"},
		{"nor can marks that turn the direction of writing", "a\u202eb", "a�b"},
		{"a C1 control is one too", "a\u009bb", "a�b"},
	}
	for _, test := range tests {
		if got := clean(test.text); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func columns(s string) (n int) {
	for _, r := range s {
		n += Width(r)
	}
	return n
}

func TestCut(t *testing.T) {
	tests := []struct {
		text    string
		columns int
		want    string
	}{
		{"short", 5, "short"},
		{"longer", 5, "long…"},
		{"", 5, ""},
		{"x", 0, ""},
		{"xy", 1, "…"},
		{"训练模型", 8, "训练模型"},
		{"训练模型", 7, "训练模…"},
		{"训练模型", 6, "训练…"},
		{"e\u0301te\u0301", 3, "e\u0301te\u0301"},
	}
	for _, test := range tests {
		if got := Cut(test.text, test.columns); got != test.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}

func TestCutNeverTakesMoreThanItsColumns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := clean(rapid.StringOf(rapid.RuneFrom([]rune("ab 训练🚀e\u0301…"))).Draw(rt, "text"))
		most := rapid.IntRange(1, 30).Draw(rt, "columns")
		got := Cut(text, most)
		if columns(got) > most {
			rt.Fatalf("%q takes %d columns of %d", got, columns(got), most)
		}
		if columns(text) <= most && got != text {
			rt.Fatalf("%q was cut to %q", text, got)
		}
		if kept := strings.TrimSuffix(got, "…"); got != text && !strings.HasPrefix(text, kept) {
			rt.Fatalf("%q is no beginning of %q", kept, text)
		}
	})
}

func TestDurations(t *testing.T) {
	tests := []struct {
		d              time.Duration
		seconds, clock string
	}{
		{0, "0.0s", "0:00"},
		{2340 * time.Millisecond, "2.3s", "0:02"},
		{9990 * time.Millisecond, "10.0s", "0:09"},
		{74*time.Second + 600*time.Millisecond, "75s", "1:14"},
		{59*time.Minute + 59*time.Second, "3599s", "59:59"},
		{26*time.Hour + 2*time.Minute + 3*time.Second, "93723s", "26:02:03"},
		{-time.Hour, "0.0s", "0:00"},
	}
	for _, test := range tests {
		if got := seconds(test.d); got != test.seconds {
			t.Errorf("seconds(%s) = %s, want %s", test.d, got, test.seconds)
		}
		if got := clock(test.d); got != test.clock {
			t.Errorf("clock(%s) = %s, want %s", test.d, got, test.clock)
		}
	}
}

func TestVerdict(t *testing.T) {
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
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String().Draw(rt, "text") + rapid.StringOf(rapid.RuneFrom([]rune("\x1b\x7f\u009b\u202e\n🚀é"))).Draw(rt, "more")
		line, err := encodeLine(record{Time: at0, Event: job.EventWarning, Text: text})
		if err != nil {
			rt.Fatal(err)
		}
		if clean(string(line)) != string(line) {
			rt.Fatalf("%q", line)
		}
	})
}
