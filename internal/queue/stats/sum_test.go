package stats

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"
	_ "time/tzdata" // days of other places

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"berth/internal/api"
	"berth/internal/job"
)

// noon of a day in the middle of the window.
var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// ran is a job of ann's on card 0 that waited a minute.
func ran(from, to time.Time, change func(*job.Job)) *job.Job {
	j := &job.Job{
		ID: "1", User: "ann", State: job.Finished, Outcome: job.OK,
		SubmittedAt: from.Add(-time.Minute), Attempt: job.Attempt{StartedAt: from, EndedAt: to, Grant: job.Grant{GPUs: []int{0}}},
	}
	if change != nil {
		change(j)
	}
	return j
}

// sumOf sums up two days around noon on two cards.
func sumOf(jobs ...*job.Job) api.Stats {
	s := New(noon.Add(-day), noon.Add(day), 2, "", time.UTC)
	for _, j := range jobs {
		s.Add(j)
	}
	return s.Result()
}

func hoursBy(lines []api.StatsLine) map[string]float64 {
	found := map[string]float64{}
	for _, line := range lines {
		found[line.Key] = line.GPUHours
	}
	return found
}

var closely = cmpopts.EquateApprox(0, 1e-6)

func TestGPUHoursAreWhatWasHeldInTheWindow(t *testing.T) {
	t.Parallel()
	hours := func(n float64) time.Time { return noon.Add(time.Duration(n * float64(time.Hour))) }
	for _, c := range []struct {
		sentence string
		job      *job.Job
		want     map[string]float64 // by day
		jobs     int
	}{
		{"an hour on one card", ran(noon, hours(1), nil), map[string]float64{"2026-03-10": 1}, 1},
		{"an hour on two cards", ran(noon, hours(1), func(j *job.Job) { j.Grant.GPUs = []int{1, 0} }), map[string]float64{"2026-03-10": 2}, 1},
		{"a quarter of a card", ran(noon, hours(1), func(j *job.Job) { j.Grant.Share = 0.25 }), map[string]float64{"2026-03-10": 0.25}, 1},
		{"a quarter of a card that took half of its memory", ran(noon, hours(1), func(j *job.Job) { j.Grant.Share, j.OverGPUs = 0.25, 0.25 }), map[string]float64{"2026-03-10": 0.5}, 1},
		{"a CPU job that took half of a card", ran(noon, hours(1), func(j *job.Job) { j.Grant.GPUs, j.OverGPUs = nil, 0.5 }), map[string]float64{"2026-03-10": 0.5}, 1},
		{"a job over midnight is on both days", ran(hours(11), hours(15), nil), map[string]float64{"2026-03-10": 1, "2026-03-11": 3}, 1},
		{"what was before the window does not count", ran(hours(-30), hours(-23), nil), map[string]float64{"2026-03-09": 1}, 1},
		{"a job that ended after the window had cards in it", ran(hours(23), hours(30), nil), map[string]float64{"2026-03-11": 1}, 0},
		{"a job that runs counts up to the end of the window", ran(hours(22), time.Time{}, func(j *job.Job) { j.State = job.Running }), map[string]float64{"2026-03-11": 2}, 0},
		{"a job that started after the window", ran(hours(25), hours(26), nil), map[string]float64{}, 0},
		{"a job that ended before the window", ran(hours(-30), hours(-25), nil), map[string]float64{}, 0},
		{"a job that never started", ran(time.Time{}, noon, func(j *job.Job) { j.State, j.SubmittedAt, j.Grant = job.Cancelled, hours(-1), job.Grant{} }), map[string]float64{"2026-03-10": 0}, 1},
		{"a CPU job", ran(noon, hours(1), func(j *job.Job) { j.Grant.GPUs = nil }), map[string]float64{"2026-03-10": 0}, 1},
		{"a clock that was set back", ran(hours(2), hours(1), nil), map[string]float64{"2026-03-10": 0}, 1},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			got := sumOf(c.job)
			if diff := cmp.Diff(c.want, hoursBy(got.Days), closely); diff != "" {
				t.Error(diff)
			}
			sum := 0.0
			for _, h := range c.want {
				sum += h
			}
			if math.Abs(got.GPUHours-sum) > 1e-6 || got.All.Jobs != c.jobs {
				t.Errorf("%v GPU-hours of %d jobs in all", got.GPUHours, got.All.Jobs)
			}
		})
	}
}

