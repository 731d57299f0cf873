package daemon

import (
	"context"
	"slices"
	"strconv"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/sched"
)

// GPUs lists the cards, and who is on them.
func (d *Daemon) GPUs(ctx context.Context, _ api.Caller) ([]api.GPU, error) {
	var cards []api.GPU
	if err := d.lookAgain(ctx, d.shownLately); err != nil {
		return nil, err
	}
	err := d.do(ctx, func(now time.Time) { cards = d.cards(now) })
	return cards, err
}

// How long a reading is good enough to be shown, and how long a newer one is
// waited for.
const (
	shownFor = 2 * time.Second
	lookTime = 2 * time.Second
	lookStep = 20 * time.Millisecond
)

// shownLately is true of a reading that is new enough to be shown, and not
// from before a job gave its memory back.
func (d *Daemon) shownLately(now time.Time) bool { return d.engine.Shows(now, shownFor) }

// lookAgain has the cards read where nobody did lately: an idle daemon leaves
// them alone.
func (d *Daemon) lookAgain(ctx context.Context, lately func(now time.Time) bool) error {
	var asked time.Time
	for deadline := time.Now().Add(lookTime); ; {
		var fresh bool
		err := d.do(ctx, func(now time.Time) {
			_, trouble := d.engine.ReadAt()
			fresh = lately(now) || !asked.IsZero() && trouble != nil
			if !fresh && asked.IsZero() {
				d.engine.Look()
				asked = now
			}
		})
		if err != nil || fresh || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookStep):
		}
	}
}

func (d *Daemon) cards(now time.Time) []api.GPU {
	at, trouble := d.engine.ReadAt()
	running := d.engine.Running()
	others := d.engine.Others()
	cards := []api.GPU{}
	for _, card := range d.engine.Cards() {
		g := api.GPU{
			Index: card.Index, UUID: card.UUID, Name: card.Name,
			TotalMiB: card.TotalMiB, UsedMiB: card.UsedMiB, ReservedMiB: card.ReservedMiB, ForeignMiB: card.ForeignMiB,
			FreeMiB: max(0, card.TotalMiB-card.UsedMiB-card.ReservedMiB),
			Health:  card.Health.String(), HealthReason: card.HealthReason,
			Paused: card.Paused, PausedBy: d.engine.PausedBy(card.UUID), ReadAt: at, Jobs: []api.GPUJob{},
		}
		g.Stale = card.Stale || trouble != nil || d.tooOld(now, at, len(running) > 0)
		if trouble != nil && g.HealthReason == "" {
			g.HealthReason = trouble.Error()
		}
		if card.UtilPct >= 0 {
			util := card.UtilPct
			g.Util = &util
		}
		for _, r := range running {
			if at := slices.Index(r.Job.Grant.GPUs, card.Index); at >= 0 {
				g.Jobs = append(g.Jobs, d.onCard(r.Job, card))
				g.BudgetMiB += sched.CardBudgets(r.Job.Grant, r.Job.VRAMMiB, []sched.Card{card})[0]
			}
		}
		for _, entry := range others {
			if at := slices.Index(entry.UUIDs, card.UUID); at >= 0 {
				g.Jobs = append(g.Jobs, api.GPUJob{ID: entry.Job, Name: entry.Name, User: entry.User, Share: entry.Share, Other: true})
				if at < len(entry.BudgetMiB) {
					g.BudgetMiB += entry.BudgetMiB[at]
				}
			}
		}
		cards = append(cards, g)
	}
	return cards
}

// tooOld is true of a reading that should have been renewed. With nothing to
// do the cards are left alone, and what was read last is shown.
func (d *Daemon) tooOld(now, at time.Time, busy bool) bool {
	return at.IsZero() || busy && now.Sub(at) > 10*max(d.config().Poll, time.Second)
}

func (d *Daemon) onCard(j *job.Job, card sched.Card) api.GPUJob {
	on := api.GPUJob{ID: j.ID, Name: j.Name(), User: j.User, Share: j.Grant.Share}
	if now, peak, known := d.engine.NowMiB(j.ID, card.Index); known {
		on.UsedMiB, on.PeakMiB = &now, &peak
	}
	return on
}

// PauseGPU keeps new jobs off a card, or lets them on again.
func (d *Daemon) PauseGPU(ctx context.Context, c api.Caller, index int, paused bool) (api.GPU, error) {
	action := "gpu resume"
	if paused {
		action = "gpu pause"
	}
	if !c.Admin {
		err := api.Problemf(api.Forbidden, "root and the group "+d.config().AdminGroup+" may", "only an administrator pauses and resumes cards")
		d.note(c, action, nil, cardName(index), err)
		return api.GPU{}, err
	}
	var found bool
	err := d.change(ctx, func(now time.Time) { found = d.engine.Pause(now, index, paused, c.Name) })
	if err == nil && !found {
		err = api.Problemf(api.NotFound, "berth gpus lists them", "this machine has no GPU %d", index)
	}
	d.note(c, action, nil, cardName(index), err)
	if err != nil {
		return api.GPU{}, err
	}
	cards, err := d.GPUs(ctx, c)
	if err != nil {
		return api.GPU{}, err
	}
	for _, g := range cards {
		if g.Index == index {
			return g, nil
		}
	}
	return api.GPU{}, nil
}

func cardName(index int) string { return "gpu" + strconv.Itoa(index) }
