package text

import (
	"testing"
	"time"
)

func TestCounts(t *testing.T) {
	for _, test := range []struct {
		n               int
		noun            string
		plain, grouped  string
		verb, are, list string
	}{
		{0, "job", "0 jobs", "0 jobs", "wait", "are", ""},
		{1, "job", "1 job", "1 job", "waits", "is", "a"},
		{2, "retry", "2 retries", "2 retries", "wait", "are", "a, b"},
		{3, "key", "3 keys", "3 keys", "wait", "are", "a, b and 1 more"},
		{1200, "process", "1200 processes", "1,200 processes", "wait", "are", ""},
		{1234567, "GPU", "1234567 GPUs", "1,234,567 GPUs", "wait", "are", ""},
		{-1200, "job", "-1200 jobs", "-1,200 jobs", "wait", "are", ""},
	} {
		if got := Count(test.n, test.noun); got != test.plain {
			t.Errorf("%q, want %q", got, test.plain)
		}
		if got := CountGrouped(int64(test.n), test.noun); got != test.grouped {
			t.Errorf("%q, want %q", got, test.grouped)
		}
		if got := Verb(test.n, "wait"); got != test.verb {
			t.Errorf("%d %s", test.n, got)
		}
		if got := Verb(test.n, "are"); got != test.are {
			t.Errorf("%d %s", test.n, got)
		}
		if all := []string{"a", "b", "c"}; test.list != "" && Some(all[:test.n], 2) != test.list {
			t.Errorf("%q, want %q", Some(all[:test.n], 2), test.list)
		}
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		Decimal(1): "1", Decimal(0.12345): "0.123", Decimal(2.50): "2.5", Decimal(-0.5): "-0.5", Decimal(1e6): "1000000",
		Share(0.25): "0.25", Share(0.33333): "0.333",
		GiB(0): "0.0", GiB(17920): "17.5",
		Numbers(nil): "", Numbers([]int{0, 11, 2}): "0,11,2",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	for _, test := range []struct {
		d                           time.Duration
		span, seconds, clock, hours string
	}{
		{0, "0s", "0.0s", "0:00", "0m"},
		{2340 * time.Millisecond, "2s", "2.3s", "0:02", "0m"},
		{9990 * time.Millisecond, "9s", "10.0s", "0:09", "0m"},
		{74*time.Second + 600*time.Millisecond, "1m14s", "75s", "1:14", "1m"},
		{59*time.Minute + 59*time.Second, "59m59s", "3599s", "59:59", "59m"},
		{99 * time.Minute, "1h39m", "5940s", "1:39:00", "1.6h"},
		{26*time.Hour + 2*time.Minute + 3*time.Second, "1d2h", "93723s", "26:02:03", "26h"},
	} {
		for _, pair := range [][2]string{{Span(test.d), test.span}, {Seconds(test.d), test.seconds}, {Clock(test.d), test.clock}, {Hours(test.d), test.hours}} {
			if pair[0] != pair[1] {
				t.Errorf("%s is written %s, want %s", test.d, pair[0], pair[1])
			}
		}
	}
	if back := -time.Hour; Span(back) != "0s" || Seconds(back) != "0.0s" || Clock(back) != "0:00" {
		t.Errorf("a clock that was set back shows: %s %s %s", Span(back), Seconds(back), Clock(back))
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 6291456: "6,291,456", -1: "-1", -1000: "-1,000", -999: "-999", 1234567890: "1,234,567,890"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		30 * time.Minute: "30m", 2 * time.Hour: "2h", 90 * time.Minute: "1h30m", 45 * time.Second: "45s", 0: "0s", 3661 * time.Second: "1h1m1s", 3650 * 24 * time.Hour: "3650d", 36 * time.Hour: "1d12h",
	} {
		if got := Brief(d); got != want {
			t.Errorf("%v is %q", d, got)
		}
	}
}