// TestCPUHoursAreWhatWasAskedFor: they count beside GPU-hours, and for jobs without a
// GPU.
func TestCPUHoursAreWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	cpus := func(user string, gpus []int, cpus int) func(*job.Job) {
		return func(j *job.Job) { j.User, j.Grant.GPUs, j.Spec.CPUs = user, gpus, cpus }
	}
	overMidnight := noon.Add(14 * time.Hour)
	got := sumOf(
		ran(noon, noon.Add(time.Hour), cpus("ann", []int{0}, 8)),
		ran(noon, noon.Add(time.Hour), cpus("ann", []int{0}, 0)),
		ran(noon, noon.Add(2*time.Hour), cpus("bob", nil, 0)), // which has one CPU
		ran(noon.Add(10*time.Hour), overMidnight, cpus("cay", nil, 3)),
		ran(noon, noon.Add(4*time.Hour), func(j *job.Job) {
			cpus("dan", []int{1}, 4)(j)
			j.Parking.Times, j.Parking.Served, j.Parking.Since = 1, time.Hour, noon.Add(time.Hour)
		}),
		ran(time.Time{}, noon, cpus("eve", nil, 4)),
	)
	users, days := map[string]float64{}, map[string]float64{}
	for _, line := range got.Users {
		users[line.Key] = line.CPUHours
	}
	for _, line := range got.Days {
		days[line.Key] = line.CPUHours
	}
	if diff := cmp.Diff(map[string]float64{"ann": 8, "bob": 2, "cay": 12, "dan": 4, "eve": 0}, users, closely); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]float64{"2026-03-10": 8 + 2 + 6 + 4, "2026-03-11": 6}, days, closely); diff != "" {
		t.Error(diff)
	}
	if math.Abs(got.CPUHours-26) > 1e-6 || math.Abs(got.GPUHours-3) > 1e-6 {
		t.Errorf("%v CPU-hours and %v GPU-hours in all", got.CPUHours, got.GPUHours)
	}
	if order := []string{got.Users[0].Key, got.Users[1].Key, got.Users[2].Key, got.Users[3].Key}; !slices.Equal(order, []string{"ann", "dan", "cay", "bob"}) {
		t.Errorf("in the order %v", order)
	}
}

func TestDaysAreThoseOfThePlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		place    string
		from, to string
		want     map[string]float64
	}{
		{"Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z", map[string]float64{"2026-03-28": 11, "2026-03-29": 23, "2026-03-30": 14}},
		{"Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z", map[string]float64{"2026-10-24": 10, "2026-10-25": 25, "2026-10-26": 13}},
		// Clocks that go from midnight to one, and from midnight back to eleven.
		{"America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-05T12:00:00Z", map[string]float64{"2018-11-03": 15, "2018-11-04": 23, "2018-11-05": 10}},
		{"America/Sao_Paulo", "2018-02-17T12:00:00Z", "2018-02-19T12:00:00Z", map[string]float64{"2018-02-17": 15, "2018-02-18": 24, "2018-02-19": 9}},
		{"Asia/Kathmandu", "2026-03-10T18:00:00Z", "2026-03-10T18:30:00Z", map[string]float64{"2026-03-10": 0.25, "2026-03-11": 0.25}},
	} {
		t.Run(c.place+" "+c.from, func(t *testing.T) {
			place, err := time.LoadLocation(c.place)
			if err != nil {
				t.Fatal(err)
			}
			from, _ := time.Parse(time.RFC3339, c.from)
			to, _ := time.Parse(time.RFC3339, c.to)
			s := New(from.Add(-day), to.Add(day), 1, "", place)
			s.Add(ran(from, to, nil))
			if diff := cmp.Diff(c.want, hoursBy(s.Result().Days), closely); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEveryDayEnds(t *testing.T) {
	t.Parallel()
	places := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Asia/Beirut", "Africa/Cairo", "Pacific/Apia", "America/Asuncion", "Australia/Lord_Howe"}
	for _, name := range places {
		place, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		for at := time.Date(1995, 1, 1, 0, 0, 0, 0, time.UTC); at.Before(end); {
			next := nextDay(at, place)
			if length := next.Sub(at); length > 25*time.Hour {
				t.Errorf("%s: the day of %v has %v", name, at.In(place), length)
			}
			if last := next.Add(-time.Nanosecond).In(place); last.Day() != at.In(place).Day() {
				t.Errorf("%s: the day of %v goes on into %v", name, at.In(place), last)
			}
			if hour := next.In(place).Hour(); hour > 1 {
				t.Errorf("%s: a day begins at %v", name, next.In(place))
			}
			at = next
		}
	}
}

func TestUtilisationCountsACardOnce(t *testing.T) {
	t.Parallel()
	four := noon.Add(4 * time.Hour)
	half := func(j *job.Job) { j.Grant.Share = 0.5 }
	for _, c := range []struct {
		sentence string
		jobs     []*job.Job
		want     float64 // of the 48 GPU-hours from the first submission on
	}{
		{"one job", []*job.Job{ran(noon, four, nil)}, 4},
		{"two jobs that share a card by what they declared", []*job.Job{ran(noon, four, nil), ran(noon, four, nil)}, 4},
		{"two halves of a card", []*job.Job{ran(noon, four, half), ran(noon, four, half)}, 4},
		{"one half of a card", []*job.Job{ran(noon, four, half)}, 2},
		{"one after the other", []*job.Job{ran(noon, noon.Add(time.Hour), nil), ran(noon.Add(time.Hour), four, nil)}, 4},
		{"on another card", []*job.Job{ran(noon, four, nil), ran(noon, four, func(j *job.Job) { j.Grant.GPUs = []int{1} })}, 8},
		{"many small ones within a minute", slices.Repeat([]*job.Job{ran(noon, noon.Add(time.Second), half)}, 3), 1.0 / 3600},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			first := ran(time.Time{}, noon, func(j *job.Job) { j.State, j.SubmittedAt, j.Grant = job.Cancelled, noon, job.Grant{} })
			for _, j := range c.jobs {
				j.SubmittedAt = noon
			}
			got := sumOf(append(c.jobs, first)...)
			if want := c.want / 48; got.Util == nil || math.Abs(*got.Util-want) > 0.0002 {
				t.Errorf("utilisation %v, want %v", *got.Util, want)
			}
			if got.UtilSince == nil || !got.UtilSince.Equal(noon) {
				t.Errorf("it is counted from %v", got.UtilSince)
			}
		})
	}
	t.Run("from the window's begin where jobs are older", func(t *testing.T) {
		got := sumOf(ran(noon.Add(-30*time.Hour), four, nil))
		if got.UtilSince != nil {
			t.Errorf("it is counted from %s", got.UtilSince)
		}
		if want := 28.0 / 96; math.Abs(*got.Util-want) > 0.0002 {
			t.Errorf("utilisation %v, want %v", *got.Util, want)
		}
	})
	t.Run("of nothing it is not known", func(t *testing.T) {
		if got := sumOf(); got.Util != nil || got.UtilSince != nil || got.AvgUtil != nil || got.All.WaitMeanS != nil || got.Users == nil || got.Days == nil {
			t.Errorf("%+v", got)
		}
	})
}

// TestUtilisationIsWhatASweepFinds holds the cells against a plain sweep.
func TestUtilisationIsWhatASweepFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		since, until := noon, noon.Add(cardCells*time.Second) // a cell is a second
		given := newCardTime(since, until)
		held := make([]float64, cardCells)
		for range rapid.IntRange(0, 30).Draw(t, "jobs") {
			from := rapid.IntRange(0, cardCells-1).Draw(t, "from")
			to := min(from+rapid.SampledFrom([]int{1, 2, 100, cardCells}).Draw(t, "length"), cardCells)
			weight := rapid.SampledFrom([]float64{1, 0.5, 0.25}).Draw(t, "weight")
			given.add(3, since.Add(time.Duration(from)*time.Second), since.Add(time.Duration(to)*time.Second), weight)
			for i := from; i < to; i++ {
				held[i] += weight
			}
		}
		want := 0.0
		for _, h := range held {
			want += min(h, 1)
		}
		if got := given.seconds(); math.Abs(got-want) > 1e-6 {
			t.Fatalf("%v seconds, want %v", got, want)
		}
	})
}

func TestWaitsRunsAndMeasuredUse(t *testing.T) {
	t.Parallel()
	util := func(percent float64) *float64 { return &percent }
	jobs := []*job.Job{
		ran(noon, noon.Add(3*time.Hour), func(j *job.Job) {
			j.AvgUtil, j.Checkpoints = util(90), job.Checkpoints{Ran: time.Hour, Lost: 7 * time.Minute}
		}),
		ran(noon, noon.Add(time.Hour), func(j *job.Job) { j.AvgUtil, j.User, j.State = util(10), "bob", job.Failed }),
		ran(noon, noon.Add(time.Hour), nil), // nothing was measured
		ran(time.Time{}, noon, func(j *job.Job) { j.State, j.SubmittedAt = job.Cancelled, noon.Add(-time.Hour) }),
	}
	for i, j := range jobs[:3] {
		j.SubmittedAt = j.StartedAt.Add(-time.Duration(i+1) * 10 * time.Second)
	}
	got := sumOf(jobs...)
	value := func(v float64) *float64 { return &v }
	want := api.StatsLine{
		Key: "all", Jobs: 4, Finished: 2, Failed: 1, Cancelled: 1, GPUHours: 5,
		WaitMeanS: value(20), WaitP50S: value(20), WaitP95S: value(30), WaitMaxS: value(30),
		RunMeanS: value(6000), AvgUtil: value(70), LostS: 420,
	}
	if diff := cmp.Diff(want, got.All, closely); diff != "" {
		t.Error(diff)
	}
	if *got.AvgUtil != 70 {
		t.Errorf("measured %v", *got.AvgUtil)
	}
	var users []string
	for _, line := range got.Users {
		users = append(users, line.Key)
	}
	if diff := cmp.Diff([]string{"ann", "bob"}, users); diff != "" {
		t.Errorf("who had most comes first: %s", diff)
	}
}

