package predict

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func hours(n float64) time.Duration { return time.Duration(n * float64(time.Hour)) }

// well is a run that ended well; failed is one that did not.
func well(user, command string, gpus int, ran time.Duration) Past {
	return Past{User: user, Command: command, GPUs: gpus, Ran: ran, OK: true}
}

func failed(user, command string, gpus int, ran time.Duration) Past {
	return Past{User: user, Command: command, GPUs: gpus, Ran: ran}
}

func repeat(p Past, times int) []Past {
	var all []Past
	for range times {
		all = append(all, p)
	}
	return all
}

func bookOf(runs ...[]Past) *Book {
	b := NewBook()
	for _, some := range runs {
		for _, p := range some {
			b.Add(p)
		}
	}
	return b
}

func TestWhatADurationRestsOn(t *testing.T) {
	ask := Ask{User: "ann", Command: "train.py --seed 9", GPUs: 1}
	for name, row := range map[string]struct {
		past  []Past
		limit time.Duration
		want  Estimate // Low and High are looked at elsewhere
	}{
		"an empty book":           {want: Estimate{Source: FromNothing}},
		"a limit alone is halved": {limit: hours(8), want: Estimate{Mid: hours(4), Source: FromLimit}},
		"one run of the command": {
			past: []Past{well("ann", "train.py --seed 1", 1, hours(2))},
			want: Estimate{Mid: hours(2), Source: FromProgram, Samples: 1},
		},
		"the middle of two is the same factor from both": {
			past: []Past{well("ann", "train.py", 1, hours(1)), well("ann", "train.py --seed 1", 1, hours(1)), well("ann", "train.py --seed 2", 1, hours(4))},
			want: Estimate{Mid: hours(2), Source: FromProgram, Samples: 2},
		},
		"the command goes before what the user did since": {
			past: []Past{well("ann", "train.py --seed 1", 1, hours(2)), well("ann", "eval.py", 1, hours(9))},
			want: Estimate{Mid: hours(2), Source: FromProgram, Samples: 1},
		},
		"the command goes before the limit, which bounds it": {
			past: []Past{well("ann", "train.py --seed 1", 1, hours(2))}, limit: hours(1),
			want: Estimate{Mid: hours(1), Source: FromProgram, Samples: 1},
		},
		"on other cards it is still the command": {
			past: []Past{well("ann", "train.py --seed 1", 4, hours(2)), well("ann", "eval.py", 1, hours(9))},
			want: Estimate{Mid: hours(2), Source: FromProgram, Samples: 1},
		},
		"the same number of cards goes before others": {
			past: []Past{well("ann", "train.py --seed 1", 1, hours(2)), well("ann", "train.py --seed 1", 4, hours(1))},
			want: Estimate{Mid: hours(2), Source: FromProgram, Samples: 1},
		},
		"failed runs do not count beside one that ended well": {
			past: []Past{failed("ann", "train.py --seed 1", 1, time.Minute), well("ann", "train.py --seed 1", 1, hours(2)), failed("ann", "train.py --seed 1", 1, time.Minute)},
			want: Estimate{Mid: hours(2), Source: FromProgram, Samples: 1},
		},
		"failed runs never count": {
			past: []Past{failed("ann", "train.py --seed 9", 1, time.Minute), failed("ann", "eval.py", 1, time.Minute)},
			want: Estimate{Source: FromNothing},
		},
		"the same arguments go before others": {
			past: []Past{well("ann", "train.py --seed 9", 1, hours(1)), well("ann", "train.py --seed 1", 1, hours(9)), well("ann", "train.py --seed 9", 1, hours(1))},
			want: Estimate{Mid: hours(1), Source: FromCommand, Samples: 2},
		},
		"the same arguments on other cards too": {
			past: []Past{well("ann", "train.py --seed 9", 2, hours(1)), well("ann", "train.py --seed 1", 2, hours(9))},
			want: Estimate{Mid: hours(1), Source: FromCommand, Samples: 1},
		},
		"one that ended well on other cards goes before one that failed on these": {
			past: []Past{failed("ann", "train.py --seed 1", 1, time.Minute), well("ann", "train.py --seed 2", 2, hours(3))},
			want: Estimate{Mid: hours(3), Source: FromProgram, Samples: 1},
		},
		"another user's command is another program": {
			past: []Past{well("bob", "train.py --seed 9", 1, hours(2))}, want: Estimate{Source: FromNothing},
		},
		"the user's other jobs, where the command is new": {
			past: repeat(well("ann", "eval.py", 1, hours(3)), 5), want: Estimate{Mid: hours(3), Source: FromUser, Samples: 5},
		},
		"the user's jobs go before the limit": {
			past: repeat(well("ann", "", 1, hours(3)), 2), limit: hours(24), want: Estimate{Mid: hours(3), Source: FromUser, Samples: 2},
		},
		"of the user's jobs the last eight": {
			past: append(repeat(well("ann", "", 1, hours(100)), 5), repeat(well("ann", "", 1, hours(3)), 8)...),
			want: Estimate{Mid: hours(3), Source: FromUser, Samples: 8},
		},
		"of the user's jobs those on as many cards, however many others came since": {
			past: append(repeat(well("ann", "", 1, hours(5)), 8), repeat(well("ann", "", 8, hours(1)), 50)...),
			want: Estimate{Mid: hours(5), Source: FromUser, Samples: 8},
		},
		"the user's jobs on other cards are better than nothing": {
			past: repeat(well("ann", "", 8, hours(1)), 3), want: Estimate{Mid: hours(1), Source: FromUser, Samples: 3},
		},
		"the user's failed jobs do not count beside one that ended well on other cards": {
			past: append(repeat(failed("ann", "", 1, time.Minute), 8), well("ann", "", 2, hours(1))),
			want: Estimate{Mid: hours(1), Source: FromUser, Samples: 1},
		},
		"what never ran is not remembered": {
			past: []Past{well("ann", "train.py", 1, 0), well("ann", "train.py", 1, -time.Hour)}, want: Estimate{Source: FromNothing},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ask := ask
			ask.Limit = row.limit
			got := bookOf(row.past).Duration(ask)
			got.Low, got.High = 0, 0
			if got != row.want {
				t.Errorf("estimate %+v, want %+v", got, row.want)
			}
		})
	}
}

