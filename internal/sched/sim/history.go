package sim

import (
	"time"

	"berth/internal/job"
)

// FromHistory makes a workload of ended jobs. It leaves out jobs that never
// started: they have no duration.
func FromHistory(jobs []job.View, machine Machine) *Workload {
	w := &Workload{Source: "history", Origin: OfHistory, Machine: machine}
	var first time.Time
	for i := range jobs {
		if v := &jobs[i]; replayable(v) && (first.IsZero() || v.SubmittedAt.Before(first)) {
			first = *v.SubmittedAt
		}
	}
	for i := range jobs {
		v := &jobs[i]
		if !replayable(v) || len(w.Jobs) == MaxJobs {
			w.LeftOut++
			continue
		}
		j := Job{
			ID: v.ID, User: v.User, GPUs: max(1, v.GPUs), Priority: v.Priority,
			Submit:   MillisOf(v.SubmittedAt.Sub(first).Seconds()),
			Duration: MillisOf(max(0, v.EndedAt.Sub(*v.StartedAt).Seconds()-v.ParkedS)),
		}
		if v.Share != nil {
			j.Share = *v.Share
		}
		if v.VRAMMiB != nil {
			j.VRAMMiB = *v.VRAMMiB
		}
		for _, peakMiB := range v.PeakVRAMMiB {
			j.UsedMiB = max(j.UsedMiB, peakMiB)
		}
		if j.Command = v.Name; v.Command != nil {
			j.Command = *v.Command
		}
		if k := v.Checkpoints; k != nil {
			j.Duration, j.Saves = j.Duration+MillisOf(max(0, k.RanS-k.LostS)), WhenTold
			if k.EveryS != nil {
				j.Saves = Saves(MillisOf(*k.EveryS))
			}
		}
		switch {
		case v.ParkRefused != nil:
			j.Parks = CannotPark
		case v.Parkings > 0:
			j.Parks = CanPark
		}
		w.add(j, "job "+v.ID)
	}
	return w
}

func replayable(v *job.View) bool {
	return v.SubmittedAt != nil && v.StartedAt != nil && v.EndedAt != nil && (v.GPUs > 0 || v.Share != nil || len(v.GPUIDs) > 0)
}
