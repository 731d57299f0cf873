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

// sweep is tooFew while one after the other leaves: it counts on from one moment to
// the next.
type sweep struct {
	decision   *decision
	gpus       int  // that the job needs
	single     bool // it takes no neighbour
	departures []departure
	gone       int    // how many of them left
	holds      []int  // of each card: how many are on it that the job is not beside
	joined     []bool // of each card: somebody has come to it meanwhile
	left       int    // cards that nobody holds
}

func (d *decision) sweep(h *head, departures []departure) *sweep {
	r, cards := &h.group.request, len(d.board.slots)
	s := &d.swept
	if len(s.holds) < cards {
		s.holds, s.joined = make([]int, cards), make([]bool, cards)
	}
	clear(s.holds)
	*s = sweep{
		decision: d, gpus: r.GPUs, single: r.Exclusive || r.undeclared(), departures: departures,
		holds: s.holds, joined: s.joined, left: cards,
	}
	for _, list := range [...][]*Held{d.held, d.given} {
		for _, held := range list {
			s.count(held, 1)
		}
	}
	return s
}

func (s *sweep) lonely(held *Held) bool { return s.single || held.Alone || held.Exclusive }

func (s *sweep) count(held *Held, by int) {
	if held == nil || !s.lonely(held) {
		return
	}
	for _, index := range held.Cards {
		i, on := s.decision.board.position(index)
		if !on {
			continue
		}
		before := s.holds[i] > 0
		s.holds[i] += by
		switch after := s.holds[i] > 0; {
		case after && !before:
			s.left--
		case before && !after:
			s.left++
		}
	}
}

// leave lets the next one leave.
func (s *sweep) leave() {
	s.count(s.departures[s.gone].held, -1)
	s.gone++
}

// firstEnough is how many have to leave before tooFew can be false, in the order in
// which they do; and false if all of them are not enough. Who leaves at the same
// moment as another leaves with the first of them.
func (s *sweep) firstEnough() (n int, ever bool) {
	for s.left < s.gpus {
		if s.gone == len(s.departures) {
			return 0, false
		}
		s.leave()
	}
	for n = s.gone; n > 1 && s.departures[n-1].at.Equal(s.departures[n-2].at); {
		n--
	}
	return n, true
}

// tooFew is that of the decision when so many have left, and all who leave at the
// same moment. It is asked for more of them each time.
func (s *sweep) tooFew(n int) bool {
	d := s.decision
	at, last := d.moment(s.departures, n)
	for s.gone < last {
		s.leave()
	}
	left := s.left
	clear(s.joined)
	for _, f := range d.futures {
		if left < s.gpus || !s.lonely(f.held) || !d.begun(f, at) {
			continue
		}
		for _, index := range f.cards {
			if i, on := d.board.position(index); on && s.holds[i] == 0 && !s.joined[i] {
				s.joined[i] = true
				left--
			}
		}
	}
	return left < s.gpus
}
