package sched

import "berth/internal/job/reason"

// Explain says why a waiting job does not start now, from its place in the queue:
// jobs in front of it get their GPUs first.
func Explain(s State, job string) reason.Reason {
	m, found := s.Queue.member(job)
	if !found {
		return reason.Reason{Kind: reason.NotQueued, Job: job}
	}
	return upTo(&s, &m).explain(&m)
}

// upTo is the decision when the job's turn comes.
func upTo(s *State, m *member) *decision {
	d := newDecision(s)
	d.quiet = true
	d.run(m)
	return d
}

// explain says why such a job waits. A limit is named before a job in front,
// because it applies whatever is in front.
func (d *decision) explain(m *member) reason.Reason {
	if why, limited := d.explainLimit(m); limited {
		return why
	}
	return d.explainRoom(m)
}

// explainLimit names the limit that holds the job back, if one does and the machine
// could run it at all.
func (d *decision) explainLimit(m *member) (reason.Reason, bool) {
	g, a := m.class, d.account(m)
	h := g.head(m.entry)
	switch {
	case !d.now.possible(&d.outlook(&h).candidates, &h.amounts):
	case !a.allows(g, &h.amounts):
		return a.overLimit(g, &h.amounts), true
	case d.limits.hold(g, &h.amounts, a):
		return d.limits.why(g, &h.amounts, a), true
	case a.beyondShare(g, &h.amounts) && d.waitsFor(&h) != "":
		return d.whyNotLent(&h, a), true
	}
	return reason.Reason{}, false
}

// explainRoom says why the machine has no room for the job.
func (d *decision) explainRoom(m *member) reason.Reason {
	h := m.class.head(m.entry)
	k, r := &d.outlook(&h).candidates, &m.class.request
	switch {
	case !d.now.possible(k, &h.amounts):
		return d.now.impossible(k, r)
	case d.blocker != nil:
		because := d.blocked()
		return reason.Reason{Kind: reason.WaitsBehind, Job: d.blocker.Job, Because: &because}
	}
	return d.shortage(&h, k)
}

// blocked is the reason of the job that no job may overtake.
func (d *decision) blocked() reason.Reason {
	m, _ := d.state.Queue.member(d.blocker.Job)
	h := m.class.head(m.entry)
	return d.shortage(&h, &d.outlook(&h).candidates)
}

// shortage is what the machine lacks for the request.
func (d *decision) shortage(h *head, k *candidates) reason.Reason {
	r := &h.class.request
	m, a := d.now, r.amounts()
	switch {
	case r.GPUs > 0 && m.unreadable != "":
		return reason.Reason{Kind: reason.WaitsForReadings, Needs: r.GPUs, Detail: m.unreadable}
	case !m.host.fits(&a):
		return m.host.shortage(&a, "")
	}
	kept := d.reservedNow(h).but(h.job)
	if _, ok := m.grant(k, r, kept.keeps()); !ok {
		return m.shortage(k, r, kept)
	}
	if f := kept.host(&a); f != nil {
		return f.machine.host.shortage(&a, f.held.Job)
	}
	if d.full() {
		return reason.Reason{Kind: reason.WaitsForTurn, Total: int64(d.state.MaxStarts)}
	}
	return reason.Reason{Kind: reason.StartsNow}
}

// shortage is what the host lacks; some of it may be reserved.
func (u *hostUse) shortage(a *amounts, keptFor string) reason.Reason {
	if !u.cpusFit(a) {
		return reason.Reason{Kind: reason.WaitsForCPUs, Amount: int64(a.cpus), Free: int64(max(0, u.freeCPUs())), Total: int64(u.size.CPUs), Job: keptFor}
	}
	return reason.Reason{Kind: reason.WaitsForMemory, Amount: a.memMiB, Free: max(0, u.freeMemMiB()), Total: u.size.MemMiB, Job: keptFor}
}

// shortage says card by card why there are too few for the request.
func (m *machine) shortage(k *candidates, r *Request, kept reserved) reason.Reason {
	why := reason.Reason{
		Kind: reason.WaitsForGPUs, Needs: r.GPUs, VRAMMiB: r.VRAMMiB, Share: r.Share,
		Idle: r.undeclared(), Exclusive: r.Exclusive && !r.undeclared(),
		Type: r.Type, IDs: splitIDs(r.IDs), Allow: splitIDs(r.Allow),
	}
	for _, place := range k.places {
		c := &m.slots[place]
		// A share of cards of several sizes: the smallest is what it needs.
		if size := r.budgetOn(c.TotalMiB); r.VRAMMiB == 0 && (why.VRAMMiB == 0 || size < why.VRAMMiB) {
			why.VRAMMiB = size
		}
		fact := m.fact(c, r)
		if f := kept.by(c, r); f != nil && fact.Obstacle == "" {
			fact.Obstacle, fact.Holders = reason.ObstacleReserved, []reason.Holder{{ID: f.held.Job}}
		}
		why.Cards = append(why.Cards, fact)
	}
	return why
}

// fact is what a card has for the request.
func (m *machine) fact(c *slot, r *Request) reason.Card {
	_, obstacle := m.fit(c, r)
	f := reason.Card{GPU: c.Index, Obstacle: obstacle, ForeignMiB: c.ForeignMiB, Holders: c.runs()}
	if !c.alone {
		f.FreeMiB = max(0, m.freeFor(c, r))
	}
	switch obstacle {
	case reason.ObstacleForeign:
		// The number that is compared with the idle threshold.
		f.ForeignMiB = c.IdleForeignMiB
	case reason.ObstacleShares:
		f.FreeShare = max(0, 1-c.shares)
	case reason.ObstacleMemory:
		f.Percent, f.Limit = 100*c.usedShare(), 100*m.rules.MemThreshold
	case reason.ObstacleLoad:
		f.Percent, f.Limit = c.UtilPct, 100*m.rules.LoadThreshold
	case reason.ObstacleHealth:
		f.Detail = healthDetail(c)
	case reason.ObstacleStale:
		if c.Health != HealthOK || c.HealthReason != "" {
			f.Detail = healthDetail(c)
		}
	}
	return f
}

// healthDetail is a card's health and the reason.
func healthDetail(c *slot) string {
	switch {
	case c.HealthReason == "":
		return c.Health.String()
	case c.Health == HealthOK:
		return c.HealthReason
	}
	return c.Health.String() + ": " + c.HealthReason
}
