package sched

// settling is which kinds of job, or sizes, a decision is done with: nothing can be
// done for those of them that are still to come up.
type settling struct {
	all   []*kind
	sizes *settling // that the kinds are of; nil where these are sizes
	done  []bool    // by place; nil: none is
	count int       // of those
	next  int       // where it is looked on
}

func (s *settling) has(k *kind) bool {
	return s.done != nil && s.done[k.place] || s.sizes != nil && s.sizes.has(k.size)
}

func (s *settling) add(k *kind) {
	if s.done == nil {
		s.done = make([]bool, len(s.all))
	}
	if !s.done[k.place] {
		s.done[k.place] = true
		s.count++
	}
}

// reset forgets what was settled.
func (s *settling) reset() {
	clear(s.done)
	s.count = 0
}

// look settles what it can, a few at a time, and reports whether all is. It stops
// at one that cannot be settled, and goes on behind it the next time.
func (s *settling) look(settle func(*kind) bool) bool {
	for looks := 0; looks < looksAhead && s.count < len(s.all); {
		k := s.all[s.next]
		if s.next++; s.next == len(s.all) {
			s.next = 0
		}
		if s.done != nil && s.done[k.place] {
			continue
		}
		if !s.has(k) {
			if looks++; !settle(k) {
				return false
			}
		}
		s.add(k)
	}
	return s.count == len(s.all)
}
