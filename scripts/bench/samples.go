package main

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"syscall"
	"time"

	"berth/internal/queue/series"
)

// samples: the CPU time to keep the past of 8 GPUs and 40 jobs that change all
// the time, sampled every second, compared to the time that passes.
func (b *bench) samples() {
	book := series.New("samples", series.Keep, slog.New(slog.DiscardHandler))
	random := rand.New(rand.NewPCG(1, 2))
	began := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const span = 6 * time.Hour
	before := ownCPU()
	for second := range int(span / time.Second) {
		now := began.Add(time.Duration(second) * time.Second)
		all := make([]series.Reading, 0, 48)
		for i := range cap(all) {
			track := series.Track{Kind: series.GPU, ID: fmt.Sprint("GPU-", i)}
			if i >= 8 {
				track = series.Track{Kind: series.Job, Owner: "ann", ID: fmt.Sprint(i), Attempt: 1, GPU: i % 8}
			}
			all = append(all, series.Reading{Track: track, Point: series.Point{At: now, MiB: random.Int64N(80_000), UtilPct: 100 * random.Float64(), PowerW: 300, TempC: 60}})
		}
		book.Record(all)
		if second%10 == 0 {
			book.Work(now, now.Sub(began))
		}
	}
	share := 100 * (ownCPU() - before).Seconds() / span.Seconds()
	b.row("keeping samples of 8 GPUs and 40 jobs, of one core", fmt.Sprintf("%.3f %%", share), "< 0.5 %", share < 0.5)
}

func ownCPU() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
