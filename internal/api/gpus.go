package api

import "strconv"

func (x *exchange) getGPUs() error {
	cards, err := x.backend.GPUs(x.r.Context(), x.caller)
	if cards == nil {
		cards = []GPU{}
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
	return x.reply(x.backend.PauseGPU(x.r.Context(), x.caller, index, paused))
}
