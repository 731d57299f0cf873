package gpu

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"berth/internal/text"
)

// leftOut is a card that no helper is asked about, because a call about it did
// not come back.
type leftOut struct {
	faults []Fault // of the card, or of each of its parts
	next   time.Time
	delay  time.Duration
}

// skipped are the cards to leave alone.
func (h *helperSource) skipped() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	var skip []int
	for card := range h.out {
		skip = append(skip, card)
	}
	slices.Sort(skip)
	return skip
}

// leaveOut has a card left alone from now on.
func (h *helperSource) leaveOut(card int, now time.Time, text string) {
	left := &leftOut{next: now.Add(h.timing.probe), delay: h.timing.probe}
	for _, d := range h.seen {
		if d.DriverIndex == card || d.Part != nil && d.Part.Of == card {
			left.faults = append(left.faults, Fault{Index: d.DriverIndex, UUID: d.UUID, Kind: FaultHangs, Text: text})
		}
	}
	if left.faults == nil {
		left.faults = []Fault{{Index: card, Kind: FaultHangs, Text: text}}
	}
	h.out[card] = left
	h.log.Error("a card is left out", "driver_index", card, "text", text)
}

// withLeftOut are the faults of a sample and those of the cards that it was not
// to look at. A card that shows up in it under another number answered: the
// driver has counted anew, and the number that is left out is another's now.
func (h *helperSource) withLeftOut(sample Sample) []Fault {
	faults := sample.Faults
	for card, left := range h.out {
		present := func(f Fault) bool {
			return slices.ContainsFunc(sample.Devices, func(d Device) bool { return d.UUID == f.UUID && d.UUID != "" })
		}
		if slices.ContainsFunc(left.faults, present) {
			h.log.Info("a card that was left out has another number now", "driver_index", card)
			delete(h.out, card)
			continue
		}
		faults = slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f.Index == card })
		faults = append(faults, left.faults...)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Index - b.Index })
	return faults
}

// startProbe tries a card that is left out, if that is due, in a helper of its
// own. Nothing is tried while a process hangs: it could only hang beside it.
func (h *helperSource) startProbe() {
	if h.probing || len(h.out) == 0 || len(h.alive) >= maxHelpers || time.Now().Before(h.until) {
		return
	}
	if slices.ContainsFunc(h.alive, func(p *helperProcess) bool { return !p.stuckSince.IsZero() }) {
		return
	}
	now := time.Now()
	due := noCard
	for card, left := range h.out {
		if !now.Before(left.next) && (due == noCard || left.next.Before(h.out[due].next)) {
			due = card
		}
	}
	if due == noCard {
		return
	}
	p, err := h.start(&helperLog{log: h.log}, "-only", strconv.Itoa(due))
	if err != nil {
		h.log.Error("try a card that is left out", "driver_index", due, "err", err)
		h.out[due].later(now, h.timing.probeMax)
		return
	}
	h.probing = true
	go h.probe(p, due)
}

func (l *leftOut) later(now time.Time, atMost time.Duration) {
	l.delay = min(2*l.delay, atMost)
	l.next = now.Add(l.delay)
}

// probe asks about one card. Any answer will do: a card that is lost or gone
// does not hang.
func (h *helperSource) probe(p *helperProcess, card int) {
	_, err := h.greet(p, nil)
	if err == nil {
		var reply HelperReply
		reply, err = p.ask(HelperRequest{Do: HelperSample}, h.timing)
		if err == nil && reply.Sample == nil {
			err = errors.New("no sample: " + text.Said(reply.Error))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing = false
	if err == nil {
		delete(h.out, card)
		h.log.Info("a card that was left out answers again", "driver_index", card)
		h.endLater(p, leaveTime)
		return
	}
	if errors.Is(err, errHelperHangs) {
		p.stuckSince, p.stuckOn = time.Now(), card
	}
	h.endLater(p, 0)
	if left := h.out[card]; left != nil {
		left.later(time.Now(), h.timing.probeMax)
		h.log.Warn("a card that is left out does not answer yet", "driver_index", card, "err", err, "next", left.next)
	}
}