// A guess never contradicts how long the job has run already.
func TestARunningJobIsExpectedToRunLongerThanItHas(t *testing.T) {
	same := func(ran ...time.Duration) (past []Past) {
		for _, d := range ran {
			past = append(past, well("ann", "train.py --seed 9", 1, d))
		}
		return past
	}
	for name, row := range map[string]struct {
		past             []Past
		limit, ran       time.Duration
		want             Estimate // Low, Mid and High are looked at below
		least, mid, most time.Duration
	}{
		"before the shortest expected run nothing changes": {
			past: same(hours(2), hours(2)), ran: time.Minute, want: Estimate{Source: FromCommand, Samples: 2}, least: 25 * time.Minute, mid: hours(2), most: hours(10),
		},
		"within the estimate": {
			past: same(hours(2), hours(2)), ran: hours(3), want: Estimate{Source: FromCommand, Samples: 2}, least: hours(3), mid: hours(4), most: hours(10),
		},
		"one that outlasts it is compared with longer runs": {
			past: same(append(repeatedly(15, time.Minute), hours(30))...), ran: hours(29),
			want: Estimate{Source: FromCommand, Samples: 1, Longer: true}, least: hours(29), mid: hours(29.5), most: hours(290),
		},
		"of the same program, if the same command was never that slow": {
			past: append(same(repeatedly(4, time.Minute)...), well("ann", "train.py --seed 1", 1, hours(5))), ran: hours(4),
			want: Estimate{Source: FromProgram, Samples: 1, Longer: true}, least: hours(4), mid: hours(4.5), most: hours(49),
		},
		"nothing ever ran that long": {past: same(repeatedly(16, time.Minute)...), ran: hours(1), want: Estimate{Source: FromNothing}},
		"then its limit is all that is known": {
			past: same(repeatedly(16, time.Minute)...), limit: hours(4), ran: hours(3),
			want: Estimate{Source: FromLimit}, least: hours(3), mid: hours(3.2), most: hours(4),
		},
		"a limit bounds the longer runs": {
			past: same(append(repeatedly(15, time.Minute), hours(30))...), limit: hours(29.5), ran: hours(29),
			want: Estimate{Source: FromCommand, Samples: 1, Longer: true}, least: hours(29), mid: hours(29), most: hours(29.5),
		},
		"past its limit nothing is known": {limit: hours(1), ran: hours(2), want: Estimate{Source: FromNothing}},
	} {
		t.Run(name, func(t *testing.T) {
			got := bookOf(row.past).Duration(Ask{User: "ann", Command: "train.py --seed 9", GPUs: 1, Limit: row.limit, Ran: row.ran})
			if got.High > 0 && (got.Low < row.ran || got.Mid <= row.ran || got.High <= row.ran) {
				t.Errorf("after %s the estimate is %+v", row.ran, got)
			}
			if got.Low < row.least || got.Mid < row.mid || got.High > row.most {
				t.Errorf("estimate %+v, want at least %s, about %s and at most %s", got, row.least, row.mid, row.most)
			}
			got.Low, got.Mid, got.High = 0, 0, 0
			if got != row.want {
				t.Errorf("estimate %+v, want %+v", got, row.want)
			}
		})
	}
}

