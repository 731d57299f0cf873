package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
		base = append(base, took(func() { _, err := s.client.Status(context.Background()); check(err) }))
		open = append(open, took(func() {
			why, err := s.client.Why(context.Background(), last)
			if check(err); why.Expected == nil || why.Position != queued {
				fail(fmt.Sprintf("job %s has no story: %+v", last, why))
			}
		}))
		typed = append(typed, took(func() { check(s.command("why", "-v", last).Run()) }))
	}
	ms := func(times []time.Duration) float64 { return 1000 * median(times).Seconds() }
	b.row(fmt.Sprintf("why with %d queued, open connection, relative to status", queued), fmt.Sprintf("%.1f ms, %.0f x", ms(open), ms(open)/ms(base)), "<= 20 ms", ms(open) <= 20)
	b.row(fmt.Sprintf("berth why -v with %d queued", queued), fmt.Sprintf("%.1f ms", ms(typed)), "", true)
	alone, busy := s.statusTimes(200), s.statusWhileAsked(last, 20, 200)
	p99 := func(times []time.Duration) float64 { return 1000 * times[len(times)*99/100].Seconds() }
	b.row("status p99 while 20 clients ask why, relative to alone", fmt.Sprintf("%.1f ms, %.1f ms alone", p99(busy), p99(alone)), "<= 100 ms", p99(busy) <= 100)
	check(s.command("cancel", "1").Run())
}

// statusTimes are the times of status requests, the shortest first.
func (s *service) statusTimes(rounds int) []time.Duration {
	times := make([]time.Duration, rounds)
	for i := range times {
		times[i] = took(func() { _, err := s.client.Status(context.Background()); check(err) })
	}
	slices.Sort(times)
	return times
}

// statusWhileAsked is the same while other clients keep asking why.
func (s *service) statusWhileAsked(job string, askers, rounds int) []time.Duration {
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	for range askers {
		wait.Go(func() {
			for ctx.Err() == nil {
				_, err := s.client.Why(ctx, job)
				if ctx.Err() == nil {
					check(err)
				}
			}
		})
	}
	times := s.statusTimes(rounds)
	stop()
	wait.Wait()
	return times
}

func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
