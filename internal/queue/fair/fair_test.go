package fair

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUsersTakeTurnsAtTheDoor: one user's visits wait behind each other, and
// another user's comes next.
func TestUsersTakeTurnsAtTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door, ctx := NewDoor[string](), t.Context()
		pass := func(uid int, values ...string) {
			for _, v := range values {
				go door.Pass(As(ctx, uid), v)
				synctest.Wait()
			}
		}
		take := func() string {
			select {
			case <-door.Knock():
			default:
				return "nothing"
			}
			v, _, _ := door.Take()
			return v
		}
		pass(1, "a1", "a2", "a3")
		first := take()
		pass(2, "b1")
		go door.Pass(ctx, "own")
		synctest.Wait()
		pass(1, "a4")
		got := []string{first, take(), take(), take(), take(), take(), take()}
		if want := []string{"a1", "a2", "b1", "own", "a3", "a4", "nothing"}; !slices.Equal(got, want) {
			t.Errorf("taken: %s", strings.Join(got, " "))
		}
	})
}

// TestALongTurnIsPaidFor: a user whose turns take ten times as long has a tenth of
// them, and one who comes back neither has saved anything up nor is in debt for
// long.
func TestALongTurnIsPaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := NewDoor[int]()
		pass := func(uid, times int) {
			for range times {
				go door.Pass(As(t.Context(), uid), uid)
			}
			synctest.Wait()
		}
		turns := func(takes int, cost map[int]time.Duration) map[int]int {
			had := map[int]int{}
			for range takes {
				v, user, ok := door.Take()
				if !ok || v != user {
					t.Fatalf("taken: %d of user %d, %v", v, user, ok)
				}
				had[user]++
				door.Charge(user, cost[user])
			}
			return had
		}
		pass(1, 100)
		pass(2, 100)
		cost := map[int]time.Duration{1: 50 * time.Millisecond, 2: 5 * time.Millisecond, 3: 5 * time.Millisecond, 4: time.Millisecond}
		if had := turns(55, cost); had[1] != 5 || had[2] != 50 {
			t.Errorf("of 55 turns: %v", had)
		}
		pass(3, 20) // from now on, and not since the beginning
		if had := turns(21, cost); had[2] < 9 || had[3] < 9 {
			t.Errorf("of 21 turns with a third user: %v", had)
		}
		cost[4] = time.Hour
		pass(4, 2)
		for turns(1, cost)[4] == 0 {
		}
		pass(2, 1000)
		others := 0 // each of them has another second
		for turns(1, cost)[4] == 0 && others < 1000 {
			others++
		}
		if others < 200 || others > 300 {
			t.Errorf("after a turn of an hour, %d turns of others come first", others)
		}
	})
}

// TestWhoeverGoesAwayIsNotTaken: the value of a caller whose context has ended is
// gone, and the others are not.
func TestWhoeverGoesAwayIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := NewDoor[string]()
		gone, cancel := context.WithCancel(As(t.Context(), 1))
		go door.Pass(gone, "gone")
		synctest.Wait()
		go door.Pass(As(t.Context(), 1), "stays")
		synctest.Wait()
		cancel()
		synctest.Wait()
		if v, _, ok := door.Take(); !ok || v != "stays" {
			t.Errorf("taken: %q", v)
		}
		if v, _, ok := door.Take(); ok {
			t.Errorf("taken: %q", v)
		}
	})
}

// TestTheGateLetsAFewIn: at most so many of one user are inside, however many
// wait, and another user's is next.
func TestTheGateLetsAFewIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate(3, 2)
		var inside []string
		leaves := map[string]func(){}
		enter := func(uid int, name string) {
			go func() {
				leave, err := gate.Enter(As(t.Context(), uid))
				if err != nil {
					t.Error(err)
					return
				}
				inside = append(inside, name)
				leaves[name] = leave
			}()
			synctest.Wait()
		}
		want := func(names string) {
			t.Helper()
			synctest.Wait()
			slices.Sort(inside)
			if got := strings.Join(inside, " "); got != names {
				t.Errorf("inside are %s, not %s", got, names)
			}
		}
		leave := func(name string) {
			once := leaves[name]
			once()
			once() // twice is once
			synctest.Wait()
			inside = slices.DeleteFunc(inside, func(n string) bool { return n == name })
		}
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			enter(1, name)
		}
		want("a1 a2")
		enter(2, "b1")
		want("a1 a2 b1")
		enter(2, "b2")
		enter(3, "c1")
		leave("a1")
		want("a2 a3 b1")
		leave("a2")
		want("a3 b1 b2")
		leave("b1")
		want("a3 b2 c1")
		for _, name := range []string{"a3", "b2", "c1"} {
			leave(name)
		}
		want("a4")
		leave("a4")
		if gate.busy != 0 || len(gate.inside) != 0 || !gate.lines.empty() || len(gate.lines.of) != 0 {
			t.Errorf("left behind: %+v", gate)
		}
	})
}

// TestWhoeverGoesAwayIsNotLetIn: a caller that gave up takes no place.
func TestWhoeverGoesAwayIsNotLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate(1, 1)
		leave, err := gate.Enter(As(t.Context(), 1))
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(As(t.Context(), 2))
		cancel()
		if _, err := gate.Enter(gone); err == nil {
			t.Error("it was let in")
		}
		leave()
		if leave, err = gate.Enter(As(t.Context(), 3)); err != nil {
			t.Fatal(err)
		}
		leave()
		if gate.busy != 0 {
			t.Errorf("left behind: %+v", gate)
		}
	})
}