func repeatedly(times int, d time.Duration) []time.Duration {
	return slices.Repeat([]time.Duration{d}, times)
}

func TestTheLatestOfAUsersJobsMatterMost(t *testing.T) {
	g := bookOf(repeat(well("ann", "", 1, hours(1)), 6), repeat(well("ann", "", 1, hours(10)), 2)).Duration(Ask{User: "ann", GPUs: 1})
	if g.Mid <= hours(3.2) || g.Mid > hours(10) { // the middle of both
		t.Errorf("after six jobs of an hour and two of ten the estimate is %s, nearer to the six", g.Mid)
	}
}

func TestIntervalsNarrowAsRunsAgree(t *testing.T) {
	ask := Ask{User: "ann", Command: "train.py", GPUs: 1}
	last := 1e9
	for _, runs := range []int{1, 2, 4, 8, 16} {
		g := bookOf(repeat(well("ann", "train.py", 1, hours(10)), runs)).Duration(ask)
		factor := g.High.Seconds() / g.Mid.Seconds()
		if factor >= last {
			t.Errorf("after %d equal runs the interval is %s to %s, no narrower than after fewer", runs, g.Low, g.High)
		}
		last = factor
		if runs == 1 && factor < 5 {
			t.Errorf("one run alone is believed to a factor of %.1f", factor)
		}
	}
	if last > 2 {
		t.Errorf("after sixteen equal runs the next is expected within a factor of %.1f", last)
	}
	loose := bookOf(repeat(well("ann", "train.py", 1, hours(1)), 8), repeat(well("ann", "train.py", 1, hours(100)), 8)).Duration(ask)
	if loose.High < hours(100) || loose.Low > hours(1) {
		t.Errorf("runs of an hour and of a hundred: the next is expected within %s and %s", loose.Low, loose.High)
	}
	command := bookOf(repeat(well("ann", "train.py", 2, hours(10)), 2)).Duration(ask)
	same := bookOf(repeat(well("ann", "train.py", 1, hours(10)), 2)).Duration(ask)
	user := bookOf(repeat(well("ann", "eval.py", 1, hours(10)), 2)).Duration(ask)
	if !(same.High < command.High && command.High < user.High) {
		t.Errorf("highest expected %s from the command, %s from other cards, %s from the user: want ever wider", same.High, command.High, user.High)
	}
}

func TestAKeyStandsForItsCommand(t *testing.T) {
	b := NewBook()
	key := Normalise("train.py --seed 3")
	b.Add(Past{User: "ann", Key: key, GPUs: 1, Ran: hours(1), OK: true, PeakMiB: 100})
	for _, ask := range []Ask{{User: "ann", Key: key, GPUs: 1}, {User: "ann", Command: "train.py --seed 4", GPUs: 1}} {
		if g := b.Duration(ask); g.Source != FromProgram {
			t.Errorf("%+v: estimate %+v, want one from the program", ask, g)
		}
		if m, ok := b.VRAM(ask); !ok || m.HighMiB != 200 {
			t.Errorf("%+v: memory %+v, want one run's peak doubled", ask, m)
		}
	}
}

