package api

import (
	"slices"
	"strconv"
	"time"

	"berth/internal/text/problem"
)

func (x *exchange) getGPUs() error {
	cards, err := x.backend.GPUs(x.r.Context(), x.caller)
	cards = slices.Clone(list(cards)) // the Backend may keep its own
	for i := range cards {
		cards[i].Jobs = list(cards[i].Jobs)
	}
	return x.reply(cards, err)
}

func (x *exchange) pauseGPU() error { return x.setPaused(true) }

func (x *exchange) resumeGPU() error { return x.setPaused(false) }

func (x *exchange) setPaused(paused bool) error {
	index, err := x.index()
	if err != nil {
		return err
	}
	card, err := x.backend.PauseGPU(x.r.Context(), x.caller, index, paused)
	card.Jobs = list(card.Jobs)
	return x.reply(card, err)
}

// index is the GPU that the path names.
func (x *exchange) index() (int, error) {
	text := x.r.PathValue("index")
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 || index > maxGPU || len(text) > 4 {
		return 0, problem.Newf(problem.NotFound, "", "expected the number of a GPU, found %s", quoted(text))
	}
	return index, nil
}

// Bounds on requests about cards.
const (
	maxGPU         = 4096
	maxReason      = 200 // bytes
	maxCardEvents  = 1000
	usualEvents    = 50
	usualRelease   = 10 * time.Minute
	longestRelease = 24 * time.Hour
)

func (x *exchange) postDrain() error {
	index, err := x.index()
	if err != nil {
		return err
	}
	var r DrainRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	reply, err := x.backend.DrainGPU(x.r.Context(), x.caller, index, r)
	reply.GPU.Jobs, reply.Jobs = list(reply.GPU.Jobs), list(reply.Jobs)
	return x.reply(reply, err)
}

func (x *exchange) postHealth() error {
	index, err := x.index()
	if err != nil {
		return err
	}
	var r HealthRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	if r.Health != HealthOK && r.Health != HealthQuarantined {
		return problem.Newf(problem.Invalid, "", "health: expected %s or %s, found %s", HealthOK, HealthQuarantined, quoted(r.Health))
	}
	if len(r.Reason) > maxReason {
		return problem.Newf(problem.Invalid, "", "reason: expected at most %d bytes, found %d", maxReason, len(r.Reason))
	}
	card, err := x.backend.SetHealth(x.r.Context(), x.caller, index, r)
	card.Jobs = list(card.Jobs)
	return x.reply(card, err)
}

func (x *exchange) getCardHistory() error {
	p, err := newParams(x.r.URL.RawQuery)
	if err != nil {
		return err
	}
	q := readCardQuery(p)
	if err := p.done(); err != nil {
		return err
	}
	events, err := x.backend.CardHistory(x.r.Context(), x.caller, q)
	return x.reply(list(events), err)
}

func (x *exchange) postRelease() error {
	var r ReleaseRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	if r.ForS < 0 || r.ForS > int64(longestRelease/time.Second) || r.End && r.ForS != 0 {
		return problem.Newf(problem.Invalid, "", "for_s: expected 1 to %d seconds, without end", int64(longestRelease/time.Second))
	}
	if r.ForS == 0 && !r.End {
		r.ForS = int64(usualRelease / time.Second)
	}
	return x.reply(x.backend.ReleaseGPUs(x.r.Context(), x.caller, r))
}
