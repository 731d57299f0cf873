package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Scenes in which somebody, or the machine, works against a job. Each bound is
// computed from the scene: how long a job may be passed, and how long what runs
// by then can take.

const (
	bypass  = time.Hour  // the bound of the scenes
	smallS  = 600.0      // how long a small job runs
	streamS = 5 * 3600.0 // how long a stream of them goes on
	parkS   = 20.0       // what parking costs each way
)

// stream is small jobs that come faster than eight cards can run them.
func stream(user string, priority int) []Job {
	var jobs []Job
	for at := 0.0; at < streamS; at += smallS / 10 {
		jobs = append(jobs, urgent(seconds(fmt.Sprint(user, at), user, at, smallS, 1), priority))
	}
	return jobs
}

// scene replays under a policy whose bound is this, with parking where the
// policy has a use for it.
func scene(t *testing.T, name string, maxBypass time.Duration, estimates Estimates, jobs []Job) (input, Result) {
	t.Helper()
	in := input{Jobs: jobs, Machine: Machine{GPUs: 8, VRAMMiB: 81_920}, Policy: policy(t, name), Estimates: estimates, Park: &Parking{EachWay: MillisOf(parkS)}}
	in.Policy.Rules.MaxBypass = maxBypass
	res := run(in)
	for i, f := range res.Fates {
		if f.Refused != nil || f.Unfinished {
			t.Errorf("%s: job %s never ran: %+v", name, jobs[i].ID, f)
		}
	}
	return in, res
}

// waited is how long the job called so waited for its first start.
func waited(in input, res Result, id string) float64 {
	i := slices.IndexFunc(in.Jobs, func(j Job) bool { return j.ID == id })
	return (res.Fates[i].Start - in.Jobs[i].Submit).Seconds()
}

// passing is how long a job can wait at most that is the only one of its user:
// after twice the bound nobody passes it any more, and what runs ends or is set
// aside. Of each other user one job may have been passed for longer and go first.
func passing(others int, longestS float64) float64 {
	return 2*bypass.Seconds() + float64(1+others)*(longestS+2*parkS)
}

func TestAStreamOfSmallJobsDoesNotStarveALargeOne(t *testing.T) {
	for _, p := range Policies() {
		t.Run(p.Name, func(t *testing.T) {
			jobs := append(stream("ann", 0), seconds("large", "bob", 3600, 3600, 8))
			if got, most := waited2(scene(t, p.Name, bypass, None, jobs)), passing(1, smallS); got > most {
				t.Errorf("it waited for %.0f s, longer than %.0f", got, most)
			}
		})
	}
	// The bound is what does it: without one, and with nothing known of how
	// long anybody takes, small jobs pass for as long as they come.
	jobs := append(stream("ann", 0), seconds("large", "bob", 3600, 3600, 8))
	if got := waited2(scene(t, "backfill", 0, None, jobs)); got < streamS-3600 {
		t.Errorf("without a bound it waited for %.0f s only: this is not an attack", got)
	}
}

// before is the GPU time of what was submitted before a moment, in seconds.
func before(jobs []Job, momentS float64) (sum float64) {
	for _, j := range jobs {
		if j.Submit < MillisOf(momentS) {
			sum += j.Duration.Seconds() * float64(j.GPUs)
		}
	}
	return sum
}

func waited2(in input, res Result) float64 { return waited(in, res, "large") }

func TestALargeJobGetsTheCardsKeptForItWhereEndsAreKnown(t *testing.T) {
	// What came before it takes its turn: 60 jobs by 3600 s, of which 48 ran in
	// whole rounds. Then it is first, and waits for what runs.
	jobs := append(stream("ann", 0), seconds("large", "bob", 3600, 3600, 8))
	most := (before(jobs, 3600)+smallS)/8 - 3600 + 2*smallS
	for _, name := range []string{"backfill", "conservative", "fifo"} {
		for _, estimates := range []Estimates{Perfect, History, Fixed(smallS * time.Second)} {
			in, res := scene(t, name, 24*time.Hour, estimates, jobs)
			if got := waited(in, res, "large"); got > most {
				t.Errorf("%s, %s: it waited for %.0f s, longer than %.0f", name, estimates, got, most)
			}
		}
	}
}

