package fair

import (
	"context"
	"time"
)

type turnKey struct{}

// turn is the long work of one request, by one goroutine. It begins without a
// place inside the gate, which only work of some length needs.
type turn struct {
	gate   *Gate
	user   int
	free   int // how much it may still do outside
	inside bool
	since  time.Time // when it came in
	over   bool
}

// shortWork is how much every request may do without waiting for its turn: the
// rows of a screen, or of a page.
const shortWork = 100

// Begin makes a context in which Spend waits for a turn at the gate. Before the
// context ends, leave has to be called, once or more.
func (g *Gate) Begin(ctx context.Context) (_ context.Context, leave func()) {
	t := &turn{gate: g, user: userOf(ctx), free: shortWork}
	return context.WithValue(ctx, turnKey{}, t), t.leave
}

// Long is what work counts as that is long however much of it there is.
const Long = shortWork + 1

// Spend is called between the pieces of long work, none of which takes long, with
// how much is done next or was done last. Short work goes on at once. Long work
// waits for its turn, and from time to time for those of other users. After an
// error, the work has to end. Without Begin, only the end of ctx is an error.
func Spend(ctx context.Context, work int) error {
	t, begun := ctx.Value(turnKey{}).(*turn)
	if ctx.Err() != nil || !begun || t.over {
		return ctx.Err()
	}
	t.free -= min(work, t.free+1)
	switch {
	case !t.inside && t.free < 0:
		if _, err := t.gate.Enter(ctx); err != nil {
			return err
		}
	case t.inside && time.Since(t.since) >= t.gate.Slice:
		if err := t.gate.giveWay(ctx, t.user); err != nil {
			t.inside = false
			return err
		}
	default:
		return nil
	}
	t.inside, t.since = true, time.Now()
	return nil
}

func (t *turn) leave() {
	t.over = true
	if t.inside {
		t.inside = false
		t.gate.leave(t.user)
	}
}