func TestStatsOfOneUser(t *testing.T) {
	t.Parallel()
	s := New(noon.Add(-day), noon.Add(day), 2, "bob", time.UTC)
	s.Add(ran(noon.Add(-2*time.Hour), noon, nil))
	s.Add(ran(noon, noon.Add(time.Hour), func(j *job.Job) { j.User = "bob" }))
	got := s.Result()
	if got.GPUHours != 1 || got.All.Jobs != 1 || len(got.Users) != 1 {
		t.Errorf("%+v", got)
	}
	// The machine was there from ann's first job on.
	if want := 1 / (2 * (26 + 1.0/60)); math.Abs(*got.Util-want) > 0.0002 {
		t.Errorf("utilisation %v, want %v", *got.Util, want)
	}
}

func TestAWindowOfAllTimeIsBounded(t *testing.T) {
	t.Parallel()
	s := New(time.Time{}, noon, 1, "", time.UTC)
	s.Add(ran(time.Unix(0, 0), noon.Add(-time.Hour), nil))
	if got := s.Result(); len(got.Days) > 3661 || got.Since.IsZero() {
		t.Errorf("%d days since %v", len(got.Days), got.Since)
	}
}

func TestPercentilesAreExactUpToABoundAndNearBeyond(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 19, 20, 1000, maxWaits - 1, maxWaits, 5 * maxWaits} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			var line row
			for i := range n {
				line.waits.add(float64(i + 1)) // what is kept must not be more of the first, nor of the last
			}
			if len(line.waits.kept) > maxWaits {
				t.Fatalf("%d kept", len(line.waits.kept))
			}
			got := line.public("")
			tolerance := 0.0
			if n >= maxWaits {
				tolerance = 0.01 * float64(n)
			}
			for _, c := range []struct {
				got  *float64
				want float64
			}{{got.WaitP50S, math.Ceil(0.50 * float64(n))}, {got.WaitP95S, math.Ceil(0.95 * float64(n))}} {
				if math.Abs(*c.got-c.want) > tolerance {
					t.Errorf("got %v, want %v", *c.got, c.want)
				}
			}
			if *got.WaitMaxS != float64(n) || *got.WaitMeanS != float64(n+1)/2 {
				t.Errorf("maximum %v, mean %v of %d", *got.WaitMaxS, *got.WaitMeanS, n)
			}
		})
	}
}

// TestStatsAddUp: whatever the jobs, users and days each make up all.
func TestStatsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var jobs []*job.Job
		for range rapid.IntRange(0, 20).Draw(t, "jobs") {
			from := noon.Add(time.Duration(rapid.IntRange(-40, 30).Draw(t, "from")) * time.Hour)
			j := ran(from, from.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "hours"))*time.Hour), nil)
			j.User = rapid.SampledFrom([]string{"ann", "bob", "eve"}).Draw(t, "user")
			j.State = rapid.SampledFrom([]job.State{job.Finished, job.Failed, job.Cancelled, job.Running, job.Queued}).Draw(t, "state")
			j.Grant.GPUs = rapid.SampledFrom([][]int{nil, {0}, {0, 1}}).Draw(t, "cards")
			jobs = append(jobs, j)
		}
		got := sumOf(jobs...)
		for _, lines := range [][]api.StatsLine{got.Users, got.Days} {
			count, hours := 0, 0.0
			for _, line := range lines {
				count += line.Jobs
				hours += line.GPUHours
			}
			if count != got.All.Jobs || math.Abs(hours-got.GPUHours) > 1e-6 {
				t.Fatalf("%d jobs and %v hours, in all %d and %v", count, hours, got.All.Jobs, got.GPUHours)
			}
		}
		if got.All.Jobs != got.All.Finished+got.All.Failed+got.All.Cancelled {
			t.Fatalf("%+v", got.All)
		}
		if got.Util != nil && (*got.Util < 0 || *got.Util > 1) {
			t.Fatalf("utilisation %v", *got.Util)
		}
	})
}
