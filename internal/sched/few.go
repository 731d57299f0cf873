package sched

import "time"

// tooFew reports that the job cannot fit where those are gone, from nothing but who
// takes no neighbour: it counts the cards that are left. To build the machine as it
// will be costs twenty times as much, and mostly comes to this.
func (d *decision) tooFew(h *head, gone func(*Held) bool, at time.Time) bool {
	r := &h.group.request
	if r.GPUs == 0 {
		return false
	}
	single := r.Exclusive || r.undeclared()
	if cap(d.taken) < len(d.board.slots) {
		d.taken = make([]bool, len(d.board.slots))
	}
	taken, left := d.taken[:len(d.board.slots)], len(d.board.slots)
	clear(taken)
	take := func(held *Held) {
		for _, index := range held.Cards {
			if i, on := d.board.position(index); on && !taken[i] {
				taken[i] = true
				left--
			}
		}
	}
	lonely := func(held *Held) bool { return single || held.Alone || held.Exclusive }
	for _, list := range [...][]*Held{d.held, d.given} {
		for _, held := range list {
			if lonely(held) && !gone(held) {
				take(held)
			}
		}
	}
	for _, f := range d.futures {
		if left >= r.GPUs && lonely(f.held) && d.begun(f, at) {
			take(f.held)
		}
	}
	return left < r.GPUs
}

// tooMuchKept reports that cards are kept from the job, of those that tooFew found,
// so that too few are left.
func (d *decision) tooMuchKept(h *head, kept keeper) bool {
	r := &h.group.request
	if r.GPUs == 0 || len(kept.futures) == 0 {
		return false
	}
	left := 0
	for i, c := range d.board.slots {
		if !d.taken[i] && kept.by(c, r) == nil {
			left++
		}
	}
	return left < r.GPUs
}

// firstEnough is how many have to leave before tooFew can be false, in the order in
// which they do; and false if all of them are not enough. Who leaves at the same
// moment as another leaves with the first of them.
func (d *decision) firstEnough(h *head, departures []departure) (n int, ever bool) {
	r := &h.group.request
	single := r.Exclusive || r.undeclared()
	if cap(d.holds) < len(d.board.slots) {
		d.holds = make([]int, len(d.board.slots))
	}
	holds, left := d.holds[:len(d.board.slots)], len(d.board.slots)
	clear(holds)
	count := func(held *Held, by int) {
		if held == nil || !single && !held.Alone && !held.Exclusive {
			return
		}
		for _, index := range held.Cards {
			i, on := d.board.position(index)
			if !on {
				continue
			}
			before := holds[i] > 0
			holds[i] += by
			switch after := holds[i] > 0; {
			case after && !before:
				left--
			case before && !after:
				left++
			}
		}
	}
	for _, list := range [...][]*Held{d.held, d.given} {
		for _, held := range list {
			count(held, 1)
		}
	}
	for n = 0; left < r.GPUs; n++ {
		if n == len(departures) {
			return 0, false
		}
		count(departures[n].held, -1)
	}
	for n > 1 && departures[n-1].at.Equal(departures[n-2].at) {
		n--
	}
	return n, true
}
