package engine

import (
	"slices"
	"strings"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
)

// A job that has just started is watched closely, because it allocates memory
// then and has short peaks. So is one that comes near its declaration, as long
// as it grows.
const (
	closeWatch    = 10 * time.Second
	closeInterval = 100 * time.Millisecond
	nearShare     = 0.9 // of a declaration: from there on a peak matters
)

// Idle cards are still read now and then, so that a failed card is found before
// a job is due there. After a long idle time they are read only rarely, so that
// the driver can be closed: an open one blocks resets and keeps cards without
// persistence mode awake.
const (
	restInterval     = 5 * time.Second
	restIntervalSlow = 30 * time.Second // where a reading is slow
	restAfter        = 10 * time.Minute
	restGlance       = 6 * time.Hour
)

// troubleInterval is how often cards are read while something is wrong with one.
const troubleInterval = time.Second

// maxEarly bounds the errors kept until the first card was read.
const maxEarly = 256

// work is why the cards should be read.
type work struct {
	queued  bool // jobs wait for room
	running bool
	closely bool // one of these is watched closely
}

func (w work) none() bool { return !w.queued && !w.running }

// look takes in a reading of the cards, or its failure. It reports whether there
// is a reading to use.
func (c *cards) look(now time.Time, s gpu.Sample, err error, w work, inUse func(index int) bool) bool {
	c.moved = true
	if c.book.asked || c.busyAt.IsZero() || !c.quiet(now, w) {
		c.busyAt = now
	}
	c.book.asked = false
	s.Xids = c.heard(s.Xids, err)
	if err != nil {
		c.book.err, c.book.failed = err, now
		c.heed(now, c.book.health.Failed(now, s))
		if !c.book.told {
			c.book.told = true
			c.changes.tell(now, job.EventGPUsLost, nil, err.Error())
		}
		return false
	}
	if c.book.told {
		c.book.told = false
		c.changes.tell(now, job.EventGPUsFound, nil, "")
	}
	if trouble := strings.Join(s.Problems, "; "); trouble != c.book.trouble {
		c.book.trouble = trouble
		if trouble != "" {
			c.changes.show(now, job.EventWarning, nil, trouble)
			c.cfg.Log.Warn("reading the GPUs", "problem", trouble)
		}
	}
	s.Devices = slices.DeleteFunc(slices.Clone(s.Devices), func(d gpu.Device) bool { return !c.book.wanted(d.Index) })
	c.book.take(now, s, inUse)
	c.heed(now, c.book.health.Observe(now, s, c.book.expected()))
	c.sample = s
	return true
}

// heard keeps errors until there are cards they could be about: the kernel's log
// has errors from before berth started.
func (c *cards) heard(xids []gpu.Xid, err error) []gpu.Xid {
	if !c.book.at.IsZero() {
		return xids
	}
	c.early = append(slices.Clone(c.early), xids...)
	c.early = c.early[max(0, len(c.early)-maxEarly):]
	if err != nil {
		return nil
	}
	all := c.early
	c.early = nil
	return all
}

// measure updates who uses what.
func (c *cards) measure(holdings []gpu.Holding) {
	for _, use := range c.meter.Observe(c.sample, holdings, c.bookings.owners.Owner) {
		c.book.use[use.Index] = use
	}
	c.sample = gpu.Sample{}
}

// freshFor is how long after its arrival a reading may be used to start jobs.
func (c *cards) freshFor() time.Duration { return max(c.cfg.Poll, time.Second) }

// interval is the time between readings.
func (c *cards) interval(now time.Time, w work) time.Duration {
	cheap := c.source != nil && c.source.Cheap()
	leaving, trouble := c.leaving(now), c.inTrouble()
	switch {
	case c.resting(now, w):
		return restGlance
	case w.none() && !leaving && !trouble && !cheap:
		return max(c.cfg.Poll, restIntervalSlow)
	case w.none() && (trouble && !cheap || !trouble && !leaving):
		return max(c.cfg.Poll, restInterval)
	case !cheap:
		return c.cfg.Poll
	case w.closely, leaving && w.queued:
		return min(c.cfg.Poll, closeInterval)
	case trouble:
		return min(c.cfg.Poll, troubleInterval)
	}
	return c.cfg.Poll
}

// due is when the next reading is.
func (c *cards) due(now time.Time, w work) time.Time {
	last := c.book.arrived
	if c.book.err != nil {
		last = c.book.failed
	}
	return last.Add(c.interval(now, w))
}

// leaving reports whether an ended job's memory may still become free. After
// that it is a problem, and a missing card never shows it.
func (c *cards) leaving(now time.Time) bool { return c.meter.Leaving(now.Add(-leftPatience)) }

// inTrouble reports whether there is something to find out about a card.
func (c *cards) inTrouble() bool { return c.book.err != nil || !c.book.health.Settled() }

// quiet reports whether there is no reason to read the cards.
func (c *cards) quiet(now time.Time, w work) bool {
	return w.none() && !c.leaving(now) && !c.inTrouble()
}

// resting reports whether polling has stopped because the cards have been idle
// for long.
func (c *cards) resting(now time.Time, w work) bool {
	return c.cfg.Rest && c.quiet(now, w) && c.book.arrived.Sub(c.busyAt) >= restAfter
}
