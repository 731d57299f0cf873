package api

import (
	"slices"
	"strconv"
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
	text := x.r.PathValue("index")
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 || index > 4096 || len(text) > 4 {
		return Problemf(NotFound, "", "%s is no index of a GPU", quoted(text))
	}
	card, err := x.backend.PauseGPU(x.r.Context(), x.caller, index, paused)
	card.Jobs = list(card.Jobs)
	return x.reply(card, err)
}
