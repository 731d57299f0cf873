package keep

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// story plays a job's ending second by second and writes down what is done.
type story struct {
	ending
	t0   time.Time
	said []string
}

func newStory(o Order) *story {
	t0 := time.Unix(1000, 0)
	return &story{ending: newEnding(t0, o), t0: t0}
}

func (s *story) at(seconds float64) time.Time {
	return s.t0.Add(time.Duration(seconds * float64(time.Second)))
}

// until lets time pass, one second at a time.
func (s *story) until(from, to int) {
	for second := from; second <= to; second++ {
		for range 5 {
			what := s.due(s.at(float64(second)))
			if what == nothing {
				break
			}
			s.said = append(s.said, fmt.Sprintf("%d:%s", second, [...]string{"", "warn", "term", "kill"}[what]))
			if what == kill {
				return
			}
		}
	}
}

func TestHowAJobIsEnded(t *testing.T) {
	t.Parallel()
	const second = time.Second
	rows := []struct {
		name string
		o    Order
		play func(s *story)
		want string
		stop string
	}{
		{"a job without a limit is left alone", Order{Grace: 5 * second},
			func(s *story) { s.until(0, 1000) }, "", ""},
		{"a limit: TERM, then KILL after the grace", Order{Limit: 10 * second, Grace: 3 * second},
			func(s *story) { s.until(0, 30) }, "10:term 13:kill", "timeout"},
		{"a warning comes first", Order{Limit: 10 * second, Grace: 3 * second, WarnBefore: 4 * second, WarnSignal: 10},
			func(s *story) { s.until(0, 30) }, "6:warn 10:term 13:kill", "timeout"},
		{"a warning that berth asks for twice comes once, and its limit's beside it", Order{Limit: 10 * second, Grace: 3 * second, WarnBefore: 4 * second, WarnSignal: 10},
			func(s *story) {
				s.announce(s.at(2), "a", true)
				s.until(0, 3)
				s.announce(s.at(4), "a", true)
				s.until(4, 30)
			}, "2:warn 6:warn 10:term 13:kill", "timeout"},
		{"a job that is warned anew, after it was left alone, hears of it again", Order{Grace: 3 * second, WarnSignal: 10},
			func(s *story) {
				s.announce(s.at(2), "a", true)
				s.until(0, 4)
				s.announce(s.at(5), "b", true)
				s.until(5, 6)
				s.request(s.at(7), "aside", 3*second)
				s.announce(s.at(8), "c", true)
				s.until(7, 30)
			}, "2:warn 5:warn 7:term 10:kill", "aside"},
		{"a job without a signal is not warned, and one that has exited neither", Order{Grace: 3 * second},
			func(s *story) {
				s.announce(s.at(1), "a", false)
				s.mainExited(s.at(2))
				s.announce(s.at(3), "b", true)
				s.until(0, 4)
			}, "", ""},
		{"no warning without a signal", Order{Limit: 10 * second, Grace: second, WarnBefore: 4 * second},
			func(s *story) { s.until(0, 30) }, "10:term 11:kill", "timeout"},
		{"a request ends it at once", Order{Limit: 100 * second, Grace: 3 * second},
			func(s *story) { s.until(0, 4); s.request(s.at(5), "cancel", 2*second); s.until(5, 200) }, "5:term 7:kill", "cancel"},
		{"no grace at all", Order{},
			func(s *story) { s.request(s.at(5), "cancel", 0); s.until(5, 9) }, "5:term 5:kill", "cancel"},
		{"a second request shortens the grace, and the first reason stays", Order{},
			func(s *story) {
				s.request(s.at(5), "timeout", 100*second)
				s.until(5, 6)
				s.request(s.at(7), "cancel", second)
				s.until(7, 200)
			}, "5:term 8:kill", "timeout"},
		{"a second request does not lengthen it", Order{},
			func(s *story) {
				s.request(s.at(5), "cancel", 2*second)
				s.until(5, 5)
				s.request(s.at(6), "cancel", 100*second)
				s.until(6, 200)
			}, "5:term 7:kill", "cancel"},
		{"what outlives the main process has the grace twice", Order{Grace: 3 * second},
			func(s *story) { s.mainExited(s.at(5)); s.until(5, 200) }, "8:term 11:kill", ""},
		{"the limit ends what outlives the main process, which ended by itself", Order{Limit: 6 * second, Grace: 3 * second},
			func(s *story) { s.until(0, 4); s.mainExited(s.at(5)); s.until(5, 200) }, "6:term 9:kill", ""},
		{"a limit that is far off does not keep leftovers alive", Order{Limit: 600 * second, Grace: 3 * second},
			func(s *story) { s.mainExited(s.at(5)); s.until(5, 20) }, "8:term 11:kill", ""},
		{"a request after the main process ended only hurries", Order{Grace: 30 * second},
			func(s *story) { s.mainExited(s.at(5)); s.request(s.at(6), "cancel", second); s.until(6, 200) }, "6:term 7:kill", ""},
		{"the grace goes on when the main process obeys", Order{Grace: 3 * second},
			func(s *story) {
				s.request(s.at(5), "cancel", 3*second)
				s.until(5, 5)
				s.mainExited(s.at(6))
				s.until(6, 200)
			}, "5:term 8:kill", "cancel"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := newStory(row.o)
			row.play(s)
			if got := strings.Join(s.said, " "); got != row.want || s.stop != row.stop {
				t.Errorf("got %q, stop %q; want %q, stop %q", got, s.stop, row.want, row.stop)
			}
		})
	}
}

