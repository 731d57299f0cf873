package gpu

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// failed takes a process that failed out of service, and decides what the next
// look may do. It returns what to tell.
func (h *helperSource) failed(p *helperProcess, err error) error {
	if h.current == p {
		h.current = nil
	}
	if errors.Is(err, errHelperHangs) {
		err = h.hung(p, err)
	} else {
		if errors.Is(err, errHelperDied) {
			err = h.died(p, err)
		} else if !errors.Is(err, errNoNVML) {
			p.stuckSince = time.Now() // until it is gone
		}
		h.backOff(err)
	}
	patience := time.Duration(0)
	if errors.Is(err, errNoNVML) {
		patience = leaveTime // it is leaving
	}
	h.endLater(p, patience)
	return err
}

// hung leaves the card out that a process hangs on. Where that is not known, or
// leaving it out did not help, nothing is started while the process lives.
func (h *helperSource) hung(p *helperProcess, err error) error {
	now := time.Now()
	p.stuckSince = now
	card := p.card()
	h.log.Error("berth-gpu does not answer", "pid", p.pid, "card", card)
	if card == noCard || h.out[card] != nil {
		h.backOff(err)
		return err
	}
	p.stuckOn = card
	h.leaveOut(card, now, "does not answer since "+now.Format(time.TimeOnly))
	return fmt.Errorf("%w: card %d of the driver hangs; it is left out from now on", err, card)
}

// died tells a process that a card takes down from one that was ended.
func (h *helperSource) died(p *helperProcess, err error) error {
	card := p.card()
	h.log.Error("berth-gpu ended by itself", "err", err, "card", card)
	if card == noCard || h.out[card] != nil {
		h.deaths = 0
		return err
	}
	if card != h.diedOn {
		h.diedOn, h.deaths = card, 0
	}
	err = fmt.Errorf("%w; it was reading card %d of the driver", err, card)
	if h.deaths++; h.deaths >= deathsOnCard {
		now := time.Now()
		h.leaveOut(card, now, "ends berth-gpu when it is read, since "+now.Format(time.TimeOnly))
		h.deaths = 0
	}
	return err
}

// renew lets a helper go that has known for a while that something is amiss.
// NVML does not find a card again that it lost, nor one that came later: only
// whoever takes hold of the driver anew sees what is there. The others are read
// by the next one. A card that is lost may be reset at any time; what else is
// amiss may stay so for weeks, and is looked for less and less.
func (h *helperSource) renew(p *helperProcess, sample Sample) {
	lost := slices.ContainsFunc(sample.Faults, func(f Fault) bool { return f.Kind == FaultLost })
	amiss := h.missing(sample) || len(sample.Faults) > 0
	if !amiss {
		h.renewDelay = 0
		return
	}
	delay := max(h.renewDelay, h.timing.renew)
	if lost {
		delay = h.timing.renew
	}
	if time.Since(h.since) < delay {
		return
	}
	h.renewDelay = min(2*delay, h.timing.renewMax)
	h.current = nil
	h.endLater(p, leaveTime)
}

// missing reports whether a place is empty where there was a card, or all are.
// Those that are left out are not looked for.
func (h *helperSource) missing(sample Sample) bool {
	there := map[string]bool{}
	for _, d := range sample.Devices {
		if place := normalBusID(d.BusID); place != "" {
			there[place], h.places[place] = true, true
		}
	}
	if len(h.places) > maxPlaces {
		clear(h.places)
	}
	return len(there)+len(h.out) < len(h.places) || len(sample.Devices)+len(h.out) == 0
}

// backOff has the next start wait, longer each time.
func (h *helperSource) backOff(err error) {
	h.lastError = err
	if h.failing.IsZero() {
		h.failing = time.Now()
	}
	h.retryDelay = min(max(2*h.retryDelay, h.timing.retry), h.timing.retryMax)
	h.retryAt = time.Now().Add(h.retryDelay)
}
