package cli

import (
	"context"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/problem"
	"berth/internal/sim"
)

// fetchHistory is the jobs that ran under this daemon, on its own cards
// unless flags say otherwise.
func (o *simulateOptions) fetchHistory(ctx context.Context, s *session, machine sim.Machine, changed func(flag string) bool, now time.Time) (*workload, error) {
	since, err := optionalWhen("since", o.since, now)
	if err != nil {
		return nil, err
	}
	if !changed("gpus") || !changed("vram") {
		gpus, err := s.client.GPUs(ctx)
		if err != nil {
			return nil, err
		}
		own := machineOf(s, gpus, changed("vram"))
		if !changed("gpus") {
			machine.GPUs = own.GPUs
		}
		if !changed("vram") {
			machine.VRAMMiB = own.VRAMMiB
		}
		if machine.GPUs == 0 || machine.VRAMMiB == 0 {
			return nil, problem.Newf(problem.Unable, "say which to replay on: berth simulate --history --gpus 8 --vram 80G", "this daemon knows no GPUs")
		}
	}
	jobs, _, err := fetchJobs(ctx, s.client, api.Query{
		Select: api.Select{States: []string{string(job.Finished), string(job.Failed), string(job.Cancelled)}},
		Over:   true, Since: since,
	}, 0)
	if err != nil {
		return nil, err
	}
	w := historyWorkload(jobs)
	w.machine = machine
	return w, nil
}

// machineOf is the daemon's machine, as a replay has it: of equal cards.
func machineOf(s *session, gpus []api.GPU, sized bool) sim.Machine {
	m := sim.Machine{GPUs: min(len(gpus), sim.MaxGPUs)}
	differ := false
	for _, g := range gpus {
		differ = differ || m.VRAMMiB > 0 && g.TotalMiB != m.VRAMMiB
		m.VRAMMiB = max(m.VRAMMiB, g.TotalMiB)
	}
	if differ && !sized {
		s.say("the cards differ in size; all are replayed as the largest (--vram for another)")
	}
	return m
}

// historyWorkload makes a workload of jobs that are over. A job that never
// started has no duration to replay.
func historyWorkload(jobs []job.View) *workload {
	w := &workload{source: "history"}
	var first time.Time
	for i := range jobs {
		if v := &jobs[i]; replayable(v) && (first.IsZero() || v.SubmittedAt.Before(first)) {
			first = *v.SubmittedAt
		}
	}
	for i := range jobs {
		v := &jobs[i]
		if !replayable(v) || len(w.jobs) == sim.MaxJobs {
			w.leftOut++
			continue
		}
		j := sim.Job{
			ID: v.ID, User: v.User, GPUs: max(1, v.GPUs), Priority: v.Priority,
			Submit:   sim.MillisOf(v.SubmittedAt.Sub(first).Seconds()),
			Duration: sim.MillisOf(max(0, v.EndedAt.Sub(*v.StartedAt).Seconds())),
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
		w.jobs = append(w.jobs, j)
		w.places = append(w.places, "job "+v.ID)
	}
	w.why = "that never started or had no GPU " + isAre(w.leftOut) + " left out"
	return w
}

func replayable(v *job.View) bool {
	return v.SubmittedAt != nil && v.StartedAt != nil && v.EndedAt != nil && (v.GPUs > 0 || v.Share != nil || len(v.GPUIDs) > 0)
}
