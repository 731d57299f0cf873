package daemon

import (
	"runtime"
	"runtime/metrics"
	"testing"

	"berth/internal/tests/testkit"
)

// TestGarbageIsBounded: by what is in use, and never so little that the collector has
// no rest.
func TestGarbageIsBounded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		live uint64
		want int
	}{{0, 300}, {1 << 20, 300}, {8 << 20, 300}, {16 << 20, 100}, {24 << 20, 50}, {32 << 20, 50}, {1 << 30, 50}} {
		if got := garbageFor(row.live); got != row.want {
			t.Errorf("beside %d MB in use: %d %%, want %d", row.live>>20, got, row.want)
		}
	}
}

// TestTheCollectorFollowsTheHeap as it grows and shrinks.
func TestTheCollectorFollowsTheHeap(t *testing.T) {
	keepHeap()
	percent := func() uint64 {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	for range 2 {
		big := make([]byte, 2*smallHeap)
		testkit.Eventually(t, "little garbage beside a large heap", func() bool { return percent() == bigPercent })
		runtime.KeepAlive(big)
		testkit.Eventually(t, "more beside a small one", func() bool { return percent() > bigPercent })
	}
}
