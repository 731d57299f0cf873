package sched

// tally counts equal values and numbers them, so that a decision can keep its
// findings in a list by number. A value keeps its number while it is counted.
type tally[V comparable] struct {
	list []*counted[V] // by number; nil where a value is gone
	free []int         // numbers of values that are gone
	of   map[V]*counted[V]
}

// counted is a value that is there at least once.
type counted[V comparable] struct {
	value  V
	count  int
	number int
}

func newTally[V comparable]() tally[V] { return tally[V]{of: map[V]*counted[V]{}} }

func (t *tally[V]) count(v V) *counted[V] {
	c, found := t.of[v]
	if !found {
		if len(t.free) == 0 {
			t.free = append(t.free, len(t.list))
			t.list = append(t.list, nil)
		}
		c = &counted[V]{value: v, number: pop(&t.free)}
		t.of[v], t.list[c.number] = c, c
	}
	c.count++
	return c
}

// discount undoes count.
func (t *tally[V]) discount(c *counted[V]) {
	if c.count--; c.count == 0 {
		delete(t.of, c.value)
		t.list[c.number] = nil
		t.free = append(t.free, c.number)
	}
}

func pop[T any](list *[]T) T {
	last := len(*list) - 1
	v := (*list)[last]
	*list = (*list)[:last]
	return v
}
