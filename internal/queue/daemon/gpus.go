package daemon

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine"
	"berth/internal/sched"
)

// cards shows the GPUs, and takes them out of service and back.
type cards struct {
	svc   *service
	looks looks
}

// GPUs lists the cards and the jobs on them. It does not wait for the driver: it
// shows the last reading, and why there is no newer one.
func (h *cards) GPUs(ctx context.Context, c api.Caller) ([]api.GPU, error) {
	if err := h.lookAgain(ctx, shownLately, glanceTime); err != nil {
		return nil, err
	}
	var cards []api.GPU
	var listed []listedProcess
	err := h.svc.Do(ctx, func(t *engine.Turn) { cards, listed = h.cards(t) })
	if err != nil {
		return nil, err
	}
	if len(listed) > 0 {
		h.nameProcesses(c, cards, listed, procHides(mountsOf()))
	}
	return cards, nil
}

func (h *cards) cards(t *engine.Turn) ([]api.GPU, []listedProcess) {
	at, trouble := t.Cards().ReadAt()
	running, parked := t.Running().List(), t.Parking().List()
	others := t.Bookings().Others()
	cards := []api.GPU{}
	var listed []listedProcess
	for _, card := range t.Cards().List() {
		dev, _ := t.Cards().Device(card.UUID)
		g := cardView(card, dev)
		g.PausedBy, g.ReadAt = t.Cards().PausedBy(card.UUID), t.Cards().SeenAt(card.Index)
		showHealth(t, &g)
		h.showAge(t, &g, card, at, trouble, len(running) > 0)
		for _, r := range running {
			if slices.Contains(r.Job.Grant.GPUs, card.Index) {
				g.Jobs = append(g.Jobs, onCard(t, r.Job, card))
				// Without a budget, it holds the whole card.
				g.BudgetMiB += cmp.Or(sched.CardBudgets(r.Job.Grant, r.Job.VRAMMiB, []sched.Card{card})[0], card.TotalMiB)
			}
		}
		for _, j := range parked {
			if slices.Contains(j.Grant.GPUs, card.Index) {
				needs := j.Parking.CardMiB[card.Index]
				g.Parked = append(g.Parked, api.GPUJob{ID: j.ID, Name: j.Name(), User: j.User, Share: j.Grant.Share, UsedMiB: &needs})
			}
		}
		for _, entry := range others {
			if at := slices.Index(entry.UUIDs, card.UUID); at >= 0 {
				g.Jobs = append(g.Jobs, api.GPUJob{ID: entry.Job, Name: entry.Name, User: entry.User, Share: entry.Share, Other: true})
				if at < len(entry.BudgetMiB) {
					g.BudgetMiB += cmp.Or(entry.BudgetMiB[at], card.TotalMiB)
				}
			}
		}
		listed = listProcesses(t, listed, len(cards), &g, dev)
		cards = append(cards, g)
	}
	return cards, listed
}

// cardView is what the driver reported about a card.
func cardView(card sched.Card, dev gpu.Device) api.GPU {
	g := api.GPU{
		Index: card.Index, DriverIndex: dev.DriverIndex, UUID: card.UUID, Name: card.Name, BusID: dev.BusID, Minor: orNil(dev.Minor),
		TotalMiB: card.TotalMiB, UsedMiB: card.UsedMiB, ReservedMiB: card.ReservedMiB, ForeignMiB: card.ForeignMiB,
		FreeMiB: max(0, card.TotalMiB-card.UsedMiB-card.ReservedMiB), Util: orNil(card.UtilPct),
		TemperatureC: orNil(dev.TempC), PowerW: orNil(dev.PowerW), PowerLimitW: orNil(dev.PowerLimitW),
		SMClockMHz: orNil(dev.SMClockMHz), MemClockMHz: orNil(dev.MemClockMHz),
		ECCUncorrected: orNil(dev.Condition.UncorrectedECC), ECCCorrected: orNil(dev.Condition.CorrectedECC),
		RowsRemapped: orNil(dev.Condition.RemappedRows), RowsPending: dev.Condition.RowsPending, RowsFailed: dev.Condition.RowsFailed,
		RecoveryAction: dev.Condition.Recovery, NUMA: orNil(dev.NUMA), CPUs: dev.CPUs,
		Health: card.Health.String(), HealthReason: card.HealthReason, Paused: card.Paused, Jobs: []api.GPUJob{}, Parked: []api.GPUJob{},
	}
	if dev.Part != nil {
		g.Parent, g.Profile = &dev.Part.Of, dev.Part.Profile
	}
	for index, links := range dev.Links {
		if g.Links == nil {
			g.Links = make(map[string]int, len(dev.Links))
		}
		g.Links[strconv.Itoa(index)] = links
	}
	return g
}

func onCard(t *engine.Turn, j *job.Job, card sched.Card) api.GPUJob {
	on := api.GPUJob{ID: j.ID, Name: j.Name(), User: j.User, Share: j.Grant.Share}
	if now, peak, known := t.Running().NowMiB(j.ID, card.Index); known {
		on.UsedMiB, on.PeakMiB = &now, &peak
	}
	if since, idle := t.Running().Uses.IdleSince(on.ID); idle {
		on.IdleSince = &since
	}
	return on
}

// PauseGPU stops jobs from starting on a card, or lets them start again.
func (h *cards) PauseGPU(ctx context.Context, c api.Caller, index int, paused bool) (api.GPU, error) {
	action := "gpu resume"
	if paused {
		action = "gpu pause"
	}
	err := h.svc.administers(c, "can pause or resume GPUs")
	if err == nil {
		var missing error
		err = h.svc.Change(ctx, func(t *engine.Turn) {
			if !t.Health().Pause(index, paused, c.Name) {
				missing = noCard(index, t.Cards().Devices())
			}
		})
		err = cmp.Or(err, missing)
	}
	h.svc.Note(c, action, nil, cardName(index), err)
	if err != nil {
		return api.GPU{}, err
	}
	return h.oneCard(ctx, c, index)
}

// DrainGPU pauses a card, and parks the jobs on it if that is asked for. They are
// not held: they come back once the card is resumed.
func (h *cards) DrainGPU(ctx context.Context, c api.Caller, r api.DrainRequest) (api.Drained, error) {
	index := r.Index
	if _, err := h.PauseGPU(ctx, c, index, true); err != nil {
		return api.Drained{}, err
	}
	if r.Park {
		if err := h.measureAgain(ctx); err != nil {
			return api.Drained{}, err
		}
	}
	reply := api.Drained{}
	var parked []string
	err := h.svc.Change(ctx, func(t *engine.Turn) {
		for _, running := range t.Running().List() {
			j := running.Job
			if !slices.Contains(j.Grant.GPUs, index) {
				continue
			}
			one := api.Acted{ID: j.ID, State: string(j.State), What: "keeps running"}
			if r.Park {
				why := t.Parking().Park(j.ID, c.Name, t.Now)
				if one.Done = why == ""; one.Done {
					one.What = "is being parked"
					parked = append(parked, j.ID)
				} else {
					one.What += ": it cannot be parked, because " + why
				}
			}
			reply.Jobs = append(reply.Jobs, one)
		}
	})
	if r.Park {
		h.svc.Note(c, "gpu drain", parked, cardName(index), err)
	}
	if err != nil {
		return api.Drained{}, err
	}
	reply.GPU, err = h.oneCard(ctx, c, index)
	return reply, err
}

// oneCard is a card after a change to it.
func (h *cards) oneCard(ctx context.Context, c api.Caller, index int) (api.GPU, error) {
	cards, err := h.GPUs(ctx, c)
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
