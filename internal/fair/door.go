package fair

import (
	"context"
	"sync"
)

// Door passes values from many goroutines to one, which takes one user's after
// another's.
type Door[T any] struct {
	mu    sync.Mutex
	lines lines[*visit[T]]
	knock chan struct{} // has one element while somebody waits
}

type visit[T any] struct {
	value T
	taken chan struct{} // closed when it was
}

func NewDoor[T any]() *Door[T] { return &Door[T]{knock: make(chan struct{}, 1)} }

// Pass waits until the value is taken. If ctx ends first, it is not.
func (d *Door[T]) Pass(ctx context.Context, value T) {
	v, user := &visit[T]{value, make(chan struct{})}, userOf(ctx)
	d.mu.Lock()
	d.lines.add(user, v)
	d.wake()
	d.mu.Unlock()
	select {
	case <-v.taken:
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lines.remove(user, v)
	}
}

// Knock has an element when there is probably something to take.
func (d *Door[T]) Knock() <-chan struct{} { return d.knock }

// Take is the next value, if any. Afterwards Knock has an element again if there
// are more.
func (d *Door[T]) Take() (value T, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.lines.next(func(int) bool { return true })
	if !ok {
		return value, false
	}
	close(v.taken)
	if !d.lines.empty() {
		d.wake()
	}
	return v.value, true
}

// Waiting counts the values that wait to be taken.
func (d *Door[T]) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lines.length()
}

func (d *Door[T]) wake() {
	select {
	case d.knock <- struct{}{}:
	default:
	}
}
