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
		h.retry.failed(err, h.timing)
	}
	patience := time.Duration(0)
	if errors.Is(err, errNoNVML) {
		patience = leaveTime // it is leaving anyway
	}
	go p.end(patience, h.timing.grace)
	return err
}

// hung skips the card that a process hangs on. If the card is unknown, or
// skipping it did not help, nothing is started while the process lives.
func (h *helperSource) hung(p *helperProcess, err error) error {
	p.stuckSince = time.Now()
	card := p.card()
	h.log.Error("berth-gpu does not answer", "pid", p.pid, "card", card)
	if card == noCard || h.out[card] != nil {
		h.retry.failed(err, h.timing)
		return err
	}
	p.stuckOn = card
	h.out.add(card, h.seen, "has not answered since ", h.timing.probe, h.log)
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
		h.out.add(card, h.seen, "crashes berth-gpu when it is read, since ", h.timing.probe, h.log)
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
	amiss := h.places.missing(sample, len(h.out)) || len(sample.Faults) > 0
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
	go p.end(leaveTime, h.timing.grace)
}

// cardPlaces are the bus addresses that ever had a card.
type cardPlaces map[string]bool

// missing reports whether a bus address that had a card is empty, or all are.
// Skipped cards do not count.
func (c cardPlaces) missing(sample Sample, skipped int) bool {
	there := map[string]bool{}
	for _, d := range sample.Devices {
		if place := normalBusID(d.BusID); place != "" {
			there[place], c[place] = true, true
		}
	}
	if len(c) > maxPlaces {
		clear(c)
	}
	return len(there)+skipped < len(c) || len(sample.Devices)+skipped == 0
}
