package sched

import "slices"

// Explain says why a queued job does not run now, seen from its place in the
// queue: what the jobs in front of it would get is counted as gone.
func Explain(s State, job string) Reason {
	if s.Queue == nil {
		return Reason{Kind: NotQueued, Job: job}
	}
	m, found := s.Queue.jobs[job]
	if !found {
		return Reason{Kind: NotQueued, Job: job}
	}
	d := newDecision(&s)
	d.run(&m.entry)
	return d.explain(&m.group.request)
}

func (d *decision) explain(r *Request) Reason {
	k := newKinship(d.board, r)
	switch {
	case !k.possible(r):
		return k.impossible(r)
	case d.blocker != nil:
		because := d.shortage(newKinship(d.board, &d.blocker.Request), &d.blocker.Request)
		return Reason{Kind: WaitsBehind, Job: d.blocker.Job, Because: &because}
	}
	return d.shortage(k, r)
}

// shortage says what the request lacks on the board as it stands.
func (d *decision) shortage(k *kinship, r *Request) Reason {
	b := d.board
	switch {
	case r.GPUs > 0 && b.unreadable != "":
		return Reason{Kind: WaitsForReadings, Needs: r.GPUs, Detail: b.unreadable}
	case !b.cpusFit(r):
		return Reason{Kind: WaitsForCPUs, Amount: int64(r.CPUs), Free: int64(max(0, b.freeCPUs())), Total: int64(b.host.CPUs)}
	case !b.memFits(r):
		return Reason{Kind: WaitsForMemory, Amount: r.MemMiB, Free: max(0, b.freeMemMiB()), Total: b.host.MemMiB}
	}
	if _, ok := d.place(k, r); !ok {
		return k.shortage(r)
	}
	if d.spent() {
		return Reason{Kind: WaitsForTurn, Total: int64(d.state.MaxStarts)}
	}
	return Reason{Kind: StartsNow}
}

// shortage tells card by card why there are too few for the request.
func (k *kinship) shortage(r *Request) Reason {
	reason := Reason{
		Kind: WaitsForGPUs, Needs: r.GPUs, VRAMMiB: r.VRAMMiB, Share: r.Share,
		Idle: r.undeclared(), Exclusive: r.Exclusive && !r.undeclared(),
		Type: r.Type, IDs: splitIDs(r.IDs), Allow: splitIDs(r.Allow),
	}
	for _, c := range k.candidates {
		// Of a share on cards of several sizes, the smallest is what it needs.
		if size := r.budgetOn(c.TotalMiB); r.VRAMMiB == 0 && (reason.VRAMMiB == 0 || size < reason.VRAMMiB) {
			reason.VRAMMiB = size
		}
		reason.Cards = append(reason.Cards, k.board.fact(c, r))
	}
	return reason
}

// fact is how a card stands to the request.
func (b *board) fact(c *slot, r *Request) CardFact {
	_, obstacle := b.fit(c, r)
	f := CardFact{
		GPU: c.Index, Obstacle: obstacle, FreeMiB: max(0, b.freeFor(c, r)),
		ForeignMiB: c.ForeignMiB, Holders: slices.Clone(c.holders),
	}
	switch obstacle {
	case ObstacleForeign:
		// The number that is compared with the idle threshold.
		f.ForeignMiB = c.IdleForeignMiB
	case ObstacleShares:
		f.FreeShare = max(0, 1-c.shares)
	case ObstacleMemory:
		f.Percent, f.Limit = 100*c.usedShare(), 100*b.rules.MemThreshold
	case ObstacleLoad:
		f.Percent, f.Limit = c.UtilPct, 100*b.rules.LoadThreshold
	case ObstacleHealth:
		f.Detail = c.Health.String()
		if c.HealthReason != "" {
			f.Detail += ": " + c.HealthReason
		}
	}
	return f
}
