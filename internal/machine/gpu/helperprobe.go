package gpu

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"berth/internal/text"
)

// leftOut is a card that helpers skip, because a driver call about it did not
// return.
type leftOut struct {
	faults []Fault // of the card, or of each of its parts
	next   time.Time
	delay  time.Duration
}

// skipped are the driver indices of the cards to skip.
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

// skippedCards are those that helpers skip, by driver index.
type skippedCards map[int]*leftOut

// add skips a card from now on: why ends with a time. seen is the last reading.
func (s skippedCards) add(card int, seen []Device, why string, probeAfter time.Duration, log *slog.Logger) {
	now := time.Now()
	text := why + now.Format(time.TimeOnly)
	left := &leftOut{next: now.Add(probeAfter), delay: probeAfter}
	for _, d := range seen {
		if d.DriverIndex == card || d.Part != nil && d.Part.Of == card {
			left.faults = append(left.faults, Fault{Index: d.DriverIndex, UUID: d.UUID, Kind: FaultHangs, Text: text})
		}
	}
	if left.faults == nil {
		left.faults = []Fault{{Index: card, Kind: FaultHangs, Text: text}}
	}
	s[card] = left
	log.Error("skipping a GPU", "driver_index", card, "text", text)
}

// faults are those of a sample and of the skipped cards. A skipped card that shows
// up under another number has answered: the driver has renumbered the cards, and
// the skipped number now belongs to another one.
func (s skippedCards) faults(sample Sample, log *slog.Logger) []Fault {
	faults := sample.Faults
	for card, left := range s {
		present := func(f Fault) bool {
			return slices.ContainsFunc(sample.Devices, func(d Device) bool { return d.UUID == f.UUID && d.UUID != "" })
		}
		if slices.ContainsFunc(left.faults, present) {
			log.Info("a skipped GPU has a new number", "driver_index", card)
			delete(s, card)
			continue
		}
		faults = slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f.Index == card })
		faults = append(faults, left.faults...)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Index - b.Index })
	return faults
}

// startProbe tries a skipped card in a helper of its own, if that is due. It
// does nothing while a process hangs: the new one would only hang beside it.
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
		h.log.Error("cannot try a skipped GPU", "driver_index", due, "err", err)
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

// probe asks about one card. Any answer will do: a lost or missing card does
// not hang.
func (h *helperSource) probe(p *helperProcess, card int) {
	_, err := p.greet(nil, h.timing)
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
		h.log.Info("a skipped GPU answers again", "driver_index", card)
		go p.end(leaveTime, h.timing.grace)
		return
	}
	if errors.Is(err, errHelperHangs) {
		p.stuckSince, p.stuckOn = time.Now(), card
	}
	go p.end(0, h.timing.grace)
	if left := h.out[card]; left != nil {
		left.later(time.Now(), h.timing.probeMax)
		h.log.Warn("a skipped GPU still does not answer", "driver_index", card, "err", err, "next", left.next)
	}
}
