package sched

import "slices"

// The walk through a queue ends where nothing behind can start, have room made for
// it or have cards kept. That is found out kind by kind: a job far behind may be of
// a kind that none in front is of, and to walk there past all others is most of
// what a decision would cost.

// looksAhead is how many kinds of job are settled at most beside each that comes
// up: the walk then ends after a quarter as many jobs as there are kinds, if for
// none of them anything can be done.
const looksAhead = 4

// maxPause bounds how many jobs come up between two looks. While there is a kind
// for which something can be done it is not worth while to look at each: the walk
// goes on to the first job of that kind in any case.
const maxPause = 16

// idle reports that nothing can be done for any job behind this one.
func (d *decision) idle(h *head) bool {
	switch {
	case d.blocker != nil || d.spent():
		return true
	case d.kept < d.depth || d.state.Rules.Policy == FIFO:
		return false // under FIFO the first that does not fit is the end
	case d.skips > 0:
		d.skips--
		return false
	}
	// Mostly there are too few cards for anybody, for however long.
	if d.sizes.look(func(s *kind) bool { return d.tooLarge(s, h) }) {
		return true
	}
	if len(d.kinds.all) > shapesSeen {
		return false
	}
	before := d.kinds.count
	if d.kinds.look(func(k *kind) bool { return d.futile(k, h) }) {
		return true
	}
	if d.kinds.count-before < looksAhead {
		d.pause = min(2*d.pause+1, maxPause)
		d.skips = d.pause
	}
	return false
}

// reopen forgets what was settled, since room is made that others may use too.
func (d *decision) reopen() {
	d.sizes.reset()
	d.kinds.reset()
	d.walk.reopen()
}

// tooLarge reports that nothing can be done for jobs of a size that stand no higher
// than this one, even if no cards were kept for others.
func (d *decision) tooLarge(s *kind, h *head) bool {
	like, k := d.like(s, h.entry), d.kinshipOf(s.kin)
	switch {
	case !d.board.hostFits(&s.amounts):
	case s.gpus == 0:
		return false
	case d.board.unreadable != "":
	case k.enough(&like.group.request, keeper{}):
		return false
	default:
		k.failNow(&like.group.request, &like.amounts)
	}
	return !d.yields || d.noRoomFor(&like, func(c *ceiling) bool { return c.has(&like) })
}

// futile reports that nothing can be done for jobs of a kind that stand no higher
// than this one. Within a decision there is never more room but for what those
// leave that are set aside, and then all kinds are open again.
func (d *decision) futile(of *kind, h *head) bool {
	k := d.kinshipOf(of.kin)
	if !d.yields && of.gpus > 0 && k.hopeless(&of.amounts) {
		return true
	}
	like := d.like(of, h.entry)
	if d.fits(&like, k) {
		if like.gpus == 0 || k.enough(&like.group.request, d.keeper(&like)) {
			return false
		}
		k.failNow(&like.group.request, &like.amounts)
	}
	tried := attempt{like.amounts, like.priority, like.class}
	return !d.yields || k.roomless(&tried) ||
		d.noRoomFor(&like, func(c *ceiling) bool { return c.fits(&like, d.keeperAt(&like, d.state.Now)) })
}

// noRoomFor reports that no room can be made for jobs like this one, by what the
// machine has to have for it. When somebody will have run for long enough to give
// way has to be known by then: it is, where one came up that counts for as much or
// more, since to that one they do so sooner.
func (d *decision) noRoomFor(h *head, has func(*ceiling) bool) bool {
	if len(d.gone) == 0 && d.powerless(h) || !d.most().fits(h, keeper{}) {
		return true
	}
	y := d.yieldersTo(h)
	switch {
	case !d.awaited(y, powerOf(h)):
		return false
	case len(y.now) == 0 && len(d.gone) == 0:
		return true
	}
	return !has(d.roomWithout(y.now))
}

// has reports whether the machine has room for the job if no cards are kept for
// others.
func (c *ceiling) has(h *head) bool {
	return c.board.hostFits(&h.amounts) && (h.gpus == 0 || c.kinship(h).enough(&h.group.request, keeper{}))
}

// like is a job of that kind that stands there.
func (d *decision) like(s *kind, e entry) head {
	r := &d.liked.request
	*r = s.kin.request
	r.GPUs, r.VRAMMiB, r.Share, r.CPUs, r.MemMiB = s.gpus, s.vramMiB, s.share, s.cpus, s.memMiB
	return head{entry: e, amounts: s.amounts, kin: s.kin, kind: s, group: &d.liked}
}

// failNow remembers that the request did not fit. Mostly that is for want of cards
// and not because they are kept: then a shorter one fails as well.
func (k *kinship) failNow(r *Request, a *amounts) {
	if k.enough(r, keeper{}) {
		k.fail(a)
		return
	}
	k.short = slices.DeleteFunc(k.short, func(f amounts) bool { return f.coversCards(a) })
	k.short = append(k.short, *a)
}

// enough is whether there would be a grant.
func (k *kinship) enough(r *Request, kept keeper) bool {
	n := 0
	for _, c := range k.candidates {
		if _, obstacle := k.board.fit(c, r); obstacle == "" && kept.by(c, r) == nil {
			n++
		}
	}
	return n >= r.GPUs
}
