package daemon

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"berth/internal/api"
	"berth/internal/job"
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
	var g guesses
	if !j.State.Terminal() {
		err := d.do(ctx, func(time.Time) {
			if g = d.guess(j.ID); j.State == job.Queued {
				reasons = d.engine.Reasons([]string{j.ID})
				position = d.engine.Position(j.ID)
			}
		})
		if err != nil {
			return api.Detail{}, err
		}
	}
	detail := api.Detail{
		View: d.view(c, j, reasons), Array: j.Array(), Held: j.Held, Position: position,
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

// eventsShown is how many of the last things that happened to a job are told
// with it.
const eventsShown = 100

// settings lists what else was asked for, as people write it.
func settings(s *job.Spec) map[string]string {
	set := map[string]string{}
	add := func(key, value string, given bool) {
		if given {
			set[key] = value
		}
	}
	if s.Adopt != nil {
		add("process", strconv.Itoa(s.Adopt.PID), true)
	}
	add("type", s.Type, s.Type != "")
	add("vram", "auto", s.VRAMAuto)
	add("ids", job.Grant{GPUs: s.IDs}.List(), len(s.IDs) > 0)
	add("allow", job.Grant{GPUs: s.Allow}.List(), len(s.Allow) > 0)
	add("exclusive", "yes", s.Exclusive)
	add("cpus", strconv.Itoa(s.CPUs), s.CPUs > 0)
	add("mem", fmt.Sprintf("%dM", s.MemMiB), s.MemMiB > 0)
	add("pin", "yes", s.Pin)
	add("inject_gpus", s.Inject, s.Inject != "")
	add("signal", fmt.Sprintf("%s@%g", s.WarnSignal, s.WarnBefore.Seconds()), s.WarnSignal != "")
	add("on_timeout", string(s.OnTimeout), s.TimeLimit > 0)
	add("max_requeues", strconv.Itoa(s.MaxRequeues), s.OnTimeout == job.TimeoutRequeue)
	add("retries", strconv.Itoa(s.Retries), s.Retries > 0)
	add("retry_on", string(s.RetryOn), s.Retries > 0)
	add("grace", s.Grace.String(), true)
	add("requeue", "yes", s.Requeue)
	add("preemptible", s.Preemptible, s.Preemptible != "")
	add("cap", s.Cap, s.Cap != "")
	add("venv", s.Venv, s.Venv != "")
	add("conda", s.Conda, s.Conda != "")
	add("setup", s.Setup, s.Setup != "")
	add("output", s.Output, s.Output != "")
	add("pty", "yes", s.Pty)
	add("export", s.Export, s.Export != "")
	add("array_limit", strconv.Itoa(s.ArrayLimit), s.ArrayLimit > 0)
	return set
}

func cardsText(j *job.Job) string {
	if len(j.Grant.GPUs) == 0 {
		return "no GPU"
	}
	return "GPU " + j.Grant.List()
}
