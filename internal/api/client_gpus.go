package api

import (
	"context"
	"net/http"
	"strconv"
)

// GPUs asks for the cards.
func (c *Client) GPUs(ctx context.Context) ([]GPU, error) {
	return call[[]GPU](ctx, c, http.MethodGet, "/v1/gpus", nil, nil)
}

// PauseGPU keeps new jobs off a card, or lets them on it again.
func (c *Client) PauseGPU(ctx context.Context, index int, paused bool) (GPU, error) {
	verb := "resume"
	if paused {
		verb = "pause"
	}
	return call[GPU](ctx, c, http.MethodPost, "/v1/gpus/"+strconv.Itoa(index)+"/"+verb, nil, nil)
}

// SetHealth takes a card out of service as not well, or says that it is.
func (c *Client) SetHealth(ctx context.Context, index int, r HealthRequest) (GPU, error) {
	return call[GPU](ctx, c, http.MethodPost, "/v1/gpus/"+strconv.Itoa(index)+"/health", nil, r)
}

// CardHistory asks what happened to the cards, the newest first.
func (c *Client) CardHistory(ctx context.Context, q CardQuery) ([]CardEvent, error) {
	return call[[]CardEvent](ctx, c, http.MethodGet, "/v1/gpus/history", q.values(), nil)
}

// ReleaseGPUs lets go of the driver for a while, or takes hold of it again.
func (c *Client) ReleaseGPUs(ctx context.Context, r ReleaseRequest) (Released, error) {
	return call[Released](ctx, c, http.MethodPost, "/v1/gpus/release", nil, r)
}
