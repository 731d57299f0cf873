package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"berth/internal/api"
)

// scrape: reading the metrics with 10,000 queued jobs, compared to an empty queue.
func (b *bench) scrape() {
	const queued, rounds = 10_000, 200
	s := b.serve("scrape")
	defer s.stop()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	read := func() (took []time.Duration, size int64) {
		for range rounds {
			start := time.Now()
			reply, err := client.Get("http://berth/metrics")
			check(err)
			size, err = io.Copy(io.Discard, reply.Body)
			check(err)
			reply.Body.Close()
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		return took, size
	}
	empty, _ := read()
	specs := make([]api.Spec, queued)
	for i := range specs {
		specs[i] = api.Spec{Command: api.Command{Shell: fmt.Sprintf("sleep 600 # %d", i)}}
	}
	s.submit(specs...)
	full, size := read()
	ratio := median(full).Seconds() / median(empty).Seconds()
	b.row(fmt.Sprintf("a scrape with %d queued jobs (%.1f ms), against an empty queue", queued, 1000*median(full).Seconds()), fmt.Sprintf("%.2f x", ratio), "<= 2 x", ratio <= 2)
	b.row("the same, p99", fmt.Sprintf("%.1f ms", 1000*full[rounds*99/100].Seconds()), "< 50 ms", full[rounds*99/100] < 50*time.Millisecond)
	b.row("the same, its size", fmt.Sprintf("%.0f kB", float64(size)/1000), "< 100 kB", size < 100_000)
	_, err := api.Call(context.Background(), s.client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{All: true}})
	check(err)
	s.drained()
}