func TestAThousandJobsOfOneUserDoNotDelayAnothersFirst(t *testing.T) {
	for _, gpus := range []int{1, 4, 8} {
		jobs := []Job{seconds("first", "bob", 10, 100, gpus)}
		for i := range 1000 {
			jobs = append(jobs, seconds(fmt.Sprint(i), "ann", 0, smallS, 1))
		}
		// What runs when it comes ends, and it is next.
		for _, name := range []string{Default, "fair"} {
			in, res := scene(t, name, 24*time.Hour, Perfect, jobs)
			if got, most := waited(in, res, "first"), smallS; got > most {
				t.Errorf("%s: the first job, of %d GPUs, waited for %.0f s, longer than %.0f", name, gpus, got, most)
			}
			in, res = scene(t, name, bypass, None, jobs)
			if got, most := waited(in, res, "first"), passing(1, smallS); got > most {
				t.Errorf("%s: knowing nothing, the first job, of %d GPUs, waited for %.0f s, longer than %.0f", name, gpus, got, most)
			}
		}
	}
	jobs := []Job{seconds("first", "bob", 10, 100, 1)}
	for i := range 1000 {
		jobs = append(jobs, seconds(fmt.Sprint(i), "ann", 0, smallS, 1))
	}
	if in, res := scene(t, "fifo", 24*time.Hour, Perfect, jobs); waited(in, res, "first") < 100*smallS {
		t.Error("in the order of submission it does not wait for them all: this is not an attack")
	}
}

func TestAFloodOfHigherPrioritiesIsNoEndlessWait(t *testing.T) {
	for _, gpus := range []int{1, 8} {
		jobs := append(stream("ann", 10), seconds("large", "bob", 3600, 3600, gpus))
		for _, p := range Policies() {
			in, res := scene(t, p.Name, bypass, None, jobs)
			if got, most := waited2(in, res), passing(1, smallS); got > most {
				t.Errorf("%s: with %d GPUs it waited for %.0f s, longer than %.0f", p.Name, gpus, got, most)
			}
		}
		if got := waited2(scene(t, "fifo", 0, None, jobs)); got < streamS-3600 {
			t.Errorf("without a bound it waited for %.0f s only: this is not an attack", got)
		}
	}
	// Several users flood at once.
	jobs := []Job{seconds("large", "bob", 3600, 3600, 8)}
	flooders := []string{"ann", "cid", "dan"}
	for _, user := range flooders {
		jobs = append(jobs, stream(user, 10)...)
	}
	for _, p := range Policies() {
		most := passing(len(flooders), smallS)
		if p.Name == "fifo" {
			most += before(jobs, 3600) / 8 // there all that came before it goes first
		}
		if got := waited2(scene(t, p.Name, bypass, None, jobs)); got > most {
			t.Errorf("%s: in a flood of three users it waited for %.0f s, longer than %.0f", p.Name, got, most)
		}
	}
}

func TestWrongEstimatesCostReservationsAndNoJob(t *testing.T) {
	half, double := Fixed(smallS/2*time.Second), Fixed(2*smallS*time.Second)
	for _, estimates := range []Estimates{half, double, None, Limits, History, Fixed(24 * time.Hour)} {
		for _, p := range Policies() {
			jobs := append(stream("ann", 0), seconds("large", "bob", 3600, 3600, 8))
			in, res := scene(t, p.Name, bypass, estimates, jobs)
			// Who passes because it is taken for shorter does so for the bound again.
			if got, most := waited2(in, res), bypass.Seconds()+passing(1, smallS); got > most {
				t.Errorf("%s, every job taken for %s: it waited for %.0f s, longer than %.0f", p.Name, estimates, got, most)
			}
			for i, f := range res.Fates {
				if onCards(f) != jobs[i].Duration+f.Overhead || f.Wasted != 0 {
					t.Fatalf("%s, %s: job %s lost work: %+v", p.Name, estimates, jobs[i].ID, f)
				}
			}
		}
	}
}

