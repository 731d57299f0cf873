package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/problem"
)

// showHealth says since when a card is as it is, who said so, and what the
// driver last complained of.
func (d *Daemon) showHealth(t *engine.Turn, g *api.GPU) {
	v := t.HealthOf(g.UUID)
	g.HealthSince, g.HealthBy = v.Since, v.By
	if v.LastXid != nil {
		g.LastXid = &api.GPUXid{Code: v.LastXid.Code, At: v.LastXid.At, Text: v.LastXid.Text}
	}
}

// showIdle says since when a job does not use its cards.
func (d *Daemon) showIdle(t *engine.Turn, on *api.GPUJob) {
	if since, idle := t.IdleSince(on.ID); idle {
		on.IdleSince = &since
	}
}

// SetHealth takes an administrator's word on a card.
func (d *Daemon) SetHealth(ctx context.Context, c api.Caller, index int, r api.HealthRequest) (api.GPU, error) {
	action, state, detail := "gpu clear", gpu.HealthOK, cardName(index)
	if r.Health == api.HealthQuarantined {
		action, state = "gpu quarantine", gpu.HealthQuarantined
		if r.Reason == "" {
			r.Reason = "as asked"
		}
		detail += ": " + r.Reason
	}
	err := d.administers(c, "quarantines and clears cards")
	if err == nil {
		var missing error
		err = d.change(ctx, func(t *engine.Turn) { missing = d.setHealth(t, index, state, c.Name, oneLine(r.Reason)) })
		err = cmp.Or(err, missing)
	}
	d.note(c, action, nil, detail, err)
	if err != nil {
		return api.GPU{}, err
	}
	return d.oneCard(ctx, c, index)
}

// setHealth is for the engine's goroutine. A card that is out of service
// already does not change, but whoever gives another reason is heard.
func (d *Daemon) setHealth(t *engine.Turn, index int, state gpu.HealthState, by, reason string) error {
	there := t.Devices()
	at := slices.IndexFunc(there, func(dev gpu.Device) bool { return dev.Index == index })
	if at < 0 {
		return noCard(index, there)
	}
	before := t.HealthOf(there[at].UUID)
	if !t.SetHealth(index, state, by, reason) {
		return noCard(index, there)
	}
	after := t.HealthOf(there[at].UUID)
	people := before.Cause == gpu.CausePerson && after.Cause == gpu.CausePerson
	if people && after.State == before.State && (after.Reason != before.Reason || after.By != before.By) {
		t.TellCard(job.CardChange{GPU: &index, By: after.By, Bad: true}, fmt.Sprintf("%s %v by %s: %s; the reason was: %s", cardName(index), after.State, after.By, after.Reason, before.Reason))
	}
	return nil
}

// oneLine keeps what a person wrote from looking like more than one event.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// CardHistory says what happened to the cards, the newest first.
func (d *Daemon) CardHistory(_ context.Context, _ api.Caller, q api.CardQuery) ([]api.CardEvent, error) {
	var since time.Time
	if q.Since != nil {
		since = *q.Since
	}
	found, err := d.store.CardEvents(since, q.Limit, q.GPU)
	events := make([]api.CardEvent, len(found))
	for i, ev := range found {
		events[i] = api.CardEvent{At: ev.At, Text: ev.Text}
		if ev.Card != nil {
			events[i].GPU, events[i].By = ev.Card.GPU, ev.Card.By
		}
	}
	return events, err
}

// ReleaseGPUs lets go of the driver, so that cards can be reset or
// partitioned, or takes hold of it again.
func (d *Daemon) ReleaseGPUs(ctx context.Context, c api.Caller, r api.ReleaseRequest) (api.Released, error) {
	reply, err := d.release(ctx, c, r)
	detail := fmt.Sprintf("for %v", time.Duration(r.ForS)*time.Second)
	if r.End {
		detail = "end"
	}
	d.note(c, "gpu release", nil, detail, err)
	return reply, err
}

func (d *Daemon) release(ctx context.Context, c api.Caller, r api.ReleaseRequest) (api.Released, error) {
	if err := d.administers(c, "lets go of the cards"); err != nil {
		return api.Released{}, err
	}
	releaser, ok := d.machine.Source.(gpu.Releaser)
	if !ok {
		return api.Released{Note: "the driver is not held open (" + d.machine.Source.Name() + "): there is nothing to let go of"}, nil
	}
	if r.End {
		return api.Released{}, d.takeHold(ctx, c, releaser)
	}
	var refusal error
	refuse := func(t *engine.Turn) { refusal = d.inTheWay(t, r.Force) }
	if err := d.do(ctx, refuse); err != nil || refusal != nil {
		return api.Released{}, cmp.Or(err, refusal)
	}
	// It may take the helper a while to let go, so that this is not for the
	// engine's goroutine to do. Readings fail from its beginning on.
	length := time.Duration(r.ForS) * time.Second
	releaser.Release(length)
	until := time.Now().Add(length).Round(time.Second)
	err := d.change(ctx, func(t *engine.Turn) {
		// The next look fails, and only then is there a decision.
		d.looks.ask(t, t.Now)
		if refuse(t); refusal == nil {
			t.TellCard(job.CardChange{By: c.Name}, "all cards let go of until "+until.Format("15:04:05")+" by "+c.Name)
		}
	})
	if err != nil || refusal != nil { // a job was quicker
		releaser.Release(0)
		return api.Released{}, cmp.Or(err, refusal)
	}
	return api.Released{Until: &until}, nil
}

// takeHold ends a release before its time.
func (d *Daemon) takeHold(ctx context.Context, c api.Caller, releaser gpu.Releaser) error {
	held := releaser.Released().IsZero()
	releaser.Release(0)
	return d.change(ctx, func(t *engine.Turn) {
		d.looks.ask(t, t.Now)
		if !held {
			t.TellCard(job.CardChange{By: c.Name}, "all cards taken hold of again by "+c.Name)
		}
	})
}

// inTheWay refuses to let go of cards that jobs are on.
func (d *Daemon) inTheWay(t *engine.Turn, force bool) error {
	on := d.onCards(t)
	if len(on) == 0 || force {
		return nil
	}
	return problem.Newf(problem.Refused, "wait for them, or --force: their readings stop, they go on", "jobs are on the cards: %s", strings.Join(on, ", "))
}

// onCards are the jobs that have a card, the first ten of them.
func (d *Daemon) onCards(t *engine.Turn) (ids []string) {
	for _, r := range t.Running() {
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
