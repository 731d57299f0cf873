package daemon

import (
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
)

// TestAHiddenCommandCostsNothing: the long commands of one user slow down nobody
// else's lists.
func TestAHiddenCommandCostsNothing(t *testing.T) {
	d := newDaemon(Options{Places: site.Places{Shared: true}})
	d.svc.cfg.Store(&config.Config{})
	long := job.Job{ID: "1", UID: 1000, User: "ann", Attempt: job.Attempt{Log: "/secret"}, Spec: job.Spec{Argv: []string{strings.Repeat("x", 1<<20)}}}
	stranger := api.Caller{UID: 1001}
	if v := d.svc.view(stranger, &long, nil); v.Command != nil || v.Log != nil {
		t.Error("another user sees the command or the log")
	}
	viewed := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			d.svc.view(stranger, &long, nil)
		}
	})
	if bytes := viewed.AllocedBytesPerOp(); bytes > 16<<10 {
		t.Errorf("a view without the command takes %d bytes", bytes)
	}
}
