package sched

// maxStays bounds what a lane remembers. It is more than the jobs that share a
// card or run at a time on one host, as a rule.
const maxStays = 128

// lane is something that jobs have a part of for a while: a card, the host, what
// a user or an array may have. What ends is all it knows: a stay counts from now
// on, whenever it begins, so that room only grows with time.
type lane struct {
	card  *slot // nil: it is no card
	room  [2]float64
	least [2]float64 // of each, what any job wants that wants it at all beside others; 0: some want none
	floor int64      // nothing begins sooner
	stays []stay     // the one that ends first is first; none that no job has to look at
}

// stay is a job's part of a lane, until its end.
type stay struct {
	end   int64
	use   [2]float64
	alone bool // nothing joins it
	who   binding
}

// need is what a job wants of a lane: room, of which it will use so much.
type need struct {
	use, room [2]float64
	empty     bool // and no other job
}

// roomTolerance lets three thirds be one.
const roomTolerance = 1e-6

// soonest is when the lane has the room, and whose end gives it. It is false
// where it never has, however much ends.
func (n *lane) soonest(d *need) (at int64, binds binding, ok bool) {
	left := [2]float64{n.room[0] - d.room[0], n.room[1] - d.room[1]}
	if d.lacks(left) {
		return never, nobody, false
	}
	// From the last to end backwards: the first without which there would be
	// room is the one to wait for.
	for i := len(n.stays) - 1; i >= 0; i-- {
		s := &n.stays[i]
		left[0] -= s.use[0]
		left[1] -= s.use[1]
		if d.empty || s.alone || d.lacks(left) {
			return max(s.end, n.floor), s.who, true
		}
	}
	return n.floor, nobody, true
}

// lacks reports that less than nothing is left of something that is wanted.
func (d *need) lacks(left [2]float64) bool {
	return d.room[0] > 0 && left[0] < -roomTolerance || d.room[1] > 0 && left[1] < -roomTolerance
}

// add lets a job stay. Those that end before there could be room for anything
// are forgotten. So is, at the bound, the one that ends first: in the worst case
// nothing begins before its end.
func (n *lane) add(s stay, b bent) {
	if s.use == ([2]float64{}) && !s.alone && n.card == nil {
		return
	}
	i := len(n.stays)
	n.stays = append(n.stays, s)
	for ; i > 0 && n.stays[i-1].end > s.end; i-- {
		n.stays[i] = n.stays[i-1]
	}
	n.stays[i] = s
	past := n.past()
	if past == 0 && len(n.stays) > maxStays {
		past = 1
		if b == atMost {
			n.floor = max(n.floor, n.stays[0].end)
		}
	}
	if past > 0 {
		n.stays = append(n.stays[:0], n.stays[past:]...)
	}
}

// past counts the stays that end before there is room for anything.
func (n *lane) past() int {
	left := [2]float64{n.room[0] - n.least[0], n.room[1] - n.least[1]}
	any := need{room: n.least}
	for i := len(n.stays) - 1; i > 0; i-- {
		s := &n.stays[i]
		left[0] -= s.use[0]
		left[1] -= s.use[1]
		if s.alone || any.lacks(left) {
			return i
		}
	}
	return 0
}