func TestWhatMemoryRestsOn(t *testing.T) {
	ask := Ask{User: "ann", Command: "train.py --batch 9", GPUs: 2}
	measured := func(command string, mib int64) Past {
		p := well("ann", command, 2, hours(1))
		p.PeakMiB = mib
		return p
	}
	with := func(p Past, change func(*Past)) Past {
		change(&p)
		return p
	}
	for name, row := range map[string]struct {
		past []Past
		want Memory
	}{
		"nothing was measured":           {past: []Past{well("ann", "train.py --batch 9", 2, hours(1))}},
		"one other run is doubled":       {[]Past{measured("train.py --batch 1", 1000)}, Memory{1000, 1000, 2000, FromProgram, 1}},
		"two runs add half":              {[]Past{measured("train.py --batch 1", 1000), measured("train.py --batch 2", 1400)}, Memory{1000, 1400, 2100, FromProgram, 2}},
		"sixteen runs add a sixteenth":   {repeat(measured("train.py --batch 1", 1600), 40), Memory{1600, 1600, 1700, FromProgram, 16}},
		"the very same needs no more":    {[]Past{measured("train.py --batch 9", 1000), measured("train.py --batch 1", 5000), measured("train.py --batch 9", 1100)}, Memory{1000, 1100, 1100, FromCommand, 2}},
		"other cards say nothing":        {past: []Past{with(measured("train.py --batch 9", 1000), func(p *Past) { p.GPUs = 1 })}},
		"other users say nothing":        {past: []Past{with(measured("train.py --batch 9", 1000), func(p *Past) { p.User = "bob" })}},
		"one that failed says nothing":   {past: []Past{with(measured("train.py --batch 9", 1000), func(p *Past) { p.OK = false })}},
		"one without enough says enough": {[]Past{with(measured("train.py --batch 9", 1000), func(p *Past) { p.OK, p.OOM = false, true })}, Memory{1000, 1000, 1000, FromCommand, 1}},
		"an absurd peak stays a number":  {[]Past{measured("train.py --batch 1", 1<<63-1)}, Memory{mostMiB, mostMiB, 2 * mostMiB, FromProgram, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			want := row.want
			if want == (Memory{}) {
				want.Source = FromNothing
			}
			got, ok := bookOf(row.past).VRAM(ask)
			if got != want || ok != (want.Samples > 0) {
				t.Errorf("memory %+v, %v, want %+v", got, ok, want)
			}
		})
	}
	if m, ok := bookOf([]Past{{User: "ann", GPUs: 2, PeakMiB: 5, OK: true}}).VRAM(Ask{User: "ann", GPUs: 2}); ok {
		t.Errorf("runs without a command say that a job without one needs %+v", m)
	}
}

func TestWhatWasAddedToLongestAgoIsForgotten(t *testing.T) {
	b := NewBook()
	letters := func(i int) string { // numbers would be taken out
		word := []byte("x")
		for ; i > 0; i /= 26 {
			word = append(word, byte('a'+i%26))
		}
		return string(word)
	}
	b.Add(well("ann", "kept", 1, hours(1)))
	b.Add(well("ann", "lost", 1, hours(1)))
	for i := range mostCommands {
		b.Add(well("bob", letters(i), 1, hours(2)))
		if i%100 == 0 {
			b.Add(well("ann", "kept", 1, hours(1)))
		}
	}
	if g := b.Duration(Ask{User: "ann", Command: "kept", GPUs: 1}); g.Source != FromCommand {
		t.Errorf("a command that ran again and again is forgotten: %+v", g)
	}
	if g := b.Duration(Ask{User: "ann", Command: "lost", GPUs: 1}); g.Source != FromUser {
		t.Errorf("a command that ran before %d others is remembered: %+v", mostCommands, g)
	}
	if len(b.commands.shelves) != mostCommands {
		t.Errorf("%d shelves of commands, want %d", len(b.commands.shelves), mostCommands)
	}
	for i := range 2 * mostUsers {
		b.Add(well(fmt.Sprint("user", i), "", 1, hours(1)))
	}
	if b.Len() != mostCommands+mostUsers {
		t.Errorf("%d kinds of run are remembered, want %d", b.Len(), mostCommands+mostUsers)
	}
}

var sink Estimate

func BenchmarkDuration(b *testing.B) {
	book, asks := filled(1000)
	for i := 0; b.Loop(); i++ {
		sink = book.Duration(asks[i%len(asks)])
	}
}

