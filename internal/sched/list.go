package sched

import "slices"

// chunkLength bounds how much is moved to make room for one element.
const chunkLength = 256

// list is a sorted sequence without duplicates, cut into chunks so that
// adding and removing anywhere costs about the same whatever its length.
type list[T any] struct {
	compare func(a, b T) int
	chunks  [][]T // none empty
	length  int
}

// listPos is a position in a list; it is valid until the list changes.
type listPos struct{ chunk, offset int }

// find gives the place of the first element that is not before v.
func (l *list[T]) find(v T) (listPos, bool) {
	chunk, _ := slices.BinarySearchFunc(l.chunks, v, func(c []T, v T) int {
		return l.compare(c[len(c)-1], v)
	})
	if chunk == len(l.chunks) {
		return listPos{chunk, 0}, false
	}
	offset, found := slices.BinarySearchFunc(l.chunks[chunk], v, l.compare)
	return listPos{chunk, offset}, found
}

// at gives the element at a place, and false behind the last.
func (l *list[T]) at(p listPos) (v T, ok bool) {
	if p.chunk >= len(l.chunks) {
		return v, false
	}
	return l.chunks[p.chunk][p.offset], true
}

// ref is at without the copy, and nil behind the last. The result is read-only and
// valid until the list changes.
func (l *list[T]) ref(p listPos) *T {
	if p.chunk >= len(l.chunks) {
		return nil
	}
	return &l.chunks[p.chunk][p.offset]
}

// after is the place that follows p.
func (l *list[T]) after(p listPos) listPos {
	if p.offset++; p.offset == len(l.chunks[p.chunk]) {
		return listPos{p.chunk + 1, 0}
	}
	return p
}

// insert adds an element that is not in the list.
func (l *list[T]) insert(v T) {
	p, found := l.find(v)
	if found {
		panic("bug: an element was inserted twice")
	}
	l.length++
	if p.chunk == len(l.chunks) {
		if p.chunk == 0 {
			l.chunks = append(l.chunks, []T{v})
			return
		}
		p.chunk--
		p.offset = len(l.chunks[p.chunk])
	}
	chunk := slices.Insert(l.chunks[p.chunk], p.offset, v)
	l.chunks[p.chunk] = chunk
	if len(chunk) > chunkLength {
		// Elements mostly arrive in order, at the end: a full last chunk is
		// left full, and only its newest element moves on.
		half := len(chunk) / 2
		if p.chunk == len(l.chunks)-1 {
			half = len(chunk) - 1
		}
		l.chunks = slices.Insert(l.chunks, p.chunk+1, slices.Clone(chunk[half:]))
		clear(chunk[half:])
		l.chunks[p.chunk] = chunk[:half:half]
	}
}

// remove takes an element out and reports whether it was there.
func (l *list[T]) remove(v T) bool {
	p, found := l.find(v)
	if !found {
		return false
	}
	l.length--
	l.chunks[p.chunk] = slices.Delete(l.chunks[p.chunk], p.offset, p.offset+1)
	if len(l.chunks[p.chunk]) == 0 {
		l.chunks = slices.Delete(l.chunks, p.chunk, p.chunk+1)
	}
	return true
}

// before counts the elements that come before v.
func (l *list[T]) before(v T) int {
	p, _ := l.find(v)
	n := p.offset
	for _, chunk := range l.chunks[:p.chunk] {
		n += len(chunk)
	}
	return n
}
