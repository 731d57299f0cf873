package reason

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestTheBoundIsSaid from a quarter of it on.
func TestTheBoundIsSaid(t *testing.T) {
	const hour = time.Hour
	f := Forecast{Now: noon, Low: noon, Mid: noon.Add(hour), High: noon.Add(hour)}
	for _, row := range []struct {
		says   string
		oldest time.Duration // ago; 0: never
		bound  time.Duration
		change func(*Forecast)
		want   string
	}{
		{says: "it is another's turn to be its user's oldest", bound: 48 * hour},
		{says: "there is no bound", oldest: 90 * hour},
		{says: "hardly anything is over", oldest: 12*hour - 1, bound: 48 * hour},
		{says: "a quarter is over", oldest: 12 * hour, bound: 48 * hour, want: "; other jobs may overtake it for 48h in all (12h so far)"},
		{says: "most is over", oldest: 26*hour + 59*time.Minute, bound: 48 * hour, want: "; other jobs may overtake it for 48h in all (26h so far)"},
		{says: "all is over", oldest: 48 * hour, bound: 48 * hour, want: "; it has reached its overtake limit of 48h and goes first"},
		{says: "a short bound", oldest: 45 * time.Minute, bound: 90 * time.Minute, want: "; other jobs may overtake it for 1.5h in all (45m so far)"},
		{says: "it starts now", oldest: 26 * hour, bound: 48 * hour, change: func(f *Forecast) { f.High = f.Now }},
		{says: "nothing is expected of it", oldest: 26 * hour, bound: 48 * hour, change: func(f *Forecast) { f.None = NoneLimit }},
	} {
		forecast, oldest := f, time.Time{}
		if row.change != nil {
			row.change(&forecast)
		}
		if row.oldest > 0 {
			oldest = noon.Add(-row.oldest)
		}
		story := Story{OldestSince: oldest, MaxBypassS: row.bound.Seconds()}
		story.Expect(forecast)
		if got := story.overtaken(); got != row.want {
			t.Errorf("%s: got %q, want %q", row.says, got, row.want)
		}
	}
}

func TestAJobWithoutAGPUWaitsForCPUs(t *testing.T) {
	s := Story{Needs: Request{CPUs: 3}.Words(), Behind: &Behind{ID: "7", User: "ann"}, Expected: &Forecast{}}
	if got := s.String(); !strings.Contains(got, "for 3 CPUs") {
		t.Errorf("it says %q", got)
	}
}

func TestRequestsInWords(t *testing.T) {
	for want, asked := range map[string]Request{
		"an idle GPU":                             {GPUs: 1},
		"3 idle GPUs of type h100":                {GPUs: 3, Type: "h100"},
		"2 GPUs with 100 MiB each":                {GPUs: 2, VRAMMiB: 100},
		"share 0.5 of 1 GPU":                      {GPUs: 1, Share: .5},
		"gpu1, gpu0 idle":                         {GPUs: 2, IDs: []int{1, 0}},
		"1 GPU among gpu0, gpu1 with 5 MiB":       {GPUs: 1, VRAMMiB: 5, Allow: []int{0, 1}},
		"no GPU, 3 CPUs":                          {CPUs: 3},
		"an idle GPU, 1 CPU, 20 MiB of memory":    {GPUs: 1, CPUs: 1, MemMiB: 20},
		"1 GPU with 5 MiB and no other berth job": {GPUs: 1, VRAMMiB: 5, Exclusive: true},
	} {
		if got := asked.Words(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