func BenchmarkDurationOfUser(b *testing.B) {
	book, asks := filled(1000)
	for i := range asks {
		asks[i].Key = "unheard of"
	}
	for i := 0; b.Loop(); i++ {
		sink = book.Duration(asks[i%len(asks)])
	}
}

func BenchmarkVRAM(b *testing.B) {
	book, asks := filled(1000)
	for i := 0; b.Loop(); i++ {
		book.VRAM(asks[i%len(asks)])
	}
}

func BenchmarkAdd(b *testing.B) {
	book, asks := filled(1000)
	for i := 0; b.Loop(); i++ {
		a := asks[i%len(asks)]
		book.Add(Past{User: a.User, Key: a.Key, GPUs: a.GPUs, Ran: hours(1), OK: true})
	}
}

// filled is a book of so many commands with sixteen runs each, and what to ask.
func filled(commands int) (*Book, []Ask) {
	book, asks := NewBook(), []Ask(nil)
	for i := range commands {
		command := fmt.Sprintf("python train.py --model net%c%c --batch-size 64 --lr 3e-4 --seed 1 --out /data/runs/1", 'a'+i%26, 'a'+i/26%26)
		p := Past{User: fmt.Sprint("user", i%40), Command: command, Key: Normalise(command), GPUs: 1 + i%8, OK: true, PeakMiB: 1000}
		for k := range mostRuns {
			p.Ran = hours(float64(1 + k))
			book.Add(p)
		}
		asks = append(asks, Ask{User: p.User, Command: command, Key: p.Key, GPUs: p.GPUs})
	}
	return book, asks
}

// These are the figures of docs/explanation/estimates.md.
func TestASweepFromItsFirstRunOn(t *testing.T) {
	book := NewBook()
	ask := Ask{User: "ann", Command: "python train.py --model resnet50 --lr 0.003 --seed 4", GPUs: 1}
	sweep := "python train.py --model resnet50 --lr 0.1 --seed "
	for _, step := range []struct {
		past           Past
		limit          time.Duration
		low, mid, high time.Duration
		highMiB        int64
	}{
		{past: Past{Command: "python prepare.py", Ran: 20 * time.Minute, OK: true}, low: 2 * time.Second, mid: 20 * time.Minute, high: hours(192)},
		{past: Past{Command: sweep + "1", Ran: 110 * time.Minute, OK: true, PeakMiB: 18200}, low: 685 * time.Second, mid: 110 * time.Minute, high: 17*time.Hour + 39*time.Minute, highMiB: 36400},
		{past: Past{Command: sweep + "2", Ran: 2 * time.Minute, PeakMiB: 3000}, low: 685 * time.Second, mid: 110 * time.Minute, high: 17*time.Hour + 39*time.Minute, highMiB: 36400},
		{past: Past{Command: sweep + "2", Ran: 130 * time.Minute, OK: true, PeakMiB: 18400}, low: 25 * time.Minute, mid: 2 * time.Hour, high: 9*time.Hour + 30*time.Minute, highMiB: 27600},
		{past: Past{Command: sweep + "3", Ran: 2 * time.Hour, OK: true, PeakMiB: 18200}, low: 34 * time.Minute, mid: 2 * time.Hour, high: 6*time.Hour + 58*time.Minute, highMiB: 24534},
		{limit: 3 * time.Hour, low: 34 * time.Minute, mid: 2 * time.Hour, high: 3 * time.Hour, highMiB: 24534},
	} {
		step.past.User, step.past.GPUs = "ann", 1
		book.Add(step.past)
		ask.Limit = step.limit
		got := book.Duration(ask)
		for name, pair := range map[string][2]time.Duration{"low": {got.Low, step.low}, "mid": {got.Mid, step.mid}, "high": {got.High, step.high}} {
			if off := (pair[0] - pair[1]).Abs(); off > max(pair[1]/50, time.Second) {
				t.Errorf("after %q: %s is %s, want about %s", step.past.Command, name, pair[0], pair[1])
			}
		}
		if m, _ := book.VRAM(ask); m.HighMiB != step.highMiB {
			t.Errorf("after %q: %d MiB, want %d", step.past.Command, m.HighMiB, step.highMiB)
		}
	}
}
