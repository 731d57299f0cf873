package stats

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

const day = 24 * time.Hour

// maxStatsWindow bounds the period.
const maxStatsWindow = 3660 * day

// Sum sums up a period. It is given every job that ended since the period
// began, including those that ended after it, and the running jobs.
//
// What the numbers mean:
//   - A job counts, in its row and on its local day, if it ended within the
//     period.
//   - GPU-hours are the time that cards were held within the period, on the day
//     they were held; a share counts as that part of a card. Only the last
//     attempt of a job is known, so earlier attempts are not included. CPU-hours
//     are the same for the CPUs that jobs asked for.
//   - A wait lasts from submission to the start of the last attempt, so it
//     includes the time of earlier attempts.
//   - Utilisation is the part of the cards' time that was allocated, counted
//     from the first known submission if that is later than the beginning of
//     the period. Several jobs on one card at a time count once.
//   - Measured use is weighted with GPU time; jobs without a measurement are
//     left out.
type Sum struct {
	since, until time.Time
	cards        int
	user         string // only this user's jobs; empty: all
	local        *time.Location

	first time.Time // the earliest submission by any user
	given cardTime
	all   row
	users map[string]*row
	days  map[string]*row
}

// New makes an empty sum, with days in a time zone.
func New(since, until time.Time, cards int, user string, local *time.Location) *Sum {
	if earliest := until.Add(-maxStatsWindow); since.Before(earliest) {
		since = earliest
	}
	return &Sum{
		since: since, until: until, cards: cards, user: user, local: local,
		given: newCardTime(since, until), users: map[string]*row{}, days: map[string]*row{},
	}
}

// Add counts one job. A job that never started has no wait and no GPU time, but
// it ended.
func (s *Sum) Add(j *job.Job) {
	if !j.SubmittedAt.IsZero() && (s.first.IsZero() || j.SubmittedAt.Before(s.first)) {
		s.first = j.SubmittedAt
	}
	if s.user != "" && j.User != s.user {
		return
	}
	user := lineOf(s.users, j.User)
	if j.State.Terminal() && !j.EndedAt.Before(s.since) && j.EndedAt.Before(s.until) {
		for _, line := range []*row{&s.all, user, lineOf(s.days, s.dayOf(j.EndedAt))} {
			line.ended(j)
		}
	}
	s.held(j, user)
}

// held counts GPU and CPU time within the period, day by day.
func (s *Sum) held(j *job.Job, user *row) {
	gpus, cpus := j.ChargedGPUs(), float64(j.ChargedCPUs())
	if j.StartedAt.IsZero() || gpus == 0 && cpus == 0 {
		return
	}
	end := s.until
	if j.State.Terminal() && j.EndedAt.Before(end) {
		end = j.EndedAt
	}
	if span := end.Sub(j.StartedAt); j.Parking.Times > 0 && span > 0 {
		// Parked, it held neither cards nor CPUs. When exactly it did is not recorded.
		part := min(1, j.Worked(end).Seconds()/span.Seconds())
		gpus, cpus = gpus*part, cpus*part
	}
	from := job.Later(j.StartedAt, s.since)
	if !from.Before(end) {
		return
	}
	if j.Spec.To == job.ToLocal { // Slurm's GPUs are not this machine's
		for _, card := range j.Grant.GPUs {
			s.given.add(card, from, end, job.CountedGPUs(1, j.Grant.Share))
		}
	}
	for from.Before(end) {
		next := nextDay(from, s.local)
		if end.Before(next) {
			next = end
		}
		seconds := next.Sub(from).Seconds()
		for _, line := range []*row{&s.all, user, lineOf(s.days, s.dayOf(from))} {
			line.used(gpus*seconds, cpus*seconds, j.AvgUtil)
		}
		from = next
	}
}

func lineOf(lines map[string]*row, key string) *row {
	line := lines[key]
	if line == nil {
		line = &row{}
		lines[key] = line
	}
	return line
}

func (s *Sum) dayOf(t time.Time) string { return t.In(s.local).Format(time.DateOnly) }

// nextDay is when the next day begins in a time zone. Where clocks change at
// midnight, or a day is skipped, that is not at 00:00.
func nextDay(t time.Time, local *time.Location) time.Time {
	year, month, date := t.In(local).Date()
	next := time.Date(year, month, date+1, 0, 0, 0, 0, local)
	for next.Day() == date {
		next = next.Add(15 * time.Minute) // zone offsets are multiples of this
	}
	return next
}

// Result is the sum: users by GPU time, then by CPU time; days in order.
func (s *Sum) Result() api.Stats {
	stats := api.Stats{
		Since: s.since, Until: s.until, GPUs: s.cards,
		GPUHours: s.all.gpuSeconds / 3600, CPUHours: s.all.cpuSeconds / 3600, Util: s.utilisation(), AvgUtil: s.all.avgUtil(),
		All: s.all.public("all"), Users: []api.StatsLine{}, Days: []api.StatsLine{},
	}
	if stats.Util != nil && s.first.After(s.since) {
		stats.UtilSince = &s.first
	}
	for user, line := range s.users {
		if line.jobs > 0 || line.gpuSeconds > 0 || line.cpuSeconds > 0 {
			stats.Users = append(stats.Users, line.public(user))
		}
	}
	slices.SortFunc(stats.Users, func(a, b api.StatsLine) int {
		return cmp.Or(cmp.Compare(b.GPUHours, a.GPUHours), cmp.Compare(b.CPUHours, a.CPUHours), cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Key, b.Key))
	})
	for _, date := range slices.Sorted(maps.Keys(s.days)) {
		stats.Days = append(stats.Days, s.days[date].public(date))
	}
	return stats
}

func (s *Sum) utilisation() *float64 {
	seconds := s.until.Sub(job.Later(s.since, s.first)).Seconds() * float64(s.cards)
	if s.first.IsZero() || seconds <= 0 {
		return nil
	}
	util := min(s.given.seconds()/seconds, 1) // a card that was removed since still has allocated time
	return &util
}
