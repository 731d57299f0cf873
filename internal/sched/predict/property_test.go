package predict

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The generators draw from few users, commands and numbers of cards, so that
// runs meet on the same shelves.
var (
	users    = rapid.SampledFrom([]string{"ann", "bob", ""})
	programs = rapid.SampledFrom([]string{"", "train.py --seed 1", "train.py --seed 2", "eval.py"})
	cards    = rapid.SampledFrom([]int{-1, 0, 1, 2, 8})
	times    = rapid.OneOf(
		rapid.SampledFrom([]time.Duration{-1, 0, 1, time.Second, time.Hour, 24 * time.Hour, longestRun, 1<<63 - 1}),
		rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(1, 1e6).Draw(t, "seconds")) * time.Second
		}),
	)
)

func pasts() *rapid.Generator[Past] {
	return rapid.Custom(func(t *rapid.T) Past {
		return Past{
			User: users.Draw(t, "user"), Command: programs.Draw(t, "command"), GPUs: cards.Draw(t, "gpus"), Ran: times.Draw(t, "ran"),
			PeakMiB: rapid.SampledFrom([]int64{-1, 0, 1, 1000, 4000, 1<<63 - 1}).Draw(t, "peak"),
			OK:      rapid.Bool().Draw(t, "ok"), OOM: rapid.Bool().Draw(t, "oom"),
		}
	})
}

func asks() *rapid.Generator[Ask] {
	return rapid.Custom(func(t *rapid.T) Ask {
		return Ask{
			User: users.Draw(t, "user"), Command: programs.Draw(t, "command"), GPUs: cards.Draw(t, "gpus"),
			Limit: rapid.OneOf(rapid.Just(time.Duration(0)), times).Draw(t, "limit"),
			Ran:   rapid.OneOf(rapid.Just(time.Duration(0)), times).Draw(t, "ran"),
		}
	})
}

func drawBook(t *rapid.T) (*Book, []Past) {
	runs := rapid.SliceOfN(pasts(), 0, 60).Draw(t, "runs")
	return bookOf(runs), runs
}

func TestGuessesAreInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book, _ := drawBook(t)
		ask := asks().Draw(t, "ask")
		g := book.Duration(ask)
		if g.Low < 0 || g.Low > g.Mid || g.Mid > g.High || g.High > longestRun && g.Source != FromLimit {
			t.Errorf("%+v is not in order", g)
		}
		if ask.Limit > 0 && (g.High > ask.Limit || g.Source == FromNothing && ask.Ran < ask.Limit) {
			t.Errorf("%+v with a limit of %s", g, ask.Limit)
		}
		if g.Source != FromNothing && ask.Ran > 0 && (g.Low < ask.Ran || g.High <= ask.Ran) {
			t.Errorf("%+v of a job that has run for %s", g, ask.Ran)
		}
		if (g.Source == FromNothing) != (g.High == 0) || (g.Samples > 0) != (g.Source == FromCommand || g.Source == FromProgram || g.Source == FromUser) {
			t.Errorf("%+v says more than it rests on, or less", g)
		}
		m, ok := book.VRAM(ask)
		if ok != (m.Samples > 0) || ok && (m.LowMiB <= 0 || m.LowMiB > m.MidMiB || m.MidMiB > m.HighMiB) {
			t.Errorf("%+v, %v is not in order", m, ok)
		}
	})
}

func TestTheSameRunsGiveTheSameAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book, runs := drawBook(t)
		questions := rapid.SliceOfN(asks(), 1, 10).Draw(t, "asks")
		other := NewBook()
		for _, p := range runs {
			other.Add(p)
			for _, ask := range questions { // asking in between changes nothing
				other.Duration(ask)
				other.VRAM(ask)
			}
		}
		for _, ask := range questions {
			if a, b := book.Duration(ask), other.Duration(ask); a != b {
				t.Errorf("%+v: %+v and %+v", ask, a, b)
			}
			if a, _ := book.VRAM(ask); a != first(other.VRAM(ask)) {
				t.Errorf("%+v: %+v and %+v", ask, a, first(other.VRAM(ask)))
			}
		}
	})
}

func first(m Memory, _ bool) Memory { return m }

// This holds whatever the run pushes out, and whatever the estimate rests on then.
func TestALongerRunLowersNoGuess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book, runs := drawBook(t)
		ask := asks().Draw(t, "ask")
		ask.Limit, ask.Ran = 0, 0
		longest := time.Second
		for _, p := range runs {
			longest = max(longest, min(p.Ran, longestRun))
		}
		for range rapid.IntRange(1, 20).Draw(t, "times") {
			before := book.Duration(ask)
			longer := pasts().Draw(t, "longer")
			longer.Ran = longest + time.Duration(rapid.IntRange(0, 1000).Draw(t, "by"))*time.Second
			longest = longer.Ran
			book.Add(longer)
			if after := book.Duration(ask); after.Mid < before.Mid {
				t.Errorf("%+v became %+v by a run of %s", before, after, longer.Ran)
			}
		}
	})
}

func TestTheVerySameCommandsPeakIsItsHighest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ask := Ask{User: "ann", Command: "train.py --seed 1", GPUs: 1}
		peaks := rapid.SliceOfN(rapid.Int64Range(1, 80000), 1, 40).Draw(t, "peaks")
		book, highest := NewBook(), int64(0)
		for i, mib := range peaks {
			book.Add(Past{User: "ann", Command: fmt.Sprint("train.py --seed ", i%3), GPUs: 1, PeakMiB: mib, OK: true})
			if i >= len(peaks)-mostRuns && i%3 == 1 {
				highest = max(highest, mib)
			}
		}
		if m, ok := book.VRAM(ask); highest > 0 && (!ok || m.HighMiB != highest) {
			t.Errorf("the same command had %d at most, the estimate is %+v", highest, m)
		}
	})
}

func TestABookIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book := NewBook()
		book.commands.most, book.users.most = rapid.IntRange(2, 6).Draw(t, "commands"), rapid.IntRange(2, 4).Draw(t, "users")
		for _, p := range rapid.SliceOfN(pasts(), 0, 100).Draw(t, "runs") {
			book.Add(p)
			if book.Len() > book.commands.most+book.users.most {
				t.Fatalf("%d kinds of run where %d and %d are allowed", book.Len(), book.commands.most, book.users.most)
			}
		}
		checkTable(t, &book.commands, mostRuns)
		checkTable(t, &book.users, mostRecent)
	})
}

func checkTable(t *rapid.T, of *table, mostOnShelf int) {
	linked, last := 0, (*shelf)(nil)
	for s := of.newest; s != nil; last, s = s, s.older {
		linked++
		if of.shelves[s.key] != s || s.newer != last {
			t.Fatalf("the shelf of %+v is not where it is looked for", s.key)
		}
		if len(s.runs) > mostOnShelf || cap(s.runs) > 2*mostOnShelf || len(s.peaks) > mostOnShelf {
			t.Fatalf("%d runs and %d peaks on the shelf of %+v", len(s.runs), len(s.peaks), s.key)
		}
	}
	if linked != len(of.shelves) || of.oldest != last {
		t.Fatalf("%d shelves in order of age, %d to be found", linked, len(of.shelves))
	}
}
