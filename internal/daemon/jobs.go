package daemon

import (
	"context"
	"strconv"
	"time"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/jobfile"
)

// Job is everything about one job.
func (d *Daemon) Job(ctx context.Context, c api.Caller, id string) (api.Detail, error) {
	j, err := d.find(ctx, c, id)
	if err != nil {
		return api.Detail{}, err
	}
	return d.detail(ctx, c, &j)
}

func (d *Daemon) detail(ctx context.Context, c api.Caller, j *job.Job) (api.Detail, error) {
	var reasons map[string]string
	position := 0
	var g estimates
	if !j.State.Terminal() {
		err := d.do(ctx, func(t *engine.Turn) {
			if g = d.estimate(t, j.ID); j.State == job.Queued {
				reasons = t.Reasons([]string{j.ID})
				position = t.Position(j.ID)
			}
		})
		if err != nil {
			return api.Detail{}, err
		}
	}
	detail := api.Detail{
		View: d.view(c, j, reasons), Array: j.Array(), Position: position,
		TimeLimitS: j.Spec.TimeLimit.Seconds(), After: j.Spec.After,
		RetriesUsed: j.RetriesUsed, Requeues: j.Requeues, UUIDs: j.Grant.UUIDs, BudgetMiB: j.Grant.BudgetMiB,
	}
	if j.State == job.Running {
		detail.Stopping = string(j.Stop)
	}
	if j.NotBefore.After(time.Now()) {
		detail.NotBefore = &j.NotBefore
	}
	if verdict, _ := job.Judge(j.VRAMMiB, j.PeakMiB, d.config().Tolerance); j.State.Terminal() {
		detail.Verdict = string(verdict)
	}
	if d.maySee(c, j) {
		detail.Dir, detail.Settings = j.Spec.Dir, settings(&j.Spec)
		detail.LogDropped = j.LogDropped
		if j.Spec.Snapshot.Path != "" {
			detail.Snapshot = &j.Spec.Snapshot
		}
		detail.ExpectedRun, detail.ExpectedVRAM = g.run, g.vram
	}
	if mayTouch(c, j) {
		events, err := d.store.EventsOf(j.ID, j.SubmittedAt, eventsShown)
		if err != nil {
			return api.Detail{}, err
		}
		for _, ev := range events {
			detail.Events = append(detail.Events, api.Event{Seq: ev.Seq, Time: ev.At, Kind: ev.Kind, Text: ev.Text})
		}
	}
	if mayTouch(c, j) && len(j.Spec.Env) > 0 {
		detail.Env = map[string]string{}
		for _, v := range j.Spec.Env {
			detail.Env[v.Key] = v.Value
		}
	}
	return detail, nil
}

// eventsShown is how many of a job's last events are sent with it.
const eventsShown = 100

// settings lists the remaining fields of the spec as a user would write them.
func settings(s *job.Spec) map[string]string {
	set := jobfile.Settings(s)
	if s.Adopt != nil {
		set["process"] = strconv.Itoa(s.Adopt.PID)
	}
	if s.ArrayLimit > 0 {
		set["array_limit"] = strconv.Itoa(s.ArrayLimit)
	}
	return set
}

func cardsText(j *job.Job) string {
	if len(j.Grant.GPUs) == 0 {
		return "no GPU"
	}
	return "GPU " + j.Grant.List()
}
