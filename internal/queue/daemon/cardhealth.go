package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine"
	"berth/internal/text/problem"
)

// showHealth adds since when a card has its health, who set it, and the driver's
// last error.
func showHealth(t *engine.Turn, g *api.GPU) {
	v := t.Cards().HealthOf(g.UUID)
	g.HealthSince, g.HealthBy = v.Since, v.By
	if v.LastXid != nil {
		g.LastXid = &api.GPUXid{Code: v.LastXid.Code, At: v.LastXid.At, Text: v.LastXid.Text}
	}
}

// SetHealth quarantines a card or clears it, for an administrator.
func (h *cards) SetHealth(ctx context.Context, c api.Caller, r api.HealthRequest) (api.GPU, error) {
	index := r.Index
	action, state, detail := "gpu clear", gpu.HealthOK, cardName(index)
	if r.Health == api.HealthQuarantined {
		action, state = "gpu quarantine", gpu.HealthQuarantined
		r.Reason = cmp.Or(r.Reason, "requested")
		detail += ": " + r.Reason
	}
	err := h.svc.administers(c, "can quarantine or clear GPUs")
	if err == nil {
		var missing error
		err = h.svc.Change(ctx, func(t *engine.Turn) { missing = setHealth(t, index, state, c.Name, oneLine(r.Reason)) })
		err = cmp.Or(err, missing)
	}
	h.svc.Note(c, action, nil, detail, err)
	if err != nil {
		return api.GPU{}, err
	}
	return h.oneCard(ctx, c, index)
}

// setHealth runs in the engine's goroutine. Quarantining a card twice changes
// nothing, but a new reason is recorded.
func setHealth(t *engine.Turn, index int, state gpu.HealthState, by, reason string) error {
	there := t.Cards().Devices()
	at := slices.IndexFunc(there, func(dev gpu.Device) bool { return dev.Index == index })
	if at < 0 {
		return noCard(index, there)
	}
	before := t.Cards().HealthOf(there[at].UUID)
	if !t.Health().Set(index, state, by, reason) {
		return noCard(index, there)
	}
	after := t.Cards().HealthOf(there[at].UUID)
	people := before.Cause == gpu.CausePerson && after.Cause == gpu.CausePerson
	if people && after.State == before.State && (after.Reason != before.Reason || after.By != before.By) {
		t.Health().Tell(job.CardChange{GPU: &index, By: after.By, Bad: true}, fmt.Sprintf("%s %v by %s: %s; the previous reason was: %s", cardName(index), after.State, after.By, after.Reason, before.Reason))
	}
	return nil
}

// oneLine keeps text typed by a person from looking like several events.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// CardHistory lists what happened to the cards, newest first.
func (h *cards) CardHistory(ctx context.Context, _ api.Caller, q api.CardQuery) ([]api.CardEvent, error) {
	var since time.Time
	if q.Since != nil {
		since = *q.Since
	}
	found, err := h.svc.queue.Store.CardEvents(since, q.Limit, q.GPU)
	events := make([]api.CardEvent, len(found))
	for i, ev := range found {
		events[i] = api.CardEvent{At: ev.At, Text: ev.Text}
		if ev.Card != nil {
			events[i].GPU, events[i].By = ev.Card.GPU, ev.Card.By
		}
	}
	if q.GPU == nil || err != nil || slices.ContainsFunc(events, func(ev api.CardEvent) bool { return ev.GPU != nil }) {
		return events, err
	}
	var missing error // a GPU without events may be one that does not exist
	err = h.svc.Do(ctx, func(t *engine.Turn) {
		there := t.Cards().Devices()
		if !slices.ContainsFunc(there, func(dev gpu.Device) bool { return dev.Index == *q.GPU }) {
			missing = noCard(*q.GPU, there)
		}
	})
	return events, cmp.Or(err, missing)
}

// ReleaseGPUs closes the driver, so that cards can be reset or partitioned, or
// opens it again.
func (h *cards) ReleaseGPUs(ctx context.Context, c api.Caller, r api.ReleaseRequest) (api.Released, error) {
	reply, err := h.release(ctx, c, r)
	detail := fmt.Sprintf("for %v", time.Duration(r.ForS)*time.Second)
	if r.End {
		detail = "end"
	}
	h.svc.Note(c, "gpu release", nil, detail, err)
	return reply, err
}

func (h *cards) release(ctx context.Context, c api.Caller, r api.ReleaseRequest) (api.Released, error) {
	if err := h.svc.administers(c, "can release the GPUs"); err != nil {
		return api.Released{}, err
	}
	releaser, ok := h.svc.queue.Source.(gpu.Releaser)
	if !ok {
		return api.Released{Note: "the driver is not open (" + h.svc.queue.Source.Name() + "), so there is nothing to release"}, nil
	}
	if r.End {
		return api.Released{}, h.takeHold(ctx, c, releaser)
	}
	var refusal error
	refuse := func(t *engine.Turn) { refusal = inTheWay(t, r.Force) }
	if err := h.svc.Do(ctx, refuse); err != nil || refusal != nil {
		return api.Released{}, cmp.Or(err, refusal)
	}
	// Closing the driver can be slow, so it happens outside the engine's
	// goroutine. Readings fail from the beginning.
	length := time.Duration(r.ForS) * time.Second
	releaser.Release(length)
	until := time.Now().Add(length).Round(time.Second)
	err := h.svc.Change(ctx, func(t *engine.Turn) {
		// The next reading fails, and only then is there a decision.
		h.looks.ask(t.Cards(), t.Now)
		if refuse(t); refusal == nil {
			t.Health().Tell(job.CardChange{By: c.Name}, "all GPUs released until "+until.Format("15:04:05")+" by "+c.Name)
		}
	})
	if err != nil || refusal != nil { // a job started first
		releaser.Release(0)
		return api.Released{}, cmp.Or(err, refusal)
	}
	return api.Released{Until: &until}, nil
}

// takeHold ends a release early.
func (h *cards) takeHold(ctx context.Context, c api.Caller, releaser gpu.Releaser) error {
	held := releaser.Released().IsZero()
	releaser.Release(0)
	return h.svc.Change(ctx, func(t *engine.Turn) {
		h.looks.ask(t.Cards(), t.Now)
		if !held {
			t.Health().Tell(job.CardChange{By: c.Name}, "all GPUs in use again by "+c.Name)
		}
	})
}

// inTheWay refuses to release cards that jobs run on.
func inTheWay(t *engine.Turn, force bool) error {
	on := onCards(t)
	if len(on) == 0 || force {
		return nil
	}
	return problem.Newf(problem.Refused, "wait for them, or add --force: they keep running, but their GPUs are not read", "jobs are running on the GPUs: %s", strings.Join(on, ", "))
}

// onCards lists up to ten jobs that hold a card.
func onCards(t *engine.Turn) (ids []string) {
	for _, r := range t.Running().List() {
		if len(r.Job.Grant.GPUs) == 0 {
			continue
		}
		if len(ids) == 10 {
			return append(ids, "…")
		}
		ids = append(ids, r.Job.ID)
	}
	return ids
}
