package sim

import (
	"time"

	"berth/internal/job"
)

// FromHistory makes a workload of ended jobs. It leaves out jobs that never
// started: they have no duration. restart is what it took a job to go on from what it
// had saved.
func FromHistory(jobs []job.View, machine Machine, restart Millis) *Workload {
	w := &Workload{Source: "history", Origin: OfHistory, Machine: machine}
	stops := stopTimesOf(jobs)
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
			if k.RanS > 0 {
				j.Duration = max(0, j.Duration-restart) + MillisOf(max(0, k.RanS-k.LostS))
			}
			j.Saves, j.Ends = WhenTold, stops.ends(v)
			if k.EveryS != nil {
				j.Saves, j.Silent = Saves(MillisOf(*k.EveryS)), k.SavedAt == nil
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

// stopTimes is how long jobs took to end for others: in seconds, and how often. Those
// that save by the clock often end at once, and the others save first.
type stopTimes struct{ told, byClock [2]float64 }

func (s *stopTimes) kind(k *job.CheckpointsView) *[2]float64 {
	if k.EveryS == nil {
		return &s.told
	}
	return &s.byClock
}

func stopTimesOf(jobs []job.View) (s stopTimes) {
	for i := range jobs {
		if v := &jobs[i]; v.Checkpoints != nil {
			kind := s.kind(v.Checkpoints)
			kind[0] += v.Checkpoints.StoppingS
			kind[1] += float64(v.Preemptions)
		}
	}
	return s
}

// ends is how a job ends for others: as it did, or else as its kind did.
func (s *stopTimes) ends(v *job.View) Ends {
	k := v.Checkpoints
	e := Ends{Within: MillisOf(k.GraceS), After: MillisOf(k.GraceS)}
	if kind := s.kind(k); v.Preemptions > 0 {
		e.After = MillisOf(k.StoppingS / float64(v.Preemptions))
	} else if kind[1] > 0 {
		e.After = MillisOf(kind[0] / kind[1])
	}
	e.After = max(1, e.After)
	return e
}

func replayable(v *job.View) bool {
	return v.SubmittedAt != nil && v.StartedAt != nil && v.EndedAt != nil && (v.GPUs > 0 || v.Share != nil || len(v.GPUIDs) > 0)
}
