package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/internal/text"
)

// CanLimit reports whether the driver can limit the memory of a cgroup.
func (h *helperSource) CanLimit() bool { return h.Facts().MemoryLimits }

// Limit makes the driver limit the memory of a cgroup.
func (h *helperSource) Limit(ctx context.Context, l MemoryLimit) error {
	done := make(chan error, 1)
	go func() {
		select {
		case h.turn <- struct{}{}:
			defer func() { <-h.turn }()
			done <- h.limit(l)
		case <-ctx.Done():
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("limit memory on %s: %w", l.UUID, context.Cause(ctx))
	}
}

func (h *helperSource) limit(l MemoryLimit) error {
	p, err := h.ready()
	if err != nil {
		return fmt.Errorf("limit memory on %s: %w", l.UUID, err)
	}
	reply, err := p.ask(HelperRequest{Do: HelperLimit, Limit: &l, Skip: h.skipped()}, h.timing)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rest()
	switch {
	case err != nil:
		err = h.failed(p, err)
	case reply.Error != "":
		err = errors.New(text.Said(reply.Error))
	}
	if err != nil {
		return fmt.Errorf("limit memory on %s: %w", l.UUID, err)
	}
	return nil
}

// Facts are those of the last helper.
func (h *helperSource) Facts() Facts {
	h.mu.Lock()
	defer h.mu.Unlock()
	facts := h.hi.Facts
	facts.Source = "NVML through " + h.path
	return facts
}

// release closes the driver until then; the zero time ends the release.
func (h *helperSource) release(until time.Time) {
	h.mu.Lock()
	h.until = until
	h.mu.Unlock()
	if until.IsZero() {
		return
	}
	// 1. The reading in progress ends, or the wait for it does.
	bound := time.NewTimer(h.timing.sample + leaveTime)
	defer bound.Stop()
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-bound.C:
	}
	// 2. The helper leaves.
	h.stop()
	h.mu.Lock()
	alive := slices.Clone(h.alive)
	h.mu.Unlock()
	for _, p := range alive {
		select {
		case <-p.over:
		case <-bound.C:
			return
		}
	}
}
