package jobfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
)

func TestSizes(t *testing.T) {
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

func TestDurations(t *testing.T) {
	// seeds: G6
	for _, row := range []struct {
		text string
		want time.Duration // 0: refused
	}{
		{"90", 90 * time.Second}, {"90s", 90 * time.Second}, {"15m", 15 * time.Minute}, {"2h", 2 * time.Hour},
		{"1d", 24 * time.Hour}, {"2H", 2 * time.Hour}, {"1.5h", 90 * time.Minute}, {"0.5", 500 * time.Millisecond},
		{"1:30", 90 * time.Second}, {"1:30:00", 90 * time.Minute}, {"90:00", 90 * time.Minute}, {"0:01", time.Second},
		{"100:00:00", 100 * time.Hour}, {"3650d", maxDuration}, {"3651d", 0}, {"0", 0}, {"0s", 0}, {"0:00", 0},
		{"1:60", 0}, {"1:00:60", 0}, {"1:2:3:4", 0}, {":30", 0}, {"1:", 0}, {"1:030", 0}, {"-5", 0}, {"5w", 0},
		{"1h30m", 0}, {"", 0}, {"s", 0}, {"0.0000000001s", 0}, {"1:-3", 0}, {"999999999:00:00", 0},
	} {
		got, err := ParseDuration(row.text)
		if got != row.want || (err == nil) != (row.want > 0) {
			t.Errorf("%q: %v, %v; want %v", row.text, got, err, row.want)
		}
	}
}

func TestGPUCounts(t *testing.T) {
	for _, row := range []struct {
		text  string
		count int
		share float64
		ok    bool
	}{
		{"0", 0, 0, true}, {"1", 1, 0, true}, {"8", 8, 0, true}, {"0.5", 1, 0.5, true}, {".25", 1, 0.25, true},
		{"1.0", 1, 0, true}, {"1.2", 2, 0, true}, {"1024", 1024, 0, true}, {"0.0", 0, 0, true},
		{"1025", 0, 0, false}, {"-1", 0, 0, false}, {"all", 0, 0, false}, {"2x", 0, 0, false}, {"", 0, 0, false},
	} {
		count, share, err := ParseGPUs(row.text)
		if count != row.count || share != row.share || (err == nil) != row.ok {
			t.Errorf("%q: %d %v %v", row.text, count, share, err)
		}
	}
}

func TestIDLists(t *testing.T) {
	for _, row := range []struct {
		text string
		want []int // nil: refused
	}{
		{"0", []int{0}}, {"3,1", []int{3, 1}}, {"0-3,5", []int{0, 1, 2, 3, 5}}, {" 1 , 3 - 4 ", []int{1, 3, 4}},
		{"2-2", []int{2}}, {"1,1", nil}, {"0-3,2", nil}, {"3-1", nil}, {"", nil}, {",", nil}, {"1,", nil},
		{"-1", nil}, {"1-", nil}, {"1024", nil}, {"0-99999999999", nil}, {"a", nil},
	} {
		got, err := ParseIDs(row.text)
		if !slices.Equal(got, row.want) || (err == nil) != (row.want != nil) {
			t.Errorf("%q: %v, %v; want %v", row.text, got, err, row.want)
		}
	}
	if all, err := ParseIDs("0-1023"); err != nil || len(all) != 1024 {
		t.Errorf("%d ids, %v", len(all), err)
	}
}

func TestWhatAJobWaitsFor(t *testing.T) {
	got, err := ParseAfter("prep, eval:ANY,a:b:fail")
	want := []job.Dependency{{Name: "prep", On: job.AfterOK}, {Name: "eval", On: job.AfterAny}, {Name: "a:b", On: job.AfterFail}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, text := range []string{"", "a,", ":ok", "a:", "a:never", "a,a"} {
		if _, err := ParseAfter(text); err == nil {
			t.Errorf("%q passed", text)
		}
	}
}

func TestWarningSignals(t *testing.T) {
	for _, row := range []struct {
		text, name string
		before     time.Duration
	}{
		{"USR1@60", "USR1", time.Minute}, {"sigterm@2m", "TERM", 2 * time.Minute}, {"INT", "INT", time.Minute},
		{"KILL@5", "", 0}, {"@5", "", 0}, {"USR1@", "", 0}, {"USR1 USR2@5", "", 0}, {"", "", 0},
	} {
		name, before, err := ParseSignal(row.text)
		if (err == nil) != (row.name != "") || (err == nil && (name != row.name || before != row.before)) {
			t.Errorf("%q: %s %v %v", row.text, name, before, err)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, seed := range []string{"18432", "1.5GiB", "1024T", ".5g", "1e9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		mib, err := ParseSize(text)
		if err != nil {
			return
		}
		if mib < 1 || mib > maxSizeMiB {
			t.Fatalf("%q gave %d MiB", text, mib)
		}
		if again, err := ParseSize(fmt.Sprintf("%dMiB", mib)); err != nil || again != mib {
			t.Fatalf("%d MiB came back as %d, %v", mib, again, err)
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"90", "1.5h", "1:30", "100:00:00", "3650d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		if d <= 0 || d > maxDuration {
			t.Fatalf("%q gave %v", text, d)
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

func FuzzIDs(f *testing.F) {
	for _, seed := range []string{"0", "0-3,5", "1023", "3-1", "0-1023,0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := ParseIDs(text)
		if err != nil {
			return
		}
		if len(ids) == 0 || len(ids) > maxID+1 {
			t.Fatalf("%q gave %d ids", text, len(ids))
		}
		words := make([]string, len(ids))
		for i, id := range ids {
			words[i] = fmt.Sprint(id)
		}
		again, err := ParseIDs(strings.Join(words, ","))
		if err != nil || !slices.Equal(again, ids) {
			t.Fatalf("%v came back as %v, %v", ids, again, err)
		}
	})
}
