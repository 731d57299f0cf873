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
