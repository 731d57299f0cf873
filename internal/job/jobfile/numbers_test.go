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
		count, share, err := parseGPUs(row.text)
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
	got, err := parseAfter("prep, eval:ANY,a:b:fail")
	want := []job.Dependency{{Name: "prep", On: job.AfterOK}, {Name: "eval", On: job.AfterAny}, {Name: "a:b", On: job.AfterFail}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, text := range []string{"", "a,", ":ok", "a:", "a:never", "a,a"} {
		if _, err := parseAfter(text); err == nil {
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
		name, before, err := parseSignal(row.text)
		if (err == nil) != (row.name != "") || (err == nil && (name != row.name || before != row.before)) {
			t.Errorf("%q: %s %v %v", row.text, name, before, err)
		}
	}
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