func onCards(f Fate) Millis {
	var sum Millis
	for _, s := range f.Segments {
		sum += s.End - s.Start
	}
	return sum
}

func TestTimeLimitsOfHalfAndTwiceTheTime(t *testing.T) {
	for _, times := range []float64{0.5, 2} {
		for _, p := range Policies() {
			jobs := append(stream("ann", 0), seconds("large", "bob", 3600, 3600, 8))
			for i := range jobs {
				jobs[i].Limit = MillisOf(jobs[i].Duration.Seconds() * times)
			}
			in, res := scene(t, p.Name, bypass, Limits, jobs)
			if got, most := waited2(in, res), passing(1, smallS); got > most {
				t.Errorf("%s, limits of %g: it waited for %.0f s, longer than %.0f", p.Name, times, got, most)
			}
			for i, f := range res.Fates {
				if f.TimedOut != (times < 1) || onCards(f)-f.Overhead != jobs[i].runs() {
					t.Fatalf("%s, limits of %g: %+v", p.Name, times, f)
				}
			}
		}
	}
}

func TestDeclarationsOfHalfAndTwiceTheMemoryAndNone(t *testing.T) {
	const usesMiB = 30_000 // two fit on a card, three do not
	for name, declaredMiB := range map[string]int64{"half": usesMiB / 2, "double": 2 * usesMiB, "right": usesMiB, "nothing": 0} {
		for _, p := range Policies() {
			var jobs []Job
			total := 0.0
			for i := range 200 {
				length := 60 + float64(i*37%500)
				total += length
				jobs = append(jobs, using(vram(seconds(fmt.Sprint(i), fmt.Sprint("user", i%5), 0, length, 1), declaredMiB), usesMiB))
			}
			in, res := scene(t, p.Name, bypass, History, jobs)
			m := measure(in, res)
			// A card is never idle while a job waits, so that each but the last
			// is busy to the end with one at least; a third of that at most goes
			// to parking.
			most := total/8 + 560
			if m.Preemptions > 0 {
				most *= 1.5
			}
			if m.MakespanS > most {
				t.Errorf("%s, declared %s: %.0f s, longer than %.0f", p.Name, name, m.MakespanS, most)
			}
			if wrong := name == "half"; wrong != (m.OOMs > 0) || m.OOMs > float64(len(jobs)) {
				t.Errorf("%s, declared %s: %g out of memory", p.Name, name, m.OOMs)
			}
		}
	}
}

func TestStrangersOnTheCards(t *testing.T) {
	const untilS = 4 * 3600.0
	var jobs []Job
	total, longest := 0.0, 0.0
	for i := range 300 {
		length := 60 + float64(i*53%900)
		total, longest = total+length, max(longest, length)
		j := seconds(fmt.Sprint(i), fmt.Sprint("user", i%5), float64(i*20), length, 1+i%3/2)
		switch i % 4 {
		case 0:
			j.VRAMMiB = 20_000 // fits beside any of them
		case 1:
			j.VRAMMiB = 60_000 // beside the small ones
		}
		jobs = append(jobs, j)
	}
	var foreign []Foreign
	for card := range 8 {
		for turn := range 6 {
			from := MillisOf(untilS / 6 * float64(turn))
			foreign = append(foreign, Foreign{Card: card, From: from, Until: from + MillisOf(untilS/6), MiB: 81_920 * int64(1+(card+turn)%6) / 10})
		}
	}
	for _, p := range Policies() {
		in := input{Jobs: jobs, Machine: Machine{GPUs: 8, VRAMMiB: 81_920}, Policy: p, Foreign: foreign, Park: &Parking{EachWay: MillisOf(parkS)}}
		res := run(in)
		m := measure(in, res)
		// Once the external processes are gone, all of it fits. Gangs of two may leave a
		// card idle each time.
		most := untilS + 2*1.5*(2*total/8+longest)
		if m.Jobs != len(jobs) || m.OOMs != 0 || m.MakespanS > most {
			t.Errorf("%s: %d jobs, %g out of memory, %.0f s, at most %.0f", p.Name, m.Jobs, m.OOMs, m.MakespanS, most)
		}
		for i, f := range res.Fates {
			if jobs[i].VRAMMiB == 0 && f.Start < MillisOf(untilS) && p.Name == "fifo" {
				t.Errorf("%s: job %d wants idle cards and starts at %d", p.Name, i, f.Start)
			}
			if f.Wasted != 0 {
				t.Errorf("%s: job %d lost work", p.Name, i)
			}
		}
	}
}

