package sched

// maxSteps bounds what a lane remembers. The jobs that share a card, or run at a
// time on one host, usually need fewer.
const maxSteps = 128

// lane is something that jobs use a part of for some time: a card, the host, a
// user's or an array's limit.
type lane struct {
	card    *slot // nil: not a card
	room    [2]float64
	least   [2]float64 // the least that any job needs of each, if it shares at all; 0: some need none
	steps   []step     // from now on, by time; the last has no end
	endless binding    // the latest of those without a known end
}

// step is a span of time in which nothing changes. It ends where the next begins.
type step struct {
	from int64
	left [2]float64 // what is free
	jobs int32
	shut int32   // of them, jobs that share with none
	who  binding // the job whose end begins it
}

// stay is a job's part of a lane, from its beginning to its end.
type stay struct {
	begin, end int64
	use        [2]float64
	alone      bool // it shares with no job
	who        binding
}

// need is what a job needs of a lane: room, and how much of it the job will use.
type need struct {
	use, room [2]float64
	empty     bool // and no other job
}

func newLane(room, least [2]float64) *lane {
	return &lane{room: room, least: least, steps: []step{{left: room, who: nobody}}, endless: nobody}
}

// roomTolerance lets three thirds be one.
const roomTolerance = 1e-6

// soonest is when the lane has the room for this long, not before a given time, and
// which job's end provides it. Where gaps may not be used, it has the room for good
// from then on. It is false if the lane never has.
func (n *lane) soonest(d *need, from, length int64, gaps bool) (at int64, binds binding, ok bool) {
	if d.lacks(n.room) {
		return never, nobody, false
	}
	first, last := 0, len(n.steps)-1
	if !gaps {
		for first = last; first >= 0 && !d.lacksIn(&n.steps[first]); first-- {
		}
		first++
	}
	begin := -1
	for i := first; i <= last; i++ {
		s := &n.steps[i]
		switch {
		case i < last && n.steps[i+1].from <= from: // it has ended by then
			continue
		case d.lacksIn(s):
			begin = -1
			continue
		case begin < 0:
			begin = i
		}
		at = max(n.steps[begin].from, from)
		if i == last || later(at, length) <= n.steps[i+1].from {
			if binds = nobody; n.steps[begin].from >= from {
				binds = n.steps[begin].who
			}
			return at, binds, true
		}
	}
	return never, n.endless, true
}

func (d *need) lacksIn(s *step) bool {
	return s.shut > 0 || d.empty && s.jobs > 0 || d.lacks(s.left)
}

// lacks reports that there is less than needed.
func (d *need) lacks(left [2]float64) bool {
	return d.room[0] > 0 && left[0]-d.room[0] < -roomTolerance || d.room[1] > 0 && left[1]-d.room[1] < -roomTolerance
}

// add puts a job on the lane.
func (n *lane) add(s stay, l *layout) {
	if s.use == ([2]float64{}) && !s.alone && n.card == nil || s.end <= s.begin {
		return
	}
	first := n.cut(s.begin, nobody)
	end := len(n.steps)
	if s.end < never {
		end = n.cut(s.end, s.who)
	} else {
		n.endless = s.who
	}
	for i := first; i < end; i++ {
		t := &n.steps[i]
		t.left[0] -= s.use[0]
		t.left[1] -= s.use[1]
		if t.jobs++; s.alone {
			t.shut++
		}
	}
	n.forget(l)
}

// cut makes a step begin there, and returns its index.
func (n *lane) cut(at int64, who binding) int {
	i := len(n.steps)
	for i > 0 && n.steps[i-1].from > at {
		i--
	}
	if i == 0 {
		return 0 // the first step is the earliest
	}
	if t := &n.steps[i-1]; t.from == at {
		if who != nobody {
			t.who = who
		}
		return i - 1
	}
	n.steps = append(n.steps, step{})
	copy(n.steps[i+1:], n.steps[i:])
	n.steps[i] = n.steps[i-1]
	n.steps[i].from, n.steps[i].who = at, who
	return i
}

// forget drops steps before there is room for any job. At the bound it also merges
// the first two: no job starts there but the earliest of all, which then sees the
// room of both.
func (n *lane) forget(l *layout) {
	any := need{room: n.least}
	past := 0
	for i := range len(n.steps) - 1 {
		if s := &n.steps[i]; s.jobs > 0 && any.lacksIn(s) {
			past = i + 1
		} else if l.gaps {
			break
		}
	}
	for len(n.steps)-past > maxSteps {
		if s, next := n.steps[past], &n.steps[past+1]; l.bent == atLeast {
			next.from = s.from
			next.left = [2]float64{max(s.left[0], next.left[0]), max(s.left[1], next.left[1])}
			next.jobs, next.shut = min(s.jobs, next.jobs), min(s.shut, next.shut)
		}
		past++
	}
	if past > 0 {
		n.steps = append(n.steps[:0], n.steps[past:]...)
	}
}

// leftAt is what is free at a time.
func (n *lane) leftAt(at int64) [2]float64 {
	i := len(n.steps) - 1
	for i > 0 && n.steps[i].from > at {
		i--
	}
	return n.steps[i].left
}
