package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/queue"
	"berth/internal/queue/engine"
	"berth/internal/queue/store"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// cardRecord chooses the GPUs at the start, and remembers those of earlier ones.
type cardRecord struct {
	svc    *service
	sim    bool         // they are simulated
	typed  bool         // the person who started the daemon named them
	needed bool         // it does not start on a machine without any
	there  []gpu.Device // the GPUs found at the start, and those known from before; nil: not read
}

// chooseCards evaluates the first reading of the cards.
func (r *cardRecord) chooseCards(m *queue.Queue, first gpu.Sample, unread error) ([]gpu.Device, error) {
	switch {
	case unread != nil:
		// The driver may answer later, and running jobs need the daemon
		// meanwhile.
		m.Log.Error("the GPUs cannot be read; nothing starts until they can", "err", unread)
	case m.NoGPUs:
		if err := r.doWithout(m); err != nil {
			return nil, err
		}
	}
	wanted := r.svc.Config().GPUs
	for _, index := range wanted {
		if unread == nil && !slices.ContainsFunc(first.Devices, func(dev gpu.Device) bool { return dev.Index == index }) {
			if r.typed {
				if parts := partsOf(index, first.Devices); len(parts) > 0 {
					return nil, problem.Newf(problem.Invalid, "name parts in --gpus", "GPU %d is partitioned; its parts are %s", index, indices(parts))
				}
				return nil, problem.Newf(problem.Invalid, "correct --gpus", "there is no GPU %d; this machine has %s", index, indices(first.Devices))
			}
		}
	}
	var devices []gpu.Device
	for _, dev := range first.Devices {
		if wanted == nil || slices.Contains(wanted, dev.Index) {
			devices = append(devices, dev)
		}
	}
	absent := r.rememberCards(m, devices, time.Now())
	if unread == nil {
		r.there = append(slices.Clone(first.Devices), absent...)
	}
	for _, warning := range missingGPUs(wanted, r.there) {
		m.Log.Error(warning)
	}
	return append(devices, absent...), nil
}

