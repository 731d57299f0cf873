package gpu

import (
	"errors"
	"slices"
	"time"
)

const (
	// reconsiderEvery is how often another source is tried while the current
	// one is not the best.
	reconsiderEvery = 5 * time.Minute
	// uselessAfter is how long a helper may fail before another source is
	// tried.
	uselessAfter = 30 * time.Second
)

// install takes a source into use. A release in the meantime stays in force.
func (c *cardSource) install(raw Source, notes []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.Join(errNoLonger, raw.Close())
	}
	c.raw, c.rawNotes, c.openErr = raw, notes, nil
	helper, is := raw.(*helperSource)
	switch {
	case !is:
		c.reconsiderAt = time.Now().Add(reconsiderEvery)
	case time.Now().Before(c.until):
		go helper.release(c.until)
	}
	return nil
}

// reconsider looks for another source in the background if the current one is
// not the best: nvidia-smi, because the helper did not work before, or a
// helper that has failed for long. The caller holds c.mu.
func (c *cardSource) reconsider() {
	now := time.Now()
	if c.raw == nil || c.closed || c.reconsidering || now.Before(c.until) || now.Before(c.reconsiderAt) {
		return
	}
	helper, is := c.raw.(*helperSource)
	if is && !isUseless(helper, uselessAfter) || !is && c.noHelper {
		return
	}
	c.reconsidering = true
	go c.change(c.raw, is)
}

// change replaces the source: a failing helper by anything that works,
// nvidia-smi only by a helper.
func (c *cardSource) change(from Source, failing bool) {
	raw, notes, err := c.open()
	_, better := raw.(*helperSource)
	if err == nil && (better || failing) {
		if c.install(raw, notes) == nil {
			_ = from.Close() // it does not work
		}
	} else if err == nil {
		_ = raw.Close() // it is the same kind again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reconsidering = false
	c.reconsiderAt = time.Now().Add(reconsiderEvery)
}

// isUseless reports whether the helper has failed for that long although no
// process hangs: what hangs in the driver would hang in nvidia-smi too. With
// MIG parts it is always false: nvidia-smi does not show them, and they would
// seem to be gone.
func isUseless(h *helperSource, long time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := slices.ContainsFunc(h.seen, func(d Device) bool { return d.Part != nil })
	return !parts && !h.retry.failing.IsZero() && time.Since(h.retry.failing) >= long && len(h.alive) == 0
}
