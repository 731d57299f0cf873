package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// reopenEvery is how often a driver that cannot be opened is tried again.
const reopenEvery = 10 * time.Second

// cardSource is the real cards of this machine, however they are read: with
// berth's numbers, their topology from sysfs, and the kernel log's messages
// about them.
type cardSource struct {
	open   func() (Source, []string, error)
	sysfs  *sysfs
	kernel *kernelLog // nil: cannot be read
	notes  []string

	opening   sync.Mutex // held while looking for a way to the cards
	mu        sync.Mutex
	closed    bool
	raw       Source   // nil: not opened yet
	rawNotes  []string // about raw
	openErr   error
	openAgain time.Time
	noHelper  bool // switched off

	reconsidering bool      // another source is being tried
	reconsiderAt  time.Time // not before

	until     time.Time // end of a release; zero: none
	numbering *numbering
	xids      *xidMerge
}

var (
	_ Source    = (*cardSource)(nil)
	_ Releaser  = (*cardSource)(nil)
	_ Limiter   = (*cardSource)(nil)
	_ describer = (*cardSource)(nil)
)

func newCards(known []Device, places *sysfs) *cardSource {
	c := &cardSource{sysfs: places, numbering: newNumbering(known), xids: newXidMerge()}
	c.xids.learn(known)
	return c
}

// reopen looks for a way to the cards if there is none yet. It may take long,
// but does not block callers that only need known facts.
func (c *cardSource) reopen() error {
	c.opening.Lock()
	defer c.opening.Unlock()
	c.mu.Lock()
	raw, err := c.raw, c.openErr
	wait := time.Now().Before(c.openAgain)
	c.mu.Unlock()
	if raw != nil {
		return nil
	}
	if err != nil && wait {
		return err
	}
	raw, notes, err := c.open()
	if err == nil {
		return c.install(raw, notes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.openErr, c.openAgain = err, time.Now().Add(reopenEvery)
	return err
}

// source is the way to the cards, unless they are released.
func (c *cardSource) source() (Source, error) {
	c.mu.Lock()
	raw, until, closed := c.raw, c.until, c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, errNoLonger
	case time.Now().Before(until):
		return nil, releasedError(until)
	case raw != nil:
		return raw, nil
	}
	if err := c.reopen(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw, nil
}

// Name is the name of the source, for display.
func (c *cardSource) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw == nil {
		return "no driver yet"
	}
	return c.raw.Name()
}

// Cheap is that of the current source.
func (c *cardSource) Cheap() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw != nil && c.raw.Cheap()
}

// Sample reads the cards. The kernel log's messages are returned even beside
// an error, but not to a caller whose time is up: it may not be listening.
func (c *cardSource) Sample(ctx context.Context) (Sample, error) {
	source, err := c.source()
	var sample Sample
	if err == nil {
		sample, err = source.Sample(ctx)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return Sample{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		sample = c.numbering.number(sample)
		c.sysfs.fill(sample.Devices)
		c.xids.learn(sample.Devices)
	} else {
		c.sysfs.forgetMinors()
	}
	var kernel []Xid
	if c.kernel != nil {
		kernel = c.kernel.drain()
	}
	sample.Xids = c.xids.merge(sample.Xids, kernel)
	c.reconsider()
	return sample, err
}

// Release closes the driver for d. It returns when no process of berth's uses
// the driver, or one will not let go.
func (c *cardSource) Release(d time.Duration) {
	c.mu.Lock()
	c.until = time.Time{}
	if d > 0 {
		c.until = time.Now().Add(d)
	}
	until := c.until
	helper, _ := c.raw.(*helperSource)
	c.mu.Unlock()
	if helper != nil {
		helper.release(until)
	}
}

// Released is when the release ends.
func (c *cardSource) Released() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !time.Now().Before(c.until) {
		return time.Time{}
	}
	return c.until
}

// CanLimit reports whether the driver can limit the memory of a cgroup.
func (c *cardSource) CanLimit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limiter, ok := c.raw.(Limiter)
	return ok && limiter.CanLimit()
}

// Limit makes the driver limit the memory of a cgroup.
func (c *cardSource) Limit(ctx context.Context, l MemoryLimit) error {
	source, err := c.source()
	if err != nil {
		return fmt.Errorf("limit memory on %s: %w", l.UUID, err)
	}
	limiter, ok := source.(Limiter)
	if !ok {
		return fmt.Errorf("limit memory on %s: not supported by %s", l.UUID, source.Name())
	}
	return limiter.Limit(ctx, l)
}

// Facts describe the driver.
func (c *cardSource) Facts() Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	var facts Facts
	if c.raw == nil {
		facts.Source = "none yet"
		if c.openErr != nil {
			facts.Notes = []string{c.openErr.Error()}
		}
	} else if d, ok := c.raw.(describer); ok {
		facts = d.Facts()
	}
	facts.Notes = slices.Concat(facts.Notes, c.rawNotes, c.notes)
	if c.kernel != nil {
		err := c.kernel.broken()
		facts.KernelLog = err == nil
		if err != nil {
			facts.Notes = append(facts.Notes, fmt.Sprintf("cannot read the kernel log any more (%v): GPU errors (Xid) may be missed", err))
		}
	}
	return facts
}

// Close stops everything.
func (c *cardSource) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	if c.raw != nil {
		errs = append(errs, c.raw.Close())
	}
	if c.kernel != nil {
		errs = append(errs, c.kernel.Close())
	}
	return errors.Join(errs...)
}

// FirstLook takes the first sample of a source, and tries again if it fails: a
// card that hangs costs one sample and is skipped in the next. Xids are
// returned even beside an error.
func FirstLook(ctx context.Context, source Source) (sample Sample, err error) {
	pause := time.NewTicker(300 * time.Millisecond)
	defer pause.Stop()
	var heard []Xid
	for range 10 {
		sample, err = source.Sample(ctx)
		heard = append(heard, sample.Xids...)
		sample.Xids = heard
		if err == nil || ctx.Err() != nil {
			return sample, err
		}
		select {
		case <-ctx.Done():
			return sample, err
		case <-pause.C:
		}
	}
	return sample, err
}
