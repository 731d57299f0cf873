package sched

import (
	"testing"
	"time"
)

// fastest reports the shortest time of an operation: on a busy machine the mean says
// nothing.
func fastest(b *testing.B, operation func()) {
	var shortest time.Duration
	for b.Loop() {
		began := time.Now()
		operation()
		if took := time.Since(began); shortest == 0 || took < shortest {
			shortest = took
		}
	}
	b.ReportMetric(float64(shortest.Microseconds())/1000, "least-ms")
}
