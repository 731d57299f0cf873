package gpu

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// failed takes a failed process out of service and decides what the next
// reading may do. It returns the error to report.
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
		patience = leaveTime // it is leaving anyway
	}
	h.endLater(p, patience)
	return err
}

// hung skips the card that a process hangs on. If the card is unknown, or
// skipping it did not help, nothing is started while the process lives.
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
	h.leaveOut(card, now, "has not answered since "+now.Format(time.TimeOnly))
	return fmt.Errorf("%w: the driver hangs on GPU %d; berth skips it from now on", err, card)
}

// died handles a process that ended: killed by someone, or crashed while
// reading a card.
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
	err = fmt.Errorf("%w; it was reading GPU %d", err, card)
	if h.deaths++; h.deaths >= deathsOnCard {
		now := time.Now()
		h.leaveOut(card, now, "crashes berth-gpu when it is read, since "+now.Format(time.TimeOnly))
		h.deaths = 0
	}
	return err
}

// renew replaces a helper that has reported a fault for some time. NVML does
// not find a card again that it lost, nor one that was added later: only a
// process that opens the driver afresh does. A lost card may be reset at any
// time; other faults may last for weeks, so they are checked less and less
// often.
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

// missing reports whether a bus address that had a card is empty, or all are.
// Skipped cards do not count.
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

// backOff delays the next start, longer each time.
func (h *helperSource) backOff(err error) {
	h.lastError = err
	if h.failing.IsZero() {
		h.failing = time.Now()
	}
	h.retryDelay = min(max(2*h.retryDelay, h.timing.retry), h.timing.retryMax)
	h.retryAt = time.Now().Add(h.retryDelay)
}
