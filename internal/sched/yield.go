package sched

import "time"

// yielders are the running jobs that give way to one that waits and counts as so
// many GPUs.
type yielders struct {
	gpus  float64
	now   []*Held
	later []*Held   // those that have to run on for a while
	first time.Time // when the first of these has done so
	known bool      // the plan is asked again by when each of these has
}

// footing is all, beside how many GPUs it counts as, that decides who gives way to
// a job in its turn.
type footing struct {
	priority  int
	class     class
	rank, seq int64 // of one that had much: among those the age decides
	gone      int   // how many left by then: those do not give way again
}

func (d *decision) footing(h *head) footing {
	f := footing{priority: h.priority, class: h.class, gone: len(d.gone)}
	if h.class == classLong && d.state.Rules.slices() {
		f.rank, f.seq = h.rank, h.seq
	}
	return f
}

// yieldersTo are those that give way to a job in its turn. At each job that comes
// up it is asked for many kinds of job that would stand there, and as a rule the
// next one is on the same footing: then the answers are still the same.
func (d *decision) yieldersTo(h *head) *yielders {
	if on := d.footing(h); on != d.on {
		d.on, d.yielders = on, d.yielders[:0]
	}
	gpus := powerOf(h).gpus
	for i := range d.yielders {
		if y := &d.yielders[i]; y.gpus == gpus {
			return y
		}
	}
	d.yielders = append(d.yielders, d.findYielders(h, asUsual))
	return &d.yielders[len(d.yielders)-1]
}

func (d *decision) findYielders(h *head, s standing) yielders {
	y := yielders{gpus: powerOf(h).gpus}
	for _, held := range d.held {
		if !d.outranks(h, held, s) {
			continue
		}
		from := d.mayLeave(held, h)
		if !from.After(d.state.Now) {
			y.now = append(y.now, held)
			continue
		}
		if len(y.later) == 0 || from.Before(y.first) {
			y.first = from
		}
		y.later = append(y.later, held)
	}
	return y
}

// awaited reports that the plan is asked again by when each of those has run for
// long enough that has to run on. What came up is not forgotten within a decision.
func (d *decision) awaited(y *yielders, p power) bool {
	if !y.known {
		for _, held := range y.later {
			if !d.awaits(held, p) {
				return false
			}
		}
		y.known = true
	}
	return true
}

// awaits reports that the plan is asked again by when a running job has run for
// long enough to give way to a job of that power.
func (d *decision) awaits(held *Held, p power) bool {
	for i := range d.asked {
		o := &d.asked[i]
		if o.covers(p) && held.Started.Add(held.minRun(&d.state.Rules, o.gpus)).After(d.state.Now) {
			return true
		}
	}
	return false
}
