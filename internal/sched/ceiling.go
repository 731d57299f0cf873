package sched

import "slices"

// ceiling is the machine without all that gives way to anybody: nothing makes room
// for what does not fit there. It saves looking for whom to set aside at each of
// ten thousand jobs.
type ceiling struct {
	board    *board
	kinships map[*kin]*kinship
	victims  []*Held // who is not there beside those that leave, if not all
	gone     int     // how many left when it was made
}

// most is the decision's ceiling. It is made when it is first asked for.
func (d *decision) most() *ceiling {
	if d.ceiling == nil {
		gives := func(h *Held) bool { return d.gone[h] || h.Aside.Mode != "" && !h.Other }
		d.ceiling = d.newCeiling(gives)
	}
	return d.ceiling
}

// roomWithout is the machine without these and those that leave already. The last
// one is kept: most jobs that are looked at one after the other have the same
// victims.
func (d *decision) roomWithout(victims []*Held) *ceiling {
	if c := d.room; c != nil && c.gone == len(d.gone) && slices.Equal(c.victims, victims) {
		return c
	}
	d.room = d.newCeiling(func(h *Held) bool { return d.gone[h] || slices.Contains(victims, h) })
	d.room.victims, d.room.gone = slices.Clone(victims), len(d.gone)
	return d.room
}

func (d *decision) newCeiling(gone func(*Held) bool) *ceiling {
	return &ceiling{board: d.boardWithout(gone, d.state.Now), kinships: map[*kin]*kinship{}}
}

// book takes what a job was given off what is known of the room there is.
func (d *decision) book(h *Held) {
	for _, c := range []*ceiling{d.ceiling, d.room} {
		if c == nil {
			continue
		}
		c.board.book(h)
		for _, k := range c.kinships {
			k.fitted = amounts{}
		}
	}
}

// fits reports whether enough cards would have room for the job that are not kept
// for others.
func (c *ceiling) fits(h *head, kept keeper) bool {
	switch {
	case !c.board.hostFits(&h.amounts) || kept.host(&h.amounts) != nil:
		return false
	case h.gpus == 0:
		return true
	case c.board.unreadable != "":
		return false
	}
	k := c.kinship(h)
	asked := h.amounts
	if len(kept.futures) == 0 {
		asked.lasts = lasts{} // however long it lasts
	}
	switch {
	case k.hopeless(&asked):
		return false
	case len(kept.futures) == 0 && k.fitted.coversCards(&asked):
		return true
	}
	n := 0
	for _, slot := range k.candidates {
		if _, obstacle := c.board.fit(slot, &h.group.request); obstacle == "" && kept.by(slot, &h.group.request) == nil {
			n++
		}
	}
	switch {
	case n < h.gpus:
		k.fail(&asked)
		return false
	case len(kept.futures) == 0:
		k.fitted = asked
	}
	return true
}

func (c *ceiling) kinship(h *head) *kinship {
	k, found := c.kinships[h.kin]
	if !found {
		k = newKinship(c.board, &h.kin.request)
		c.kinships[h.kin] = k
	}
	return k
}
