package daemon

import (
	"context"
	"strconv"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue/engine"
)

// Job is everything about one job, or about an array.
func (h *jobs) Job(ctx context.Context, c api.Caller, id string) (api.Detail, error) {
	found, err := h.find.findTasks(ctx, c, id)
	switch {
	case err != nil:
		return api.Detail{}, err
	case len(found) > 1:
		return h.array(ctx, c, found)
	}
	return h.detail(ctx, c, &found[0])
}

func (h *jobs) detail(ctx context.Context, c api.Caller, j *job.Job) (api.Detail, error) {
	var reasons map[string]string
	position := 0
	var g estimates
	if !j.State.Terminal() {
		err := h.svc.Do(ctx, func(t *engine.Turn) {
			g = estimate(t, j.ID)
			switch {
			case isWaiting(j):
				reasons = t.Explain().Reasons([]string{j.ID})
			case j.State == job.Running:
				reasons = map[string]string{}
				t.Explain().Borrowed(reasons)
			}
			if j.State == job.Queued {
				position = t.Explain().Position(j.ID)
			}
		})
		if err != nil {
			return api.Detail{}, err
		}
	}
	detail := h.asked(c, j)
	detail.View, detail.Array, detail.Position = h.svc.view(c, j, reasons), j.Array(), position
	detail.RetriesUsed, detail.Requeues, detail.UUIDs, detail.BudgetMiB = j.RetriesUsed, j.Requeues, j.Grant.UUIDs, j.Grant.BudgetMiB
	if j.State == job.Running {
		detail.Stopping = string(j.Stop)
	}
	if j.NotBefore.After(time.Now()) {
		detail.NotBefore = &j.NotBefore
	}
	if verdict, _ := job.Judge(j.VRAMMiB, j.PeakMiB, h.svc.Config().Tolerance); j.State.Terminal() {
		detail.Verdict = string(verdict)
	}
	if h.svc.maySee(c, j) {
		detail.LogDropped, detail.TextDropped = j.LogDropped, j.TextGone
		detail.ExpectedRun, detail.ExpectedVRAM = g.run, g.vram
	}
	if mayTouch(c, j) {
		events, err := h.svc.queue.Store.EventsOf(j.ID, j.SubmittedAt, eventsShown)
		if err != nil {
			return api.Detail{}, err
		}
		for _, ev := range events {
			detail.Events = append(detail.Events, api.Event{Seq: ev.Seq, Time: ev.At, Kind: ev.Kind, Text: ev.Text})
		}
	}
	return detail, nil
}

// asked is the part of a job that its spec has.
func (h *jobs) asked(c api.Caller, j *job.Job) api.Detail {
	detail := api.Detail{View: h.svc.view(c, j, nil), TimeLimitS: j.Spec.TimeLimit.Seconds(), After: j.Spec.After}
	if h.svc.maySee(c, j) {
		detail.Dir, detail.Settings = j.Spec.Dir, fieldsOf(&j.Spec)
		if !mayBe(c, j) {
			delete(detail.Settings, "notify") // a target may be a secret
		}
		if j.Spec.Snapshot.Path != "" {
			detail.Snapshot = &j.Spec.Snapshot
		}
	}
	if mayTouch(c, j) && len(j.Spec.Env) > 0 {
		detail.Env = map[string]string{}
		for _, v := range j.Spec.Env {
			detail.Env[v.Key] = v.Value
		}
	}
	return detail
}

// eventsShown is how many of a job's last events are sent with it.
const eventsShown = 100

// fieldsOf lists the remaining fields of the spec as a user would write them.
func fieldsOf(s *job.Spec) map[string]string {
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
	switch {
	case j.Handover.Node != "" && len(j.Grant.GPUs) == 0:
		return "node " + j.Handover.Node
	case j.Handover.Node != "":
		return "node " + j.Handover.Node + ", GPU " + j.Grant.List()
	case len(j.Grant.GPUs) == 0:
		return "no GPU"
	}
	return "GPU " + j.Grant.List()
}
