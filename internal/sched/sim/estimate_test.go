package sim

import (
	"testing"
	"time"

	"berth/internal/sched"
)

func TestEstimates(t *testing.T) {
	const s = time.Second
	rows := []struct {
		name      string
		estimates Estimates
		limits    bool
		known     bool // a span is known of the second job of its user
		want      sched.Estimate
	}{
		{"perfect ones are what will happen", Perfect, true, true, sched.Estimate{Low: 30 * s, Mid: 30 * s, High: 30 * s}},
		{"fixed ones are the same for all", Fixed(24 * time.Hour), true, true, sched.Estimate{Low: 86400 * s, Mid: 86400 * s, High: 86400 * s}},
		{"no estimates", None, false, false, sched.Estimate{}},
		{"limits say something, and no more than limits", Limits, true, true, sched.Estimate{}},
		{"history says something of a user's second job", History, true, true, sched.Estimate{}},
		{"history is the default", "", true, true, sched.Estimate{}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			looked := false
			in := input{
				Jobs:    []Job{seconds("1", "ann", 0, 30, 1), limited(seconds("2", "ann", 100, 30, 1), 500), seconds("3", "ann", 100, 20, 1)},
				Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo"), Estimates: row.estimates,
				Decide: func(s sched.State) sched.Plan {
					if p, queued := s.Queue.Get("1"); queued {
						looked = true
						checkSpan(t, p.Run, row.known, row.want)
						if (p.Limit == 500*time.Second) != row.limits {
							t.Errorf("the limit is %v", p.Limit)
						}
					}
					return sched.Decide(s)
				},
			}
			if run(in); !looked {
				t.Error("nobody looked")
			}
		})
	}
}

func checkSpan(t *testing.T, got sched.Estimate, known bool, want sched.Estimate) {
	t.Helper()
	if known != (got.Mid > 0) || want != (sched.Estimate{}) && got != want {
		t.Errorf("expected to run for %+v, want %+v", got, want)
	}
}

func TestHistoryIsWhatRanBeforeAndLimitsAreNot(t *testing.T) {
	mid := func(estimates Estimates) time.Duration {
		found := time.Duration(0)
		run(input{
			Jobs:    []Job{seconds("1", "ann", 0, 30, 1), seconds("2", "ann", 40, 30, 1), limited(seconds("3", "ann", 100, 30, 1), 86400)},
			Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo"), Estimates: estimates,
			Decide: func(s sched.State) sched.Plan {
				if p, queued := s.Queue.Get("2"); queued {
					found = p.Run.Mid
				}
				return sched.Decide(s)
			},
		})
		return found
	}
	if history, limits := mid(History), mid(Limits); history < 20*time.Second || history > 60*time.Second || limits < time.Minute {
		t.Errorf("from history %v, from limits %v", history, limits)
	}
}

func TestParseEstimates(t *testing.T) {
	for text, want := range map[string]Estimates{"history": History, "perfect": Perfect, "limits": Limits, "none": None, "24h": Fixed(24 * time.Hour), "90m": "1h30m0s"} {
		if got, err := ParseEstimates(text); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "guess", "0", "-1h", "24"} {
		if got, err := ParseEstimates(text); err == nil {
			t.Errorf("%q is read as %q", text, got)
		}
	}
	wantPanic(t, "were not parsed", func() { run(input{Estimates: "guess"}) })
}
