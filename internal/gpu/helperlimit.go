package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/internal/text"
)

// CanLimit reports whether the driver can hold a cgroup to an amount of memory.
func (h *helperSource) CanLimit() bool { return h.Facts().MemoryLimits }

// Limit has the driver hold a cgroup to an amount of memory.
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

// Facts are what the helper said last.
func (h *helperSource) Facts() Facts {
	h.mu.Lock()
	defer h.mu.Unlock()
	facts := h.hi.Facts
	facts.Source = "NVML through " + h.path
	return facts
}

// release lets go of the driver until then; the zero time takes hold again.
func (h *helperSource) release(until time.Time) {
	h.mu.Lock()
	h.until = until
	h.mu.Unlock()
	if until.IsZero() {
		return
	}
	// 1. The look that is under way comes to its end, or is not waited for.
	bound := time.NewTimer(h.timing.sample + leaveTime)
	defer bound.Stop()
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-bound.C:
	}
	// 2. The helper leaves.
	h.letGo()
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
