package sim

import (
	"testing"
	"time"

	"berth/internal/sched"
)

// TestBorrowedGPUsComeBackInAReplay: ann has two of two GPUs, one of them borrowed, and
// bob comes before her jobs have run for long enough to take turns.
func TestBorrowedGPUsComeBackInAReplay(t *testing.T) {
	jobs := []Job{seconds("1", "ann", 0, 1000, 1), seconds("2", "ann", 0, 1000, 1), seconds("3", "bob", 90, 100, 1)}
	for _, row := range []struct {
		says  string
		limit sched.Limit
		bob   float64
		minS  int
	}{
		{"beyond her share she gives way", sched.Limit{Share: 1}, 100, 60},
		{"after her minimum run", sched.Limit{Share: 1}, 160, 150},
		{"within it, once she has run for three minutes", sched.Limit{Share: 2}, 190, 60},
		{"a hard limit leaves the GPU to him", sched.Limit{Share: 1, GPUs: 1}, 90, 60},
	} {
		t.Run(row.says, func(t *testing.T) {
			p := policy(t, Default)
			p.Rules.BorrowTime, p.Rules.MinRun = 4*time.Hour, time.Duration(row.minS)*time.Second
			result := run(input{
				Jobs: jobs, Machine: Machine{GPUs: 2, VRAMMiB: 10_000}, Policy: p, DefaultLimit: row.limit, Park: &Parking{EachWay: 10_000},
			})
			if got := result.Fates[2].Start.Seconds(); got != row.bob {
				t.Errorf("bob starts at %g, want %g", got, row.bob)
			}
		})
	}
}
