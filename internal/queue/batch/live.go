package batch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/engine/running"
)

const (
	drawEvery  = 200 * time.Millisecond
	fetchEvery = time.Second // how often the queue is asked for what has no events
	fetchTime  = 2 * time.Second
)

// view is what the live block shows besides the counts.
type view struct {
	jobs    map[string]*job.Job // the running and parked ones, as their last events say
	stale   bool                // something happened since the queue was asked
	at      time.Time           // when it was asked
	nowMiB  map[string]map[int]int64
	pending []waitingJob
	paused  string
	doneAt  time.Time
}

// add notes the state of a job.
func (v *view) add(j *job.Job) {
	if v.jobs == nil {
		v.jobs = map[string]*job.Job{}
	}
	if delete(v.jobs, j.ID); j.State == job.Running || j.State == job.Parked {
		v.jobs[j.ID] = j
	}
}

// draw redraws the live block.
func (v *view) draw(ctx context.Context, f *follower) {
	now := time.Now()
	if now.Sub(v.at) >= fetchEvery || v.stale && now.Sub(v.at) >= drawEvery {
		v.stale, v.at = false, now
		v.fetch(ctx, f)
	}
	snap := snapshot{at: now, file: f.opt.File, tally: f.jobs.counts, total: f.jobs.total, pending: v.pending, paused: v.paused, doneAt: v.doneAt}
	for _, j := range v.byStart() {
		r := running.Job{Job: j, NowMiB: -1, CardMiB: v.nowMiB[j.ID]}
		if card, mib := job.Highest(r.CardMiB); card >= 0 {
			r.NowMiB = mib
		}
		if j.State == job.Running {
			snap.running = append(snap.running, r)
		}
	}
	f.voice.screen.show(&snap)
}

func (v *view) byStart() []*job.Job {
	return slices.SortedFunc(maps.Values(v.jobs), func(a, b *job.Job) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
}

// fetch asks the queue what its jobs use, and why the next one waits.
func (v *view) fetch(ctx context.Context, f *follower) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	gpus, err := api.Call(ctx, f.link.Client, api.ListGPUs, api.None{})
	if err != nil {
		return // the next time
	}
	v.nowMiB = map[string]map[int]int64{}
	for _, g := range gpus {
		for _, held := range g.Jobs {
			if held.UsedMiB == nil {
				continue
			}
			if v.nowMiB[held.ID] == nil {
				v.nowMiB[held.ID] = map[int]int64{}
			}
			v.nowMiB[held.ID][g.Index] = *held.UsedMiB
		}
	}
	v.pending, v.paused, v.doneAt = nil, "", time.Time{}
	if sums, err := api.Call(ctx, f.link.Client, api.ListBatches, api.BatchQuery{File: f.batch}); err == nil && len(sums) > 0 {
		v.doneAt = some(sums[0].DoneAt)
	}
	if f.jobs.counts.queued == 0 {
		return
	}
	page, err := api.Call(ctx, f.link.Client, api.ListJobs, api.Query{Select: api.Select{Batch: f.batch, States: []string{string(job.Queued)}}, Queue: true, Limit: 1, Reasons: true})
	if err == nil && len(page.Jobs) > 0 {
		next := waitingJob{job: jobOf(&page.Jobs[0], nil)}
		if why := page.Jobs[0].Reason; why != nil {
			next.reason = *why
		}
		v.pending = []waitingJob{next}
	}
	if status, err := api.Call(ctx, f.link.Client, api.GetStatus, api.None{}); err == nil {
		v.paused = status.Blocked
	}
}

// eventOf is an event as the queue's own process has it.
func eventOf(e *api.Event, specs map[string]*job.Spec) job.Event {
	ev := job.Event{Seq: e.Seq, At: e.Time, Kind: e.Kind, Text: e.Text}
	if e.Job != nil {
		ev.Job = jobOf(e.Job, specs[e.Job.ID])
		if e.Kind == job.EventStopping {
			ev.Job.Stop = job.Stop(e.Text)
		}
		if e.Kind == job.EventRetry {
			ev.Job.RetriesUsed = e.Job.Attempt
		}
	}
	if e.Kind == job.EventCard {
		ev.Card = &job.CardChange{GPU: e.GPU, By: e.By, Bad: e.Bad}
	}
	return ev
}

// jobOf is a job as far as its view tells, and with the spec of its line if that is
// known.
func jobOf(v *job.View, spec *job.Spec) *job.Job {
	j := &job.Job{
		ID: v.ID, User: v.User, State: v.State, Held: v.Held, Preemptions: v.Preemptions,
		Outcome: some(v.Outcome), Detail: some(v.Reason), VRAMMiB: some(v.VRAMMiB), SubmittedAt: some(v.SubmittedAt),
	}
	j.ExitCode, j.AvgUtil, j.Signal, j.Log = v.ExitCode, v.AvgUtil, some(v.Signal), some(v.Log)
	j.StartedAt, j.EndedAt = some(v.StartedAt), some(v.EndedAt)
	if spec != nil {
		j.Spec = *spec
	}
	j.Spec.GPUs, j.Spec.Share, j.Spec.Priority = v.GPUs, some(v.Share), v.Priority
	if v.Name != "job"+v.ID {
		j.Spec.Name = v.Name
	}
	if spec == nil {
		j.Spec.Shell = some(v.Command)
	}
	j.Attempt.Number, j.Grant.Share = v.Attempt, j.Spec.Share
	if j.Grant.GPUs = v.GPUIDs; v.Share == nil && v.VRAMMiB == nil && v.ChargedGPUs != nil && *v.ChargedGPUs < float64(len(v.GPUIDs)) {
		j.Grant.Share = *v.ChargedGPUs / float64(len(v.GPUIDs))
	}
	if v.Slurm != nil {
		j.Spec.To, j.Handover.Slurm, j.Handover.Node, j.Grant.GPUs = job.ToSlurm, some(v.Slurm.ID), some(v.Slurm.Node), v.Slurm.GPUIDs
	}
	if v.PeakVRAMMiB != nil {
		j.PeakMiB = make(map[int]int64, len(v.PeakVRAMMiB))
		for card, mib := range v.PeakVRAMMiB {
			if index, err := strconv.Atoi(card); err == nil {
				j.PeakMiB[index] = mib
			}
		}
	}
	parked := time.Duration(v.ParkedS * float64(time.Second))
	switch j.Parking.Times, j.Parking.Since = v.Parkings, some(v.ParkedSince); {
	case v.ParkedSince != nil:
		j.Parking.Served = v.ParkedSince.Sub(j.StartedAt) - parked
	case v.Parkings > 0:
		j.Parking.Resumed = j.StartedAt.Add(parked) // it ran for as long as since then
	}
	return j
}

func some[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
