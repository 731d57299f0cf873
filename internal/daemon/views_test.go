package daemon

import (
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
)

// TestAHiddenCommandCostsNothing: the long commands of one user slow down nobody
// else's lists.
func TestAHiddenCommandCostsNothing(t *testing.T) {
	d := &Daemon{opt: Options{}}
	d.opt.Places.Shared = true
	d.cfg.Store(&Config{})
	long := job.Job{ID: "1", UID: 1000, User: "ann", Attempt: job.Attempt{Log: "/secret"}, Spec: job.Spec{Argv: []string{strings.Repeat("x", 1<<20)}}}
	viewed := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			if v := d.view(api.Caller{UID: 1001}, &long, nil); v.Command != nil || v.Log != nil {
				b.Fatal("another user sees the command or the log")
			}
		}
	})
	if bytes := viewed.AllocedBytesPerOp(); bytes > 16<<10 {
		t.Errorf("a view without the command takes %d bytes", bytes)
	}
}
