package fair

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// work does pieces of work, each as long as a slice, and notes them in said.
func work(t *testing.T, g *Gate, ctx context.Context, name string, pieces int, said *[]string) {
	t.Helper()
	ctx, leave := g.Begin(ctx)
	defer leave()
	for i := range pieces {
		if err := Spend(ctx, Long); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		*said = append(*said, fmt.Sprint(name, i+1))
		<-time.After(g.Slice)
	}
}

// TestLongWorkIsDoneInTurns: whatever one user has in progress and waiting, another
// user's work waits for one slice, and goes on after each slice of the first. The
// requests of one user come one after another.
func TestLongWorkIsDoneInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate(1, 1)
		var said []string
		start := func(uid int, name string, pieces int) {
			go work(t, gate, As(t.Context(), uid), name, pieces, &said)
			synctest.Wait()
		}
		start(1, "a", 4)
		start(1, "aa", 2)
		start(1, "aaa", 1)
		start(2, "b", 2)
		start(3, "c", 1)
		<-time.After(20 * gate.Slice)
		synctest.Wait()
		if want := "a1 b1 c1 a2 b2 a3 a4 aa1 aa2 aaa1"; strings.Join(said, " ") != want {
			t.Errorf("done:  %s\nwanted: %s", strings.Join(said, " "), want)
		}
		if gate.busy != 0 || len(gate.inside) != 0 || !gate.lines.empty() {
			t.Errorf("left behind: %+v", gate)
		}
	})
}

// TestShortWorkWaitsForNobody: a request waits for its turn only when it has done
// more than a little, however many others wait.
func TestShortWorkWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate(1, 1)
		hold, _ := gate.Begin(As(t.Context(), 1)) // long work that does not end
		if err := Spend(hold, Long); err != nil {
			t.Fatal(err)
		}
		done := 0
		go func() {
			ctx, leave := gate.Begin(As(t.Context(), 2))
			defer leave()
			for range 5 {
				_ = Spend(ctx, shortWork/4) // the test's end is the only error
				done++
			}
		}()
		synctest.Wait()
		if done != 4 || gate.Waiting() != 1 {
			t.Errorf("%d pieces of short work were done, and %d wait", done, gate.Waiting())
		}
	})
}

// TestWorkEndsWithItsCaller: a caller that goes away while it waits for its turn,
// the first or a later one, leaves no place taken.
func TestWorkEndsWithItsCaller(t *testing.T) {
	for _, before := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			gate := NewGate(1, 1)
			ctx, cancel := context.WithCancel(As(t.Context(), 1))
			ctx, leave := gate.Begin(ctx)
			for range before {
				if err := Spend(ctx, Long); err != nil {
					t.Fatal(err)
				}
			}
			others := make(chan struct{})
			go func() {
				out, err := gate.Enter(As(t.Context(), 2))
				if err != nil {
					t.Error(err)
				}
				<-others
				out()
			}()
			synctest.Wait()
			<-time.After(gate.Slice)
			ended := make(chan error)
			go func() { ended <- Spend(ctx, Long) }()
			synctest.Wait()
			cancel()
			if err := <-ended; err == nil {
				t.Error("it went on")
			}
			leave()
			leave() // twice is once
			close(others)
			synctest.Wait()
			if gate.busy != 0 || len(gate.inside) != 0 || !gate.lines.empty() {
				t.Errorf("left behind: %+v", gate)
			}
		})
	}
}

// TestAddAgain: it is the first of its user, behind the other users.
func TestAddAgain(t *testing.T) {
	var l lines[string]
	for _, item := range []string{"1a", "1b", "2a", "2b"} {
		l.add(int(item[0]), item)
	}
	l.addAgain('1', "1 again")
	l.addAgain('3', "3 again")
	var got []string
	for !l.empty() {
		item, _ := l.next(func(int) bool { return true })
		got = append(got, item)
	}
	if want := []string{"2a", "1 again", "3 again", "2b", "1a", "1b"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
