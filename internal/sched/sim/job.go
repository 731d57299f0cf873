package sim

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
)

// Millis is a moment since the workload began, or a duration. Whole
// milliseconds cover any workload, and add up exactly.
type Millis int64

// Seconds is the same as a number of seconds.
func (m Millis) Seconds() float64 { return float64(m) / 1000 }

// duration is the same for sched, whose range is a little smaller.
func (m Millis) duration() time.Duration { return time.Duration(min(m, longest)) * time.Millisecond }

// at is the moment as a date, which sched needs.
func (m Millis) at() time.Time { return time.UnixMilli(int64(m)).UTC() }

// millisUp rounds a moment of sched's up, so that what is due by then has
// happened.
func millisUp(t time.Time) Millis {
	return Millis(t.Add(time.Millisecond - time.Nanosecond).UnixMilli())
}

// MillisOf rounds seconds to whole milliseconds.
func MillisOf(seconds float64) Millis { return Millis(math.Round(seconds * 1000)) }

// The bounds of a workload. Within them no sum of times overflows.
const (
	MaxJobs     = 1_000_000
	MaxSubmit   = Millis(1e13) // three hundred years, within the range of dates
	MaxDuration = Millis(1e12)
	MaxGPUs     = 128
)

// Job is one job of a workload.
type Job struct {
	ID, User string
	Submit   Millis
	Duration Millis // how long it runs if its limit does not end it
	Limit    Millis // its time limit; 0: none
	GPUs     int
	IDs      []int   // exactly these cards, in this order; empty: any
	Allow    []int   // only these; empty: any
	Share    float64 // of each of its GPUs; 0: whole cards, or what VRAMMiB says
	VRAMMiB  int64   // per GPU; 0: undeclared
	UsedMiB  int64   // what it really uses on each; 0: what it declared
	CPUs     int     // of the host
	MemMiB   int64   // likewise
	Priority int
	Array    string // the array it is a task of, if that has a limit
	AtOnce   int    // how many tasks of its array run at a time; 0: all
	Group    string // of its user's groups, if that has a limit
	Saves    Saves  // whether it saves its own work
	Silent   bool   // it never reports a save
	Ends     Ends   // how it ends for others; zero: as any job
	Parks    Parks  // whether it can be parked, if it says so
	Command  string // estimates depend on it and on the user; may be empty
}

// runs is how long the job is on its cards.
func (j *Job) runs() Millis {
	if j.timesOut() {
		return j.Limit
	}
	return j.Duration
}

// limitedArray is the job's array if that limits its running tasks.
func (j *Job) limitedArray() string {
	if j.AtOnce == 0 {
		return ""
	}
	return j.Array
}

// timesOut reports whether the time limit ends the job.
func (j *Job) timesOut() bool { return j.Limit > 0 && j.Limit < j.Duration }

// request is what the job asks of sched.
func (j *Job) request(rules sched.Rules) sched.Request {
	return sched.NewRequest(job.Spec{GPUs: j.GPUs, Share: j.Share, IDs: j.IDs, Allow: j.Allow, CPUs: j.CPUs, MemMiB: j.MemMiB}, j.VRAMMiB, rules)
}

// declaring is a copy of the job with another declared memory.
func (j *Job) declaring(vramMiB int64) *Job {
	changed := *j
	changed.VRAMMiB = vramMiB
	return &changed
}

// Machine is the machine of a replay: identical cards, equally far apart.
type Machine struct {
	GPUs    int
	VRAMMiB int64 // of each
}

func (m Machine) cards() []sched.Card {
	cards := make([]sched.Card, m.GPUs)
	for i := range cards {
		cards[i] = sched.Card{Index: i, Name: "simulated", TotalMiB: m.VRAMMiB, NUMA: -1}
	}
	return cards
}

// wholeCard is a whole card in parts. Parts are whole numbers, so that
// allocating and freeing leaves no rounding error.
const wholeCard = 1_000_000

// part is how much of each of its cards a job takes: the whole card, or the
// larger of its share and its declared memory.
func (m Machine) part(j *Job) int64 {
	if j.Share == 0 && j.VRAMMiB == 0 {
		return wholeCard
	}
	return min(wholeCard, max(1, partOf(j.Share), m.memoryPart(j)))
}

func (m Machine) demand(j *Job) demand { return demand{gpus: j.GPUs, part: m.part(j)} }

func partOf(fraction float64) int64 { return int64(math.Round(fraction * wholeCard)) }

func (m Machine) memoryPart(j *Job) int64 {
	return partOf(float64(j.VRAMMiB) / float64(max(1, m.VRAMMiB)))
}

// bySubmission orders the jobs, as indices. Jobs submitted at the same instant
// are ordered by id, so that the order of the input does not matter.
func bySubmission(jobs []Job) []int {
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareJobs(&jobs[a], &jobs[b]) })
	return order
}

func compareJobs(a, b *Job) int {
	return cmp.Or(
		cmp.Compare(a.Submit, b.Submit),
		cmp.Compare(len(a.ID), len(b.ID)), strings.Compare(a.ID, b.ID),
		strings.Compare(a.User, b.User), cmp.Compare(b.Priority, a.Priority),
		cmp.Compare(a.Duration, b.Duration), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.GPUs, b.GPUs),
		cmp.Compare(a.Share, b.Share), cmp.Compare(a.VRAMMiB, b.VRAMMiB), cmp.Compare(a.UsedMiB, b.UsedMiB),
		strings.Compare(a.Command, b.Command), slices.Compare(a.IDs, b.IDs), slices.Compare(a.Allow, b.Allow),
		strings.Compare(a.Array, b.Array), cmp.Compare(a.AtOnce, b.AtOnce), strings.Compare(a.Group, b.Group),
		cmp.Compare(a.Parks, b.Parks), cmp.Compare(a.Saves, b.Saves), cmp.Compare(a.Ends.Within, b.Ends.Within), cmp.Compare(a.Ends.After, b.Ends.After),
		compareBools(a.Silent, b.Silent),
	)
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Part is how much of each of its cards a job takes, as a share of 1.
func (m Machine) Part(j *Job) float64 { return float64(m.part(j)) / wholeCard }
