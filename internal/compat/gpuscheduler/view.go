package gpuscheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
)

// The states of a GPU.
const (
	cardAvailable = "AVAILABLE"
	cardPaused    = "PAUSED"
)

// showCards are the GPUs with this program's states.
func showCards(cards []api.GPU, limits thresholds) []shownCard {
	list := make([]shownCard, 0, len(cards))
	for _, g := range cards {
		card := shownCard{GPU: g.Index, Memory: percent(float64(g.UsedMiB), float64(g.TotalMiB)), Load: g.Util, Jobs: []string{}}
		for _, j := range g.Jobs {
			card.Allocation = addPart(card.Allocation, cmp.Or(j.Share, 1))
			name := jobID(job.View{Name: j.Name})
			if j.Other {
				name = "another scheduler's"
			}
			card.Jobs = append(card.Jobs, name)
		}
		if g.Health != api.HealthOK {
			card.Note = strings.TrimSuffix(g.Health+": "+g.HealthReason, ": ")
		}
		if g.Stale {
			card.Note = strings.TrimSuffix("cannot be read: "+g.StaleReason, ": ")
		}
		card.Status = cardState(card, g.Paused, limits)
		list = append(list, card)
	}
	return list
}

// parts are the allocations by the number of the GPU.
func parts(cards []shownCard) []float64 {
	list := []float64{}
	for _, c := range cards {
		for len(list) <= c.GPU {
			list = append(list, 0)
		}
		list[c.GPU] = c.Allocation
	}
	return list
}

// cardState is the state of a GPU: busy with its allocation, or with the usage of
// external processes if that has reached a threshold.
func cardState(c shownCard, paused bool, limits thresholds) string {
	load := 0.0
	if c.Load != nil {
		load = *c.Load
	}
	exceeded := c.Memory >= 100*limits.Memory || load >= 100*limits.Load
	switch {
	case paused:
		return cardPaused
	case c.Allocation > 0:
		return busy(100 * c.Allocation)
	case exceeded || c.Note != "":
		return busy(math.Max(c.Memory, load))
	}
	return cardAvailable
}

func busy(percent float64) string { return fmt.Sprintf("BUSY(%.0f%%)", percent) }

// addPart adds to a GPU's allocation, rounded to thousandths.
func addPart(allocation, part float64) float64 {
	return math.Min(1, math.Round(1000*(allocation+part))/1000)
}

// commandOf is a job's command without the wrapper that holds its screen session.
func commandOf(v job.View) string {
	command := frontend.Value(v.Command)
	if _, inside, found := strings.Cut(command, " "+ScreenWord+" "); found {
		if _, words, found := strings.Cut(inside, " -- "); found {
			return words
		}
	}
	return command
}

func showJob(v job.View) shownJob {
	j := shownJob{
		ID: jobID(v), Key: keyOf(v), Number: v.ID, Name: strings.TrimSuffix(v.Name, "-"+keyOf(v)), State: string(v.State),
		Reason: v.Reason, Priority: -v.Priority, GPUs: v.GPUIDs, Share: v.Share, ExitCode: v.ExitCode,
		Command: commandOf(v), Log: v.Log, SubmittedAt: v.SubmittedAt, EndedAt: v.EndedAt,
	}
	if v.Outcome != nil {
		text := string(*v.Outcome)
		j.Outcome = &text
	}
	if j.GPUs == nil {
		j.GPUs = []int{}
	}
	return j
}

// jobsShown bounds the ended jobs in the state file.
const jobsShown = 1000

// inItsIDs is a sentence with this program's job ids.
func inItsIDs(text string, known map[string]job.View) string {
	return frontend.RenameJobs(text, func(id string) string {
		if v, ok := known[id]; ok {
			return jobID(v)
		}
		return id
	})
}

// forgotten reports whether a job had ended when the state was reset.
func forgotten(v job.View, since time.Time) bool {
	return v.State.Terminal() && v.SubmittedAt != nil && v.SubmittedAt.Before(since)
}

// showJobs are the running jobs, the queued ones by priority, and the newest of
// the ended ones.
func showJobs(views []job.View, since time.Time) []shownJob {
	var live, ended []shownJob
	known := make(map[string]job.View, len(views))
	for _, v := range views {
		known[v.ID] = v
	}
	for _, v := range views {
		j := showJob(v)
		switch {
		case !v.State.Terminal():
			if j.Reason != nil {
				reason := inItsIDs(*j.Reason, known)
				j.Reason = &reason
			}
			live = append(live, j)
		case !forgotten(v, since):
			ended = append(ended, j)
		}
	}
	slices.SortStableFunc(live, func(a, b shownJob) int {
		waits := func(j shownJob) int {
			if j.State == string(job.Queued) {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(waits(a), waits(b)), waits(a)*cmp.Compare(a.Priority, b.Priority))
	})
	return append(append([]shownJob{}, live...), ended[max(0, len(ended)-jobsShown):]...)
}
