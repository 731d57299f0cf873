package batch

import (
	"slices"
	"strconv"
	"strings"

	"berth/internal/machine/gpu"
	"berth/internal/text/problem"
)

// chooseCards checks the ids that the user gave or inherited against the cards of
// this machine.
func (h *Host) chooseCards(sample gpu.Sample) error {
	have := make([]string, 0, len(sample.Devices))
	for _, d := range sample.Devices {
		have = append(have, strconv.Itoa(d.Index))
		h.cards = append(h.cards, d.Index)
	}
	list := "this machine has " + strings.Join(have, ", ")
	if len(sample.Devices) == 0 {
		return problem.Newf(problem.Unable, "berth doctor says what is wrong with them", "no GPU of this machine can be read: %s", sample.Faults[0].Text)
	}
	if h.opt.GPUs != nil {
		if h.opt.AsGpusched { // it uses those that exist
			h.cards = slices.DeleteFunc(slices.Clone(h.opt.GPUs), func(index int) bool { return !slices.Contains(h.cards, index) })
			if len(h.cards) == 0 {
				return problem.Newf(problem.Unable, "correct --gpus", "every job is INFEASIBLE: --gpus names no GPU that exists; %s", list)
			}
			return nil
		}
		for _, index := range h.opt.GPUs {
			if !slices.Contains(h.cards, index) {
				return problem.Newf(problem.Invalid, "", "--gpus names GPU %d, %s", index, absent(sample, strconv.Itoa(index), list))
			}
		}
		h.cards = h.opt.GPUs
		return nil
	}
	if h.chooseAllocated(sample) {
		return nil
	}
	inherited, set := h.lookupEnv("CUDA_VISIBLE_DEVICES")
	if !set {
		return nil
	}
	return h.inheritCards(sample, inherited, list)
}

// inheritCards uses the cards of an inherited CUDA_VISIBLE_DEVICES.
func (h *Host) inheritCards(sample gpu.Sample, inherited, list string) error {
	const hint = "unset it, or choose GPUs with --gpus"
	refuse := func(kind problem.Kind, format string, args ...any) error {
		return problem.Newf(kind, hint, "the inherited CUDA_VISIBLE_DEVICES "+format, args...)
	}
	h.cards = []int{}
	words := strings.FieldsFunc(inherited, func(r rune) bool { return r == ',' || r == ' ' })
	if len(words) == 0 {
		return refuse(problem.Unable, "is empty, so no GPU may be used")
	}
	if words[0] == "-1" { // the convention for no GPU
		return refuse(problem.Unable, "is %s, so no GPU may be used", inherited)
	}
	for _, word := range words {
		index, ok := findCard(sample, word)
		if !ok {
			return refuse(problem.Invalid, "names %q, %s", word, absent(sample, word, list))
		}
		if slices.Contains(h.cards, index) {
			return refuse(problem.Invalid, "names GPU %d twice: %s", index, inherited)
		}
		h.cards = append(h.cards, index)
	}
	return nil
}

// absent is why a word names no card: the card is partitioned, and its parts are
// cards of their own, or it does not exist.
func absent(sample gpu.Sample, word, list string) string {
	var parts []string
	for _, d := range sample.Devices {
		if d.Part != nil && word == strconv.Itoa(d.Part.Of) {
			parts = append(parts, strconv.Itoa(d.Index))
		}
	}
	if len(parts) > 0 {
		return "which is partitioned; its parts are " + strings.Join(parts, ", ")
	}
	return "which does not exist; " + list
}

// findCard reads one word of CUDA_VISIBLE_DEVICES as CUDA does: an index, a
// UUID, or a unique prefix of one.
func findCard(sample gpu.Sample, word string) (index int, ok bool) {
	matches := 0
	for _, d := range sample.Devices {
		if word == strconv.Itoa(d.Index) || word == d.UUID {
			return d.Index, true
		}
		if strings.HasPrefix(word, "GPU-") && strings.HasPrefix(d.UUID, word) {
			index = d.Index
			matches++
		}
	}
	return index, matches == 1
}
