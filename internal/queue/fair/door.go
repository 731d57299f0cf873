package fair

import (
	"context"
	"sync"
	"time"
)

// Door passes values from many goroutines to one, which takes those of the user
// first who has cost the least. Users who cost the same take turns.
type Door[T any] struct {
	mu    sync.Mutex
	lines lines[*visit[T]]
	knock chan struct{} // has one element while somebody waits

	// cost is what the values of each user took, of those who are ahead of now.
	// The others count as now: time away saves nothing up.
	cost map[int]time.Duration
	now  time.Duration // the cost of the last user taken
}

// mostAhead bounds how long others can go first after one costly value.
const mostAhead = time.Second

type visit[T any] struct {
	value T
	taken chan struct{} // closed when it was
}

func NewDoor[T any]() *Door[T] {
	return &Door[T]{knock: make(chan struct{}, 1), cost: map[int]time.Duration{}}
}

// Pass waits until the value is taken. If ctx ends first, it is not, and Pass
// returns false.
func (d *Door[T]) Pass(ctx context.Context, value T) (taken bool) {
	v, user := &visit[T]{value, make(chan struct{})}, userOf(ctx)
	d.mu.Lock()
	d.lines.add(user, v)
	d.wake()
	d.mu.Unlock()
	select {
	case <-v.taken:
		return true
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		return !d.lines.remove(user, v)
	}
}

// Knock has an element when there is probably something to take.
func (d *Door[T]) Knock() <-chan struct{} { return d.knock }

// Take is the next value and its user, if any. Afterwards Knock has an element
// again if there are more.
func (d *Door[T]) Take() (value T, user int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, waits := range d.lines.users {
		if i == 0 || d.costOf(waits) < d.costOf(user) {
			user = waits
		}
	}
	v, ok := d.lines.next(func(waits int) bool { return waits == user })
	if !ok {
		return value, 0, false
	}
	d.now = d.costOf(user)
	close(v.taken)
	if !d.lines.empty() {
		d.wake()
	}
	return v.value, user, true
}

// Charge says what a user's values took.
func (d *Door[T]) Charge(user int, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cost[user] = min(d.costOf(user)+took, d.now+mostAhead)
	for user, cost := range d.cost {
		if cost <= d.now {
			delete(d.cost, user)
		}
	}
}

func (d *Door[T]) costOf(user int) time.Duration { return max(d.cost[user], d.now) }

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
