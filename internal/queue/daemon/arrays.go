package daemon

import (
	"context"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text"
)

// How many tasks of an array are shown with it.
const (
	failedShown     = 10
	unfinishedShown = 50
)

// array is what the tasks of an array have in common, and their sum.
func (h *jobs) array(ctx context.Context, c api.Caller, tasks []job.Job) (api.Detail, error) {
	first := &tasks[0]
	sum := &api.ArrayDetail{Tasks: api.Tasks{Counts: map[string]int{}}, Limit: limitOf(tasks), Failed: []job.View{}, Unfinished: []job.View{}}
	now := time.Now()
	var started, ended time.Time
	for i := range tasks {
		j := &tasks[i]
		sum.Counts[string(j.State)]++
		if j.State == job.Failed && len(sum.Failed) < failedShown {
			sum.Failed = append(sum.Failed, h.svc.view(c, j, nil))
		}
		if !j.StartedAt.IsZero() {
			sum.GPUHours += j.ChargedGPUs() * j.Worked(now).Hours()
			if started.IsZero() || j.StartedAt.Before(started) {
				started = j.StartedAt
			}
		}
		if j.EndedAt.After(ended) {
			ended = j.EndedAt
		}
	}
	open, why, err := h.find.firstOf(ctx, first.Array(), unfinishedShown)
	if err != nil {
		return api.Detail{}, err
	}
	for i := range open {
		v := h.svc.view(c, &open[i], why)
		if sum.Unfinished = append(sum.Unfinished, v); v.State == job.Queued && sum.Reason == "" && v.Reason != nil {
			sum.Reason = *v.Reason
		}
	}
	common := job.Job{ID: first.Array(), User: first.User, UID: first.UID, Spec: first.Spec.Whole(), VRAMMiB: first.Spec.VRAMMiB, State: stateOf(sum.Counts), SubmittedAt: first.SubmittedAt}
	if common.StartedAt = started; common.Spec.Trial.Template != nil {
		setPlaces(&common.Spec, common.Spec.Trial.Template.Base)
	}
	if common.State.Terminal() {
		common.EndedAt = ended
	}
	detail := h.asked(c, &common)
	detail.Tasks, detail.ChargedGPUs = sum, nil // what was charged is in hours
	return detail, nil
}

// limitOf is how many tasks of an array may run at a time. An edit changes it for those
// that have not started.
func limitOf(tasks []job.Job) int {
	for i := range tasks {
		if tasks[i].State == job.Queued {
			return tasks[i].Spec.ArrayLimit
		}
	}
	return tasks[len(tasks)-1].Spec.ArrayLimit
}

// firstOf are the first unfinished tasks of an array, in the order of the queue, and
// why they wait.
func (f *finder) firstOf(ctx context.Context, array string, most int) ([]job.Job, map[string]string, error) {
	ch := choice{ids: map[string]bool{array: true}}
	ch.IDs = []string{array}
	live := liveQuery{ch: &ch, limit: most, queue: true, reasons: true}
	err := f.live(ctx, &live)
	return live.found, live.why, err
}

// stateOf is the state of an array: unfinished as long as a task is, then failed
// if any task has.
func stateOf(counts map[string]int) job.State {
	for _, state := range []job.State{job.Running, job.Parked, job.Queued, job.Failed, job.Cancelled, job.Finished} {
		if counts[string(state)] > 0 {
			return state
		}
	}
	return job.Queued
}

// whyArray is why the first waiting task of an array waits, or else the answer for
// another one, with notes about all of them.
func (h *jobs) whyArray(ctx context.Context, c api.Caller, tasks []job.Job) (api.Why, error) {
	counts := map[string]int{}
	for i := range tasks {
		counts[string(tasks[i].State)]++
	}
	array := tasks[0].Array()
	ch := choice{states: []job.State{job.Queued}, ids: map[string]bool{array: true}}
	ch.IDs = []string{array}
	waiting := liveQuery{ch: &ch, limit: 1, queue: true}
	if err := h.find.live(ctx, &waiting); err != nil {
		return api.Why{}, err
	}
	told := &tasks[slices.IndexFunc(tasks, func(j job.Job) bool { return j.State == stateOf(counts) })]
	if len(waiting.found) > 0 {
		told = &waiting.found[0]
	}
	why, err := h.why(ctx, c, told)
	if err != nil {
		return api.Why{}, err
	}
	why.Notes = append([]string{"array " + array + ": " + api.Tasks{Counts: counts}.String()}, why.Notes...)
	if limit := limitOf(tasks); limit > 0 && counts[string(job.Running)] >= limit && waiting.total > 0 {
		why.Notes = append(why.Notes, text.CountGrouped(waiting.total, "task")+" may start only when another has ended: at most "+text.Grouped(limit)+" run at a time (%"+text.Grouped(limit)+")")
	}
	return why, nil
}