func TestACardIsLostInTheMiddleOfAGang(t *testing.T) {
	for _, p := range Policies() {
		jobs := append(stream("ann", 0), seconds("gang", "bob", 0, 3600, 4))
		in := input{
			Jobs: jobs, Machine: Machine{GPUs: 8, VRAMMiB: 81_920}, Policy: p, Estimates: None,
			Park: &Parking{EachWay: MillisOf(parkS)},
		}
		in.Policy.Rules.MaxBypass = bypass
		before := run(in)
		gang := slices.IndexFunc(jobs, func(j Job) bool { return j.ID == "gang" })
		first := before.Fates[gang].Segments[0]
		lostAt := first.Start + MillisOf(30)
		in.Lost = []loss{{Card: first.Cards[1], From: lostAt}}
		after := run(in)
		f := after.Fates[gang]
		if len(f.Segments) < 2 || f.Segments[0].End != lostAt || f.Wasted != MillisOf(30) || f.Unfinished {
			t.Errorf("%s: %+v", p.Name, f)
			continue
		}
		if got, most := (f.Segments[1].Start - lostAt).Seconds(), passing(1, smallS); got > most {
			t.Errorf("%s: it waited again for %.0f s, longer than %.0f", p.Name, got, most)
		}
		for i, other := range after.Fates {
			for _, s := range other.Segments {
				if slices.Contains(s.Cards, in.Lost[0].Card) && s.End > lostAt {
					t.Fatalf("%s: job %s is on the card that is lost: %+v", p.Name, jobs[i].ID, s)
				}
			}
		}
	}
}

func TestTwoGangsNeverHoldHalfOfTheCardsEach(t *testing.T) {
	// The cards come free one by one. Whoever took what there is would have
	// half of them, and the other the other half, for ever.
	for _, p := range Policies() {
		var jobs []Job
		last := 0.0
		for i := range 8 {
			last = 300 + 100*float64(i)
			jobs = append(jobs, seconds(fmt.Sprint(i), "ann", 0, last, 1))
		}
		jobs = append(jobs, seconds("one", "bob", 10, 7200, 8), seconds("other", "cid", 10, 7200, 8))
		in, res := scene(t, p.Name, bypass, None, jobs)
		m := measure(in, res)
		most := last + 2*7200
		if m.Preemptions > 0 {
			most *= 1.5
		}
		if m.MakespanS > most {
			t.Errorf("%s: %.0f s, longer than %.0f", p.Name, m.MakespanS, most)
		}
		for _, f := range res.Fates[8:] {
			for _, s := range f.Segments {
				if len(s.Cards) != 8 {
					t.Errorf("%s: part of a gang runs: %+v", p.Name, s)
				}
			}
		}
		// Nothing waits beside an idle machine.
		if idle := m.MakespanS*8 - res.AllocatedGPUSeconds; idle > 8*last+1 {
			t.Errorf("%s: %.0f GPU-seconds idle", p.Name, idle)
		}
	}
}
