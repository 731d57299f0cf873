package sched

// shape is what a group asks for and for how long: of one shape, all fit or
// none does.
type shape struct {
	kin *kin
	amounts
}

func (g *group) shape() shape {
	a := g.request.amounts()
	a.lasts = g.lasts
	return shape{g.kin, a}
}

// size is the shape for however long.
func (s shape) size() shape {
	s.lasts = lasts{}
	return s
}

// kind is a shape that groups have.
type kind struct {
	shape
	groups int
	place  int   // in the list
	size   *kind // the same for however long; nil where this is a size
}

// kinds are the shapes of groups, each once. They lie in a list beside the map: a
// decision goes through them by their places, and notes by these what it has
// settled.
type kinds struct {
	list []*kind
	of   map[shape]*kind
}

func newKinds() kinds { return kinds{of: map[shape]*kind{}} }

// add counts a group of the shape.
func (all *kinds) add(s shape) *kind {
	k, found := all.of[s]
	if !found {
		k = &kind{shape: s, place: len(all.list)}
		all.of[s] = k
		all.list = append(all.list, k)
	}
	k.groups++
	return k
}

// drop undoes add. The last one takes the place of one that is gone.
func (all *kinds) drop(k *kind) {
	if k.groups--; k.groups > 0 {
		return
	}
	last := len(all.list) - 1
	all.list[k.place] = all.list[last]
	all.list[k.place].place = k.place
	all.list[last] = nil
	all.list = all.list[:last]
	delete(all.of, k.shape)
}
