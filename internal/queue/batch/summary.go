package batch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

// maxAdvice bounds the list of declarations worth changing.
const maxAdvice = 10

// account measures when each card had a job and when not.
type account struct {
	began   time.Time
	cards   int
	holding map[string]bool // jobs that were seen to start
	onCard  map[int]int     // how many of them are on each card now
	since   map[int]time.Time
	busy    time.Duration // card-time with at least one job
	advice  []advice
	skipped int
	ended   int
}

// advice is a declaration that was off by more than the tolerance.
type advice struct {
	name           string
	declaredMiB    int64
	peakMiB        int64
	percent        float64
	suggestionMiB  int64
	underDeclared  bool
	wastedMiBHours float64
}

func newAccount(now time.Time, cards int) *account {
	return &account{began: now, cards: cards, holding: map[string]bool{}, onCard: map[int]int{}, since: map[int]time.Time{}}
}

func (a *account) follow(ev job.Event, tolerance float64) {
	j := ev.Job
	switch ev.Kind {
	case job.EventStarted, job.EventAdopted, job.EventResumed:
		if j.State == job.Parked || j.Spec.To == job.ToSlurm {
			break // it holds no card of this machine
		}
		a.holding[j.ID] = true
		for _, card := range j.Grant.GPUs {
			if a.onCard[card]++; a.onCard[card] == 1 {
				a.since[card] = ev.At
			}
		}
	case job.EventEnded, job.EventRetry, job.EventRequeued, job.EventPreempted, job.EventParked:
		a.left(j, ev.At)
	}
	if ev.Kind == job.EventEnded {
		a.ended++
		a.advise(j, tolerance)
	}
}

// left frees the cards of a job that was seen to start. One that ended while no
// berth ran does not count against those that share its cards now.
func (a *account) left(j *job.Job, at time.Time) {
	if !a.holding[j.ID] {
		return
	}
	delete(a.holding, j.ID)
	for _, card := range j.Grant.GPUs {
		if a.onCard[card]--; a.onCard[card] == 0 {
			a.busy += at.Sub(a.since[card])
		}
	}
}

func (a *account) advise(j *job.Job, tolerance float64) {
	verdict, percent := job.Judge(j.VRAMMiB, j.PeakMiB, tolerance)
	if verdict != job.VerdictUnder && (verdict != job.VerdictOver || j.Outcome != job.OK) {
		return // right, or it may not have reached its peak
	}
	var peak int64
	for _, mib := range j.PeakMiB {
		peak = max(peak, mib)
	}
	// A little more than the peak, rounded up to a usual size.
	suggestion := int64(math.Ceil(float64(peak)*1.05/256)) * 256
	hours := j.Worked(j.EndedAt).Hours()
	a.advice = append(a.advice, advice{
		name: label(j), declaredMiB: j.VRAMMiB, peakMiB: peak, percent: percent,
		suggestionMiB: suggestion, underDeclared: verdict == job.VerdictUnder,
		wastedMiBHours: math.Abs(float64(j.VRAMMiB-peak)) * hours,
	})
	// Keep the most important: too low first, then the most wasteful.
	slices.SortStableFunc(a.advice, func(x, y advice) int {
		if x.underDeclared != y.underDeclared {
			if x.underDeclared {
				return -1
			}
			return 1
		}
		return cmp.Compare(y.wastedMiBHours, x.wastedMiBHours)
	})
	if len(a.advice) > maxAdvice {
		a.advice = a.advice[:maxAdvice]
		a.skipped++
	}
}

// lines are the summary at the end.
func (a *account) lines(now time.Time, t tally, outcomes map[job.Outcome]int) []string {
	wall := now.Sub(a.began)
	head := fmt.Sprintf("%s in %s: %s", text.Count(a.ended, "job"), text.Seconds(wall), t)
	if t.earlier > 0 {
		head += fmt.Sprintf(" (%d of them in an earlier run)", t.earlier)
	}
	lines := []string{head}
	if kinds := Failures(outcomes); kinds != "" {
		lines = append(lines, "not ok: "+kinds)
	}
	if used, idle := a.hours(now); used+idle > 0 {
		lines = append(lines, fmt.Sprintf("GPU-hours: %.3f used, %.3f idle (%.0f%% busy)", used, idle, 100*used/(used+idle)))
	}
	for i, v := range a.advice {
		if i == 0 {
			lines = append(lines, "declarations worth changing:")
		}
		verb := "lower it to"
		if v.underDeclared {
			verb = "raise it to"
		}
		lines = append(lines, fmt.Sprintf("  %s declared %d MiB, peak %d (%+.0f%%): %s %d", v.name, v.declaredMiB, v.peakMiB, v.percent, verb, v.suggestionMiB))
	}
	if a.skipped > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", a.skipped))
	}
	return lines
}

// Failures counts jobs that did not end well by how they ended; empty: none.
func Failures(outcomes map[job.Outcome]int) string {
	var kinds []string
	for outcome, n := range outcomes {
		kinds = append(kinds, fmt.Sprintf("%d %s", n, outcome))
	}
	slices.Sort(kinds)
	return strings.Join(kinds, ", ")
}

// summary is the last line of --json.
type summary struct {
	Time       time.Time `json:"time"`
	Event      string    `json:"event"`
	OK         int       `json:"ok"`
	Failed     int       `json:"failed"`
	Cancelled  int       `json:"cancelled"`
	Queued     int       `json:"queued"`
	WallSec    float64   `json:"wall_seconds"`
	GPUHours   float64   `json:"gpu_hours_used"`
	IdleHours  float64   `json:"gpu_hours_idle"`
	ExitStatus int       `json:"exit_status"`
}

func summaryRecord(now time.Time, a *account, t tally, status int) summary {
	used, idle := a.hours(now)
	return summary{
		Time: now, Event: "summary", OK: t.ok, Failed: t.failed, Cancelled: t.cancelled, Queued: t.queued,
		WallSec: now.Sub(a.began).Seconds(), GPUHours: used, IdleHours: idle, ExitStatus: status,
	}
}

// hours are the GPU-hours with and without a job.
func (a *account) hours(now time.Time) (used, idle float64) {
	busy := a.busy
	for card, n := range a.onCard {
		if n > 0 {
			busy += now.Sub(a.since[card])
		}
	}
	total := time.Duration(a.cards) * now.Sub(a.began)
	return busy.Hours(), max(0, total-busy).Hours()
}
