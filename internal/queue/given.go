package queue

import (
	"slices"
	"strconv"
	"strings"

	"berth/internal/machine/gpu"
)

// Given are the cards that Slurm gave to the job which this process is in, in the
// job's order and with the node's numbers; none if that cannot be told. visible are
// those that the driver shows.
//
// Where Slurm hides the other cards, the driver counts the visible ones from 0, and
// so does CUDA_VISIBLE_DEVICES. SLURM_JOB_GPUS has the node's numbers in any case.
func Given(lookup func(string) (string, bool), visible []gpu.Device) []gpu.Device {
	visible = slices.Clone(visible)
	slices.SortFunc(visible, func(a, b gpu.Device) int { return a.DriverIndex - b.DriverIndex })
	host := numbers(value(lookup, "SLURM_JOB_GPUS"))
	words := strings.FieldsFunc(visibleTo(lookup), func(r rune) bool { return r == ',' || r == ' ' })
	var cards []gpu.Device
	switch {
	case len(words) > 0:
		cards = matching(visible, words)
	case len(host) > 0 && len(host) != len(visible):
		cards = numbered(visible, host)
	case len(host) > 0:
		cards = visible
	}
	if len(cards) == 0 && len(words) == len(visible) {
		cards = visible // named by numbers that the driver does not use here
	}
	if len(host) == len(cards) && !slices.ContainsFunc(cards, func(d gpu.Device) bool { return d.Part != nil }) {
		for i := range cards {
			cards[i].Index = host[i]
		}
	}
	return cards
}

// GivenNumbers is the node's numbers of the cards that Slurm gave, whether the driver
// shows them or not; nil: they have none.
func GivenNumbers(lookup func(string) (string, bool)) []int {
	if host := numbers(value(lookup, "SLURM_JOB_GPUS")); host != nil {
		return host
	}
	return numbers(visibleTo(lookup))
}

// GaveNone reports whether Slurm gave no card to the job which this process is in.
func GaveNone(lookup func(string) (string, bool)) bool {
	return visibleTo(lookup) == "" && value(lookup, "SLURM_JOB_GPUS") == ""
}

// visibleTo is the list of cards in Slurm's environment; empty outside of Slurm.
func visibleTo(lookup func(string) (string, bool)) string {
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"} {
		// Slurm writes NoDevFiles for a job without a card.
		if list := value(lookup, name); list != "" && list != "NoDevFiles" {
			return list
		}
	}
	return ""
}

// matching are the cards that words name: numbers of the driver, UUIDs, or the
// beginnings of UUIDs. It is empty if one names none, or a card is named twice.
func matching(visible []gpu.Device, words []string) []gpu.Device {
	var cards []gpu.Device
	for _, word := range words {
		at := slices.IndexFunc(visible, func(d gpu.Device) bool {
			return word == strconv.Itoa(d.DriverIndex) || word == d.UUID ||
				len(word) > len("GPU-") && strings.HasPrefix(word, "GPU-") && strings.HasPrefix(d.UUID, word)
		})
		if at < 0 || slices.ContainsFunc(cards, func(d gpu.Device) bool { return d.UUID == visible[at].UUID }) {
			return nil
		}
		cards = append(cards, visible[at])
	}
	return cards
}

func numbered(visible []gpu.Device, list []int) []gpu.Device {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return matching(visible, words)
}

// numbers reads a list such as "0,2-3"; nil if it is not one.
func numbers(list string) []int {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(word), "-")
		from, err := strconv.Atoi(first)
		to := from
		if isRange && err == nil {
			to, err = strconv.Atoi(last)
		}
		const most = 1024 // no node has more
		if err != nil || from < 0 || to < from || to-from > most {
			return nil
		}
		for n := from; n <= to; n++ {
			if slices.Contains(all, n) {
				return nil
			}
			all = append(all, n)
		}
	}
	return all
}

func value(lookup func(string) (string, bool), name string) string {
	v, _ := lookup(name)
	return v
}
