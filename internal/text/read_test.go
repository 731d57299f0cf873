package text

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestReadingSizes(t *testing.T) {
	for _, row := range []struct {
		text string
		want int64 // 0: refused
	}{
		{"18432", 18432}, {"18g", 18432}, {"18G", 18432}, {"18GB", 18432}, {"18 GiB", 18432},
		{"1.5gib", 1536}, {".5G", 512}, {"1.", 1}, {"512m", 512}, {"512MiB", 512}, {"512mb", 512},
		{"1T", 1 << 20}, {"2tib", 2 << 20}, {"0.1", 1}, {"1.1G", 1127}, {"0.0001G", 1},
		{"1024T", 1 << 30}, {"1025T", 0}, {"0", 0}, {"0.0G", 0}, {"", 0}, {"G", 0}, {"-1", 0}, {"+1", 0},
		{"1e3", 0}, {"0x10", 0}, {"inf", 0}, {"nan", 0}, {"1.2.3", 0}, {"10K", 0}, {"10GG", 0}, {"1_000", 0},
		{strings.Repeat("9", 400), 0}, {"１", 0},
	} {
		got, err := ParseSize(row.text)
		if got != row.want || (err == nil) != (row.want > 0) {
			t.Errorf("%q: %d, %v; want %d", row.text, got, err, row.want)
		}
	}
}

func TestReadingDurations(t *testing.T) {
	// seeds: G6
	for _, row := range []struct {
		text string
		want time.Duration // 0: refused
	}{
		{"90", 90 * time.Second}, {"90s", 90 * time.Second}, {"15m", 15 * time.Minute}, {"2h", 2 * time.Hour},
		{"1d", 24 * time.Hour}, {"2H", 2 * time.Hour}, {"1.5h", 90 * time.Minute}, {"0.5", 500 * time.Millisecond},
		{"1:30", 90 * time.Second}, {"1:30:00", 90 * time.Minute}, {"90:00", 90 * time.Minute}, {"0:01", time.Second},
		{"100:00:00", 100 * time.Hour}, {"3650d", MaxDuration}, {"3651d", 0}, {"0", 0}, {"0s", 0}, {"0:00", 0},
		{"1:60", 0}, {"1:00:60", 0}, {"1:2:3:4", 0}, {":30", 0}, {"1:", 0}, {"1:030", 0}, {"-5", 0}, {"5w", 0},
		{"1h30m", 0}, {"", 0}, {"s", 0}, {"0.0000000001s", 0}, {"1:-3", 0}, {"999999999:00:00", 0},
	} {
		got, err := ParseDuration(row.text)
		if got != row.want || (err == nil) != (row.want > 0) {
			t.Errorf("%q: %v, %v; want %v", row.text, got, err, row.want)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, seed := range []string{"18432", "1.5GiB", "1024T", ".5g", "1e9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, written string) {
		mib, err := ParseSize(written)
		if err != nil {
			return
		}
		if mib < 1 || mib > MaxSizeMiB {
			t.Fatalf("%q gave %d MiB", written, mib)
		}
		if again, err := ParseSize(FormatSize(mib)); err != nil || again != mib {
			t.Fatalf("%d MiB came back as %d, %v", mib, again, err)
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"90", "1.5h", "1:30", "100:00:00", "3650d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, written string) {
		d, err := ParseDuration(written)
		if err != nil {
			return
		}
		if d <= 0 || d > MaxDuration {
			t.Fatalf("%q gave %v", written, d)
		}
		if again, err := ParseDuration(FormatDuration(d)); err != nil || again.Round(time.Microsecond) != d.Round(time.Microsecond) {
			t.Fatalf("%v, written %s, came back as %v, %v", d, FormatDuration(d), again, err)
		}
		whole := d.Truncate(time.Second)
		if whole == 0 {
			return
		}
		s := int64(whole / time.Second)
		clock := fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
		if again, err := ParseDuration(clock); err != nil || again != whole {
			t.Fatalf("%s came back as %v, %v", clock, again, err)
		}
	})
}

func TestNearest(t *testing.T) {
	for _, row := range []struct{ word, want string }{
		{"vrma", "vram"},
		{"VRM", "vram"},
		{"gpu", "gpus"},
		{"time_out", "timeout"},
		{"retrys", "retries"},
		{"ontimeout", "on_timeout"},
		{"xyzzyplugh", ""},
		{"nap", ""}, // two of three letters are wrong
		{"", ""},
		{strings.Repeat("vram", 100), ""},
	} {
		if got := Nearest(row.word, []string{"gpus", "vram", "timeout", "retries", "on_timeout", "name"}); got != row.want {
			t.Errorf("nearest to %q is %q, want %q", row.word, got, row.want)
		}
	}
}

// TestShellWords: as a shell cuts a line, with nothing expanded.
func TestShellWords(t *testing.T) {
	for _, test := range []struct {
		line     string
		comments bool
		want     string
	}{
		{"", false, `[]`},
		{" a\t'b c'\"d\\\" e\"\\ f \r", false, `["a" "b cd\" e f"]`},
		{`"\n\\\$" '\'`, false, `["\\n\\$" "\\"]`},
		{"a #b c#d", false, `["a" "#b" "c#d"]`},
		{"a c#d #b 'e", true, `["a" "c#d"]`},
		{`''`, false, `[""]`},
		{`a "b`, false, ErrQuote.Error()},
		{`a 'b`, true, ErrQuote.Error()},
		{`a b\`, false, ErrBackslash.Error()},
	} {
		words, err := ShellWords(test.line, test.comments)
		got := fmt.Sprintf("%q", words)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.line, got, test.want)
		}
	}
}
