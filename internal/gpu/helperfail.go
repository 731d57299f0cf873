package gpu

import (
	"errors"
	"fmt"
	"time"
)

// failed takes a process that failed out of service, and decides what the next
// look may do. It returns what to tell.
func (h *Helper) failed(p *helperProcess, err error) error {
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
func (h *Helper) hung(p *helperProcess, err error) error {
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
func (h *Helper) died(p *helperProcess, err error) error {
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

// backOff has the next start wait, longer each time.
func (h *Helper) backOff(err error) {
	h.lastError = err
	h.retryDelay = min(max(2*h.retryDelay, h.timing.retry), h.timing.retryMax)
	h.retryAt = time.Now().Add(h.retryDelay)
}
