package main

import (
	"context"
	"fmt"
	"time"

	"berth/internal/api"
)

// why: the whole explanation of the last of many queued jobs, over an open
// connection and as a command, compared to a status request.
func (b *bench) why() {
	s := b.serve("why")
	defer s.stop()
	const queued, rounds = 10_000, 40
	check(s.command("submit", "-q", "-g", "2", "-t", "1h", "--", "sleep", "600").Run())
	specs := make([]api.Spec, queued)
	for i := range specs {
		specs[i] = api.Spec{
			Command: api.Command{Shell: fmt.Sprintf("python train.py --model m%d --seed %d", i%100, i)},
			VRAM:    api.Text(fmt.Sprintf("%dM", 15000+i%300)), GPUs: api.Text(fmt.Sprint(1 + i%2)), Timeout: api.Text(fmt.Sprintf("%dm", 10+i%50)),
		}
	}
	s.submit(specs...)
	last := fmt.Sprint(queued + 1)
	var base, open, typed []time.Duration
	for range rounds {
		base = append(base, took(func() { _, err := api.Call(context.Background(), s.client, api.GetStatus, api.None{}); check(err) }))
		open = append(open, took(func() {
			why, err := api.Call(context.Background(), s.client, api.GetWhy, api.JobID{ID: last})
			if check(err); why.Expected == nil || why.Position != queued {
				fail(fmt.Sprintf("job %s has no story: %+v", last, why))
			}
		}))
		typed = append(typed, took(func() { check(s.command("why", "-v", last).Run()) }))
	}
	ms := func(times []time.Duration) float64 { return 1000 * median(times).Seconds() }
	b.row(fmt.Sprintf("why with %d queued, open connection, relative to status", queued), fmt.Sprintf("%.1f ms, %.0f x", ms(open), ms(open)/ms(base)), "<= 20 ms", ms(open) <= 20)
	b.row(fmt.Sprintf("berth why -v with %d queued", queued), fmt.Sprintf("%.1f ms", ms(typed)), "", true)
	check(s.command("cancel", "1").Run())
}