// doWithout checks whether the daemon can start on a machine without a GPU. With
// queued jobs that need one it does not: they would be refused, and may have been
// submitted to simulated GPUs. Running jobs go on.
func (r *cardRecord) doWithout(m *queue.Queue) error {
	if r.needed {
		return problem.Newf(problem.Refused, queue.NoCardsHint, "this machine has no GPU")
	}
	if _, late := r.knownCards(m); late {
		return nil // they are waited for
	}
	jobs := 0
	err := m.Store.EachLive(func(j *job.Job) error {
		if j.State == job.Queued && j.Spec.To == job.ToLocal && (j.Spec.GPUs > 0 || j.Spec.Share > 0) {
			jobs++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if jobs == 0 {
		m.Log.Warn("this machine has no GPU: only jobs without one (gpus=0) can run")
		return nil
	}
	who := "queued jobs need"
	if jobs == 1 {
		who = "queued job needs"
	}
	return problem.Newf(problem.Refused, "if they were submitted to simulated GPUs: berth start --sim N, with as many as before", "this machine has no GPU, and %d %s one", jobs, who)
}

// knownCards are the cards seen since the machine booted, with the numbers they
// had. late means that the machine had cards recently, so the daemon waits for
// the driver.
func (r *cardRecord) knownCards(m *queue.Queue) (known []gpu.Device, late bool) {
	for _, s := range r.seenCards(m) {
		if s.Boot == keep.BootID() {
			known = append(known, s.Device)
		}
		late = late || time.Since(s.Seen) <= cardsFor
	}
	return known, late
}

// cardsKey is the store's key for the cards this machine has had.
const cardsKey = "cards"

// cardsFor is how long a missing card still counts as part of the machine. Jobs
// that need it wait instead of being refused: the driver may be late, or the
// card may come back after a reset.
const cardsFor = 24 * time.Hour

// seenCard is a card, and when it was last there.
type seenCard struct {
	Device gpu.Device `json:"device"`
	Seen   time.Time  `json:"seen"`
	Boot   string     `json:"boot,omitempty"` // card numbers are valid only for this boot of the machine
}

// seenCards are the cards that this machine has had. A simulation has
// none to remember.
func (r *cardRecord) seenCards(m *queue.Queue) (seen []seenCard) {
	if r.sim {
		return nil
	}
	value, err := m.Store.Meta(cardsKey)
	if err == nil && value != "" {
		err = json.Unmarshal([]byte(value), &seen)
	}
	if err != nil {
		m.Log.Warn("cannot read the list of known GPUs", "err", err)
	}
	return seen
}

// rememberCards records the cards present and returns those recently present
// that are missing now.
func (r *cardRecord) rememberCards(m *queue.Queue, there []gpu.Device, now time.Time) (missing []gpu.Device) {
	if r.sim {
		return nil
	}
	seen := r.seenCards(m)
	wanted := r.svc.Config().GPUs
	kept := make([]seenCard, 0, len(seen)+len(there))
	for _, dev := range there {
		kept = append(kept, seenCard{dev, now, keep.BootID()})
	}
	for _, s := range seen {
		isThere := slices.ContainsFunc(there, func(dev gpu.Device) bool { return dev.UUID == s.Device.UUID })
		if isThere || now.Sub(s.Seen) > cardsFor || wanted != nil && !slices.Contains(wanted, s.Device.Index) {
			continue
		}
		var free bool
		if s.Device.Index, free = freeNumber(kept, s.Device); !free {
			continue
		}
		kept = append(kept, s)
		missing = append(missing, s.Device)
		m.Log.Warn("a GPU is missing; jobs that need it wait", "gpu", s.Device.Index, "uuid", s.Device.UUID, "last_seen", s.Seen)
	}
	saveCards(m, kept)
	return missing
}

// freeNumber is the number of a missing card: its old one, unless the machine
// was rebooted since and another card has that number now. A MIG part has no
// other number to fall back on.
func freeNumber(kept []seenCard, missing gpu.Device) (index int, free bool) {
	taken := func(index int) bool {
		return slices.ContainsFunc(kept, func(s seenCard) bool { return s.Device.Index == index })
	}
	if !taken(missing.Index) || missing.Part != nil {
		return missing.Index, !taken(missing.Index)
	}
	for index = range gpu.PartIndex(0, 0) {
		if !taken(index) {
			return index, true
		}
	}
	return 0, false
}

func saveCards(m *queue.Queue, cards []seenCard) {
	if err := m.Store.Commit(store.Tx{Meta: map[string]string{cardsKey: string(text.MustJSON(cards))}}); err != nil {
		m.Log.Warn("cannot save the list of known GPUs", "err", err)
	}
}

// noteCards updates when each present card was last seen, while the daemon runs.
// A missing card keeps its old time.
func (r *cardRecord) noteCards(ctx context.Context) {
	if r.sim {
		return
	}
	before := r.seenCards(r.svc.queue)
	var cards []seenCard
	err := r.svc.Do(ctx, func(t *engine.Turn) { cards = seenSince(before, t.Cards().Devices(), t.Cards().SeenAt) })
	if err == nil && len(cards) > 0 {
		saveCards(r.svc.queue, cards)
	}
}

// seenSince updates the record from when each card was read; zero: not since.
func seenSince(before []seenCard, devices []gpu.Device, readAt func(index int) time.Time) (cards []seenCard) {
	for _, dev := range devices {
		card := seenCard{dev, readAt(dev.Index), keep.BootID()}
		at := slices.IndexFunc(before, func(s seenCard) bool { return s.Device.UUID == dev.UUID })
		if card.Seen.IsZero() && at >= 0 {
			card = before[at]
		}
		cards = append(cards, card)
	}
	return cards
}
