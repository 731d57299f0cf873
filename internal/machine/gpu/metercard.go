package gpu

import "slices"

// cardHolder is one job's claim to a card.
type cardHolder struct {
	key       string
	budgetMiB int64
}

// cardState is what the meter remembers of a card between samples.
type cardState struct {
	processes map[int]*trackedProcess // by pid
	// baselineMiB is the external use when it was last known: before the first
	// job on the card, or beside jobs that were all matched.
	baselineMiB int64
	blindRow    int // samples in a row that could not be matched
	unlistedRow int // samples in a row without a list of processes

	usedMiB        int64                 // in the last sample
	unexplainedMiB int64                 // of that, what no process explains
	hidden         bool                  // the last sample did not show the memory of each process
	sampled        bool                  // there was a sample
	utilPct        float64               // in the last sample; -1: unknown
	used           bool                  // by a process in the last sample, as far as known
	usedBy         map[string]bool       // by job: it used the card in the last sample, or that is unknown
	before         map[string]int64      // by job here now: the unexplained memory before it came
	departures     map[string]*departure // jobs that ended and whose memory was not seen to be free yet
}

// trackedProcess is one process for as long as the driver lists it.
type trackedProcess struct {
	nowMiB   int64 // -1: unknown
	topMiB   int64 // the most since the previous sample, at least nowMiB
	peakMiB  int64
	graphics bool
	key      string  // the job that owns it; "": external
	sure     bool    // its owner was found at least once
	doubted  bool    // the last lookup did not find it to be its job's
	utilPct  float64 // its part of the card's time; -1: not known
}

// cardMeasure is what one sample says about a card.
type cardMeasure struct {
	use    CardUse
	ownMiB map[string]int64 // by job with a process on the card; nil if unmatched
	topMiB map[string]int64 // likewise, the most since the previous sample
	blind  bool             // unmatched for too long to trust any peak
}

// observe takes in the card's part of a sample.
func (c *cardState) observe(d *Device, holders []cardHolder, held map[string]bool, owner OwnerFunc, sawProcess bool, spikeBuffer float64) cardMeasure {
	c.remember(holders)
	matched := c.track(d, len(holders) > 0, held, owner)
	if len(holders) > 0 && d.ProcessesKnown && !sawProcess && d.UsedMiB > c.baselineMiB {
		// A card fills up under our jobs, and the driver has never listed a
		// process on any card: it hides them, as it does in a container.
		matched = false
	}
	c.noteUse()
	c.usedMiB, c.unexplainedMiB, c.sampled = d.UsedMiB, unexplainedMiB(d), true
	// Unexplained memory may belong to a process that is listed without its memory.
	sizeUnknown := slices.ContainsFunc(d.Processes, func(p Process) bool { return p.UsedMiB < 0 })
	c.hidden, c.utilPct = !d.ProcessesKnown || !sawProcess || sizeUnknown, d.UtilPct
	if !matched {
		c.blindRow++
		use := c.unmatchedUse(d, holders, spikeBuffer)
		return cardMeasure{use: use, blind: c.blindRow >= blindLimit}
	}
	c.blindRow = 0
	return c.matchedUse(d, spikeBuffer)
}

// track updates the processes of the card and reports whether all were
// matched. On a card that no job holds every process is external, so no
// lookups are needed.
func (c *cardState) track(d *Device, isHeld bool, held map[string]bool, owner OwnerFunc) bool {
	if !d.ProcessesKnown {
		c.unlistedRow++
		if c.unlistedRow >= blindLimit {
			clear(c.processes) // their end would go unnoticed
		}
		return !isHeld
	}
	c.unlistedRow = 0
	listed := mergeByPID(d.Processes)
	for pid := range c.processes {
		if _, still := listed[pid]; !still {
			delete(c.processes, pid)
		}
	}
	matched := true
	for pid, p := range listed {
		t := c.processes[pid]
		if t == nil {
			t = &trackedProcess{}
			c.processes[pid] = t
		}
		t.nowMiB, t.graphics, t.utilPct = p.UsedMiB, p.Graphics, p.UtilPct
		t.topMiB = max(p.UsedMiB, p.PeakMiB)
		t.peakMiB = max(t.peakMiB, t.topMiB)
		t.identify(pid, isHeld, held, owner)
		if !t.sure || (t.key != "" && t.nowMiB < 0) {
			matched = false
		}
	}
	return matched
}

