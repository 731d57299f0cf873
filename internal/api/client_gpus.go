package api

import (
	"context"
	"net/http"
	"strconv"
)

// GPUs lists the cards.
func (c *Client) GPUs(ctx context.Context) ([]GPU, error) {
	return call[[]GPU](ctx, c, http.MethodGet, "/v1/gpus", nil, nil)
}

// PauseGPU stops jobs from starting on a card, or lets them start again.
func (c *Client) PauseGPU(ctx context.Context, index int, paused bool) (GPU, error) {
	verb := "resume"
	if paused {
		verb = "pause"
	}
	return call[GPU](ctx, c, http.MethodPost, "/v1/gpus/"+strconv.Itoa(index)+"/"+verb, nil, nil)
}

// DrainGPU pauses a card, and parks the jobs on it if that is asked for.
func (c *Client) DrainGPU(ctx context.Context, index int, r DrainRequest) (Drained, error) {
	return call[Drained](ctx, c, http.MethodPost, "/v1/gpus/"+strconv.Itoa(index)+"/drain", nil, r)
}

// SetHealth quarantines a card, or clears it.
func (c *Client) SetHealth(ctx context.Context, index int, r HealthRequest) (GPU, error) {
	return call[GPU](ctx, c, http.MethodPost, "/v1/gpus/"+strconv.Itoa(index)+"/health", nil, r)
}

// CardHistory lists what happened to the cards, newest first.
func (c *Client) CardHistory(ctx context.Context, q CardQuery) ([]CardEvent, error) {
	return call[[]CardEvent](ctx, c, http.MethodGet, "/v1/gpus/history", q.values(), nil)
}

// ReleaseGPUs closes the driver for some time, or opens it again.
func (c *Client) ReleaseGPUs(ctx context.Context, r ReleaseRequest) (Released, error) {
	return call[Released](ctx, c, http.MethodPost, "/v1/gpus/release", nil, r)
}
