package cards

import (
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
)

// A job that has just started is watched closely, because it allocates memory
// then and has short peaks. So is one that comes near its declaration, as long
// as it grows.
const (
	CloseWatch    = 10 * time.Second
	CloseInterval = 100 * time.Millisecond
	NearShare     = 0.9 // of a declaration: from there on a peak matters
)

// Idle cards are still read now and then, so that a failed card is found before
// a job is due there. After a long idle time they are read only rarely, so that
// the driver can be closed: an open one blocks resets and keeps cards without
// persistence mode awake.
const (
	RestInterval     = 5 * time.Second
	RestIntervalSlow = 30 * time.Second // where a reading is slow
	RestAfter        = 10 * time.Minute
	RestGlance       = 6 * time.Hour
)

// TroubleInterval is how often cards are read while something is wrong with one.
const TroubleInterval = time.Second

// MaxEarly bounds the errors kept until the first card was read.
const MaxEarly = 256

// Work is why the cards should be read.
type Work struct {
	Queued  bool // jobs wait for room
	Running bool
	Closely bool // one of these is watched closely
}

func (w Work) none() bool { return !w.Queued && !w.Running }

// Look takes in a reading of the cards, or its failure. It reports whether there
// is a reading to use.
func (c *Cards) Look(now time.Time, s gpu.Sample, err error, w Work, inUse func(index int) bool) bool {
	c.Moved = true
	if c.Book.Asked || c.busyAt.IsZero() || !c.quiet(now, w) {
		c.busyAt = now
	}
	c.Book.Asked = false
	s.Xids = c.heard(s.Xids, err)
	if err != nil {
		c.Book.Err, c.Book.failed = err, now
		c.Heed(now, c.Book.Health.Failed(now, s))
		if !c.Book.told {
			c.Book.told = true
			c.changes.Tell(now, job.EventGPUsLost, nil, err.Error())
		}
		return false
	}
	if c.Book.told {
		c.Book.told = false
		c.changes.Tell(now, job.EventGPUsFound, nil, "")
	}
	if trouble := strings.Join(s.Problems, "; "); trouble != c.Book.trouble {
		c.Book.trouble = trouble
		if trouble != "" {
			c.changes.Show(now, job.EventWarning, nil, trouble)
			c.cfg.Log.Warn("reading the GPUs", "problem", trouble)
		}
	}
	s.Devices = slices.DeleteFunc(slices.Clone(s.Devices), func(d gpu.Device) bool { return !c.Book.wanted(d.Index) })
	c.Book.update(now, s, inUse)
	c.Heed(now, c.Book.Health.Observe(now, s, c.Book.expected()))
	c.sample = s
	return true
}

// heard keeps errors until there are cards they could be about: the kernel's log
// has errors from before berth started.
func (c *Cards) heard(xids []gpu.Xid, err error) []gpu.Xid {
	if !c.Book.At.IsZero() {
		return xids
	}
	c.Early = append(slices.Clone(c.Early), xids...)
	c.Early = c.Early[max(0, len(c.Early)-MaxEarly):]
	if err != nil {
		return nil
	}
	all := c.Early
	c.Early = nil
	return all
}

// Measure updates who uses what.
func (c *Cards) Measure(holdings []gpu.Holding) {
	for _, use := range c.Meter.Observe(c.sample, holdings, c.Bookings.Owners.Owner) {
		c.Book.use[use.Index] = use
	}
	c.sample = gpu.Sample{}
}

// FreshFor is how long after its arrival a reading may be used to start jobs.
func (c *Cards) FreshFor() time.Duration { return max(c.cfg.Poll, time.Second) }

// interval is the time between readings.
func (c *Cards) interval(now time.Time, w Work) time.Duration {
	cheap := c.Source != nil && c.Source.Cheap()
	leaving, trouble := c.leaving(now), c.inTrouble()
	switch {
	case c.Resting(now, w):
		return RestGlance
	case w.none() && !leaving && !trouble && !cheap:
		return max(c.cfg.Poll, RestIntervalSlow)
	case w.none() && (trouble && !cheap || !trouble && !leaving):
		return max(c.cfg.Poll, RestInterval)
	case !cheap:
		return c.cfg.Poll
	case w.Closely, leaving && w.Queued:
		return min(c.cfg.Poll, CloseInterval)
	case trouble:
		return min(c.cfg.Poll, TroubleInterval)
	}
	return c.cfg.Poll
}

// Due is when the next reading is.
func (c *Cards) Due(now time.Time, w Work) time.Time {
	last := c.Book.arrived
	if c.Book.Err != nil {
		last = c.Book.failed
	}
	return last.Add(c.interval(now, w))
}

// leaving reports whether an ended job's memory may still become free. After
// that it is a problem, and a missing card never shows it.
func (c *Cards) leaving(now time.Time) bool { return c.Meter.Leaving(now.Add(-LeftPatience)) }

// inTrouble reports whether there is something to find out about a card.
func (c *Cards) inTrouble() bool { return c.Book.Err != nil || !c.Book.Health.Settled() }

// quiet reports whether there is no reason to read the cards.
func (c *Cards) quiet(now time.Time, w Work) bool {
	return w.none() && !c.leaving(now) && !c.inTrouble()
}

// Resting reports whether polling has stopped because the cards have been idle
// for long.
func (c *Cards) Resting(now time.Time, w Work) bool {
	return c.cfg.Rest && c.quiet(now, w) && c.Book.arrived.Sub(c.busyAt) >= RestAfter
}
