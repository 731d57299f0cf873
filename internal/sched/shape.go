package sched

// shape is what a group asks for and for how long: of one shape, all fit or
// none does.
type shape struct {
	kin *kin
	amounts
}

func (g *group) shape() shape {
	h := g.head(entry{})
	return shape{g.kin, h.amounts}
}

// size is the shape for however long.
func (s shape) size() shape {
	s.lasts = lasts{}
	return s
}

// shapes are the shapes of groups, each once. They lie in a list beside the map:
// a decision goes through them by their places, and to copy hundreds out of a map
// at each was a tenth of its work.
type shapes struct {
	list   []shape
	counts []int // of groups, by place in the list
	places map[shape]int
}

func newShapes() shapes { return shapes{places: map[shape]int{}} }

func (all *shapes) add(s shape) {
	at, found := all.places[s]
	if !found {
		at = len(all.list)
		all.places[s] = at
		all.list, all.counts = append(all.list, s), append(all.counts, 0)
	}
	all.counts[at]++
}

// drop undoes add. The last one takes the place of one that is gone.
func (all *shapes) drop(s shape) {
	at, found := all.places[s]
	if !found {
		panic("bug: a shape is dropped that no group has")
	}
	if all.counts[at]--; all.counts[at] > 0 {
		return
	}
	last := len(all.list) - 1
	all.list[at], all.counts[at] = all.list[last], all.counts[last]
	all.places[all.list[at]] = at
	delete(all.places, s)
	all.list[last] = shape{}
	all.list, all.counts = all.list[:last], all.counts[:last]
}

// all gives every place in the list.
func (all *shapes) all() []int {
	places := make([]int, len(all.list))
	for i := range places {
		places[i] = i
	}
	return places
}