// Whatever is asked in whatever order, a job that is being ended gets TERM
// once, KILL never before it, and KILL again and again in the end.
func TestAnEndingAlwaysComes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 20).Draw(t, "s")) * time.Second
		})
		s := newStory(Order{Grace: length.Draw(t, "grace"), Limit: length.Draw(t, "limit"), WarnBefore: length.Draw(t, "before"), WarnSignal: 10})
		asked, terms, kills := s.limitAt, 0, 0
		for second := range 100 {
			now := s.at(float64(second))
			switch rapid.IntRange(0, 30).Draw(t, "event") {
			case 0:
				s.request(now, "cancel", length.Draw(t, "stop grace"))
				asked = now
			case 1:
				if !s.exited {
					s.mainExited(now)
					asked = now
				}
			}
			for what := s.due(now); what != nothing; what = s.due(now) {
				switch what {
				case term:
					terms++
				case kill:
					kills++
					if terms == 0 {
						t.Fatal("KILL before TERM")
					}
				}
			}
		}
		if at, planned := s.next(); !asked.IsZero() && (!planned || at.Before(s.at(99))) {
			t.Fatalf("an ending has begun and nothing is planned (%v, %v)", at, planned)
		}
		if terms > 1 || (!asked.IsZero() && asked.Before(s.at(50)) && kills < 5) {
			t.Fatalf("%d TERM, %d KILL", terms, kills)
		}
	})
}

func TestALookThatTakesLongDoesNotFollowTheLast(t *testing.T) {
	t.Parallel()
	s := newStory(Order{})
	s.request(s.at(0), "cancel", 0)
	if s.due(s.at(0)) != term {
		t.Fatal("no TERM")
	}
	s.took(term, 3*time.Second) // there is no grace, and none comes of it
	for _, now := range []float64{3, 20, 60} {
		if what := s.due(s.at(now)); what != kill {
			t.Fatalf("at %v: %v", now, what)
		}
		// A look at so many processes that it takes longer than any pause.
		s.took(kill, 4*time.Second)
		if what := s.due(s.at(now + 4)); what != nothing {
			t.Errorf("at %v: %v, and nothing else is ever done", now+4, what)
		}
		if at, planned := s.next(); !planned || at.After(s.at(now+10)) {
			t.Errorf("at %v: the next round is at %v, %v", now, at, planned)
		}
	}
}

func TestTheGraceCountsFromTheMomentAllAreTold(t *testing.T) {
	t.Parallel()
	s := newStory(Order{})
	s.request(s.at(0), "cancel", 2*time.Second)
	if s.due(s.at(1)) != term { // late: the supervisor had no turn before
		t.Fatal("no TERM")
	}
	s.took(term, 3*time.Second)
	if what := s.due(s.at(5.9)); what != nothing {
		t.Errorf("1.9 s after its tree went on: %v", what)
	}
	if what := s.due(s.at(6)); what != kill {
		t.Errorf("2 s after: %v", what)
	}
}
