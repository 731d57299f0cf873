package jobfile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestArrays(t *testing.T) {
	for _, row := range []struct {
		text  string
		want  []int
		limit int
	}{
		{"0", []int{0}, 0},
		{"0-3", []int{0, 1, 2, 3}, 0},
		{"1,3,5-7", []int{1, 3, 5, 6, 7}, 0},
		{"0-20:5%2", []int{0, 5, 10, 15, 20}, 2},
		{"0-19:5", []int{0, 5, 10, 15}, 0},
		{"5, 1 % 1", []int{5, 1}, 1},
		{"1073741824", []int{1 << 30}, 0},
		{"3-3%100", []int{3}, 100},
	} {
		got, err := ParseArray(row.text, 1000)
		if err != nil || !slices.Equal(got.Indices, row.want) || got.Limit != row.limit {
			t.Errorf("%s: %v %v", row.text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "found nothing", "x": `found "x"`, "-1": `found "-1"`, "3-1": `found "3-1"`, "0-3:0": `found "0-3:0"`, "5:2": `found "5:2"`,
		"1,": `found "1,"`, "1073741825": `found "1073741825"`, "0-3%0": `found "0"`, "0-3%": "found nothing", "0-3%x": `found "x"`,
		"99999999999": `found "99999999999"`,
		"0-3,2":       `expected each index once, found 2 twice in "0-3,2"`, "0-9:3,9": "found 9 twice",
		"0-1000":       "expected at most 1000 tasks in one array, found more in \"0-1000\"",
		"0-1073741824": "expected at most 1000 tasks",
	} {
		if _, err := ParseArray(text, 1000); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if got, err := ParseArray("0-999", 1000); err != nil || len(got.Indices) != 1000 {
		t.Errorf("as many as allowed: %v", err)
	}
}

func TestBeginnings(t *testing.T) {
	day := 24 * time.Hour
	for _, row := range []struct {
		text string
		want time.Time
	}{
		{"now", noon},
		{"NOW", noon},
		{"now+90", noon.Add(90 * time.Second)},
		{"now+2h", noon.Add(2 * time.Hour)},
		{"now+1:30:00", noon.Add(90 * time.Minute)},
		{"now+3days", noon.Add(3 * day)},
		{"now+1week", noon.Add(7 * day)},
		{"now+10 minutes", noon.Add(10 * time.Minute)},
		{"12:00", noon},
		{"16:00", noon.Add(4 * time.Hour)},
		{"12:00:05", noon.Add(5 * time.Second)},
		{"11:59", noon.Add(day - time.Minute)},
		{"noon", noon},
		{"midnight", noon.Add(12 * time.Hour)},
		{"tomorrow", noon.Add(12 * time.Hour)},
		{"2026-03-02", noon.Add(12 * time.Hour)},
		{"2026-03-01T16:00", noon.Add(4 * time.Hour)},
		{"2026-03-01 16:00", noon.Add(4 * time.Hour)},
		{"2026-03-01t16:00:05", noon.Add(4*time.Hour + 5*time.Second)},
		{"2026-03-01T16:00:00Z", noon.Add(6 * time.Hour)},
		{"2026-03-01T16:00:00+01:00", noon.Add(5 * time.Hour)},
	} {
		if got, err := ParseBegin(row.text, noon); err != nil || !got.Equal(row.want) {
			t.Errorf("%s: %v %v, want %v", row.text, got, err, row.want)
		}
	}
	for text, want := range map[string]string{
		"": "found nothing", "soon": `expected a time such as now+90`, "now+": "expected", "now+0": "expected", "now+x": "expected", "now-1h": "expected",
		"now+2fortnights": "expected", "25:00": "expected", "2026-02-30": "expected", "03/01": "expected", "4pm": "expected", "16": "expected",
		"2026-03-01":           `expected a time in the future, found "2026-03-01" (it is now 2026-03-01 12:00:00 X)`,
		"2025-12-31T23:59":     "expected",
		"2026-03-01T09:59:59Z": "expected",
		"2036-03-01":           `expected a time at most 3650 days from now, found "2036-03-01"`,
		"9999-12-31T23:59:59Z": "expected",
	} {
		if got, err := ParseBegin(text, noon); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v, want %s", text, got, err, want)
		}
	}
}

// TestATimeOfDayIsTheNextOne, also across days of 23 and 25 hours.
func TestATimeOfDayIsTheNextOne(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones here: " + err.Error())
	}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, zone).Add(time.Duration(rapid.IntRange(0, 366*86400).Draw(t, "s")) * time.Second)
		text := now.Add(time.Duration(rapid.IntRange(-86400, 86400).Draw(t, "by")) * time.Second).Format("15:04:05")
		got, err := ParseBegin(text, now)
		if err != nil || got.Before(now) || got.Sub(now) > 26*time.Hour {
			t.Fatalf("%s at %v: %v %v", text, now, got, err)
		}
	})
}

func TestABeginningHasNoMonotonicClock(t *testing.T) {
	now := time.Now()
	got, err := ParseBegin("now+1h", now)
	if err != nil || got != got.Round(0) {
		t.Errorf("%v %v", got, err)
	}
}