// identify determines the owner of a process. A known owner is kept when a
// later lookup comes too late. A process is external for good once its job
// holds nothing, or if it is listed although no such process exists.
func (t *trackedProcess) identify(pid int, isHeld bool, held map[string]bool, owner OwnerFunc) {
	key, ok, known := owner(pid)
	switch {
	case known && ok:
		t.key, t.sure, t.doubted = key, true, false
	case known && t.key != "" && !t.doubted:
		// It may have ended between the sample and the lookup. If it is listed
		// again, it is what remains of a dead process.
		t.doubted = true
	case known:
		t.key, t.sure = "", true
	case !t.sure && !isHeld:
		t.sure = true
	}
	if !held[t.key] {
		t.key = ""
	}
}

// mergeByPID adds up the lines of a process that the driver lists several
// times on a card, as it does for MIG parts.
func mergeByPID(processes []Process) map[int]Process {
	merged := make(map[int]Process, len(processes))
	for _, p := range processes {
		p.UsedMiB = max(p.UsedMiB, -1)
		if before, again := merged[p.PID]; again {
			p.Graphics = p.Graphics && before.Graphics
			p.PeakMiB = max(p.PeakMiB, p.UsedMiB, 0) + max(before.PeakMiB, before.UsedMiB, 0)
			p.UtilPct = max(p.UtilPct, before.UtilPct)
			if p.UsedMiB < 0 || before.UsedMiB < 0 {
				p.UsedMiB = -1
			} else {
				p.UsedMiB += before.UsedMiB
			}
		}
		merged[p.PID] = p
	}
	return merged
}

// matchedUse is the card's use if every process is known: external processes
// at their buffered peaks, and in total at least the memory in use that our
// jobs do not explain.
//
// Whether a card is idle ignores graphics-only processes. Unexplained memory
// counts: it may be what remains of a dead job. So only what our jobs and the
// graphics processes hold at this moment is subtracted, and a graphics process
// of unknown size explains nothing.
func (c *cardState) matchedUse(d *Device, spikeBuffer float64) cardMeasure {
	var foreignMiB, computeMiB, graphicsNowMiB, ownNowMiB int64
	ownMiB, topMiB := map[string]int64{}, map[string]int64{}
	for _, t := range c.processes {
		heldAtMiB := buffered(t.peakMiB, spikeBuffer)
		switch {
		case t.key != "":
			ownMiB[t.key] += t.nowMiB
			topMiB[t.key] += t.topMiB
			ownNowMiB += t.nowMiB
		case t.graphics:
			foreignMiB += heldAtMiB
			graphicsNowMiB += max(t.nowMiB, 0)
		default:
			foreignMiB += heldAtMiB
			computeMiB += heldAtMiB
		}
	}
	if !d.ProcessesKnown { // no job is here; the last list may be out of date
		graphicsNowMiB, ownNowMiB = 0, 0
		clear(ownMiB)
		clear(topMiB)
	}
	c.baselineMiB = max(0, d.UsedMiB-ownNowMiB)
	return cardMeasure{
		ownMiB: ownMiB, topMiB: topMiB,
		use: CardUse{
			Index:          d.Index,
			ForeignMiB:     max(foreignMiB, c.baselineMiB),
			IdleForeignMiB: max(computeMiB, c.baselineMiB-graphicsNowMiB),
		},
	}
}

// unmatchedUse is the card's use if the owner of a process may be anyone: the
// external use from before, and whatever exceeds the budgets of our jobs.
// Processes known to be external count in any case.
func (c *cardState) unmatchedUse(d *Device, holders []cardHolder, spikeBuffer float64) CardUse {
	var budgetsMiB, strangersMiB int64
	for _, h := range holders {
		if h.budgetMiB <= 0 {
			budgetsMiB += d.TotalMiB
		}
		budgetsMiB += max(0, h.budgetMiB)
	}
	for _, t := range c.processes {
		if t.sure && t.key == "" {
			strangersMiB += buffered(t.peakMiB, spikeBuffer)
		}
	}
	excessMiB := max(0, d.UsedMiB-c.baselineMiB-budgetsMiB)
	foreignMiB := max(strangersMiB, c.baselineMiB+excessMiB)
	return CardUse{Index: d.Index, ForeignMiB: foreignMiB, IdleForeignMiB: foreignMiB, Unattributed: true}
}
