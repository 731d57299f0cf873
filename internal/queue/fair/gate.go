package fair

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Gate lets a few in at a time: so many in all, and so many of one user. When
// somebody leaves, it is another user's turn.
type Gate struct {
	most, each int
	// Slice is how long a turn lasts while others wait; set before use.
	Slice time.Duration

	mu     sync.Mutex
	inside map[int]int // by user; none 0
	busy   int
	lines  lines[chan struct{}]
}

// NewGate makes a gate that lets this many in, and this many of one user.
func NewGate(most, each int) *Gate {
	return &Gate{most: max(most, 1), each: max(each, 1), Slice: usualSlice, inside: map[int]int{}}
}

// usualSlice is short for a person, and long beside what a change of turns costs.
const usualSlice = 20 * time.Millisecond

// Enter waits to be let in. The caller calls leave once or more.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	user, let := userOf(ctx), make(chan struct{})
	g.mu.Lock()
	g.lines.add(user, let)
	g.admit()
	g.mu.Unlock()
	if err := g.await(ctx, user, let); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { g.leave(user) }), nil
}

func (g *Gate) await(ctx context.Context, user int, let chan struct{}) error {
	select {
	case <-let:
	case <-ctx.Done():
		if g.giveUp(user, let) {
			return ctx.Err()
		}
	}
	return nil
}

// giveWay lets other users pass that could take the place of this one, which comes
// in again before any other request of its user. After an error it is outside.
func (g *Gate) giveWay(ctx context.Context, user int) error {
	g.mu.Lock()
	if !slices.ContainsFunc(g.lines.users, func(u int) bool { return u != user && g.inside[u] < g.each }) {
		g.mu.Unlock()
		return nil
	}
	let := make(chan struct{})
	g.lines.addAgain(user, let)
	g.goOut(user)
	g.mu.Unlock()
	return g.await(ctx, user, let)
}

// giveUp reports whether it was still waiting.
func (g *Gate) giveUp(user int, let chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lines.remove(user, let)
}

func (g *Gate) leave(user int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.goOut(user)
}

func (g *Gate) goOut(user int) {
	g.busy--
	if g.inside[user]--; g.inside[user] == 0 {
		delete(g.inside, user)
	}
	g.admit()
}

// admit lets in whoever may.
func (g *Gate) admit() {
	for g.busy < g.most {
		user := 0
		let, ok := g.lines.next(func(u int) bool { user = u; return g.inside[u] < g.each })
		if !ok {
			return
		}
		g.busy++
		g.inside[user]++
		close(let)
	}
}

// Waiting counts those that wait to be let in.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lines.length()
}
