package daemon

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/internal/machine/gpu"
	"berth/internal/text/problem"
)

// partsOf lists the parts of a partitioned card.
func partsOf(index int, there []gpu.Device) (parts []gpu.Device) {
	for _, dev := range there {
		if dev.Part != nil && dev.Part.Of == index {
			parts = append(parts, dev)
		}
	}
	return parts
}

// indices lists card numbers: "0, 1".
func indices(devices []gpu.Device) string {
	words := make([]string, len(devices))
	for i, dev := range devices {
		words[i] = strconv.Itoa(dev.Index)
	}
	return strings.Join(words, ", ")
}

// noCard is the problem for a number that no card has. A partitioned card is
// shown with its number, but only its parts can be named.
func noCard(index int, there []gpu.Device) error {
	if parts := partsOf(index, there); len(parts) > 0 {
		return problem.Newf(problem.NotFound, "name the parts", "GPU %d is partitioned; its parts are %s", index, indices(parts))
	}
	return problem.Newf(problem.NotFound, "berth gpus lists them", "this machine has no GPU %d", index)
}

func cardName(index int) string { return "gpu" + strconv.Itoa(index) }

// missingGPUs says which of the GPUs a config names do not exist here.
func missingGPUs(wanted []int, there []gpu.Device) (warnings []string) {
	if len(there) == 0 {
		return nil // they were never read
	}
	missing := 0
	for _, index := range wanted {
		if slices.ContainsFunc(there, func(dev gpu.Device) bool { return dev.Index == index }) {
			continue
		}
		missing++
		if parts := partsOf(index, there); len(parts) > 0 {
			warnings = append(warnings, fmt.Sprintf("scheduling.gpus names GPU %d, which is partitioned; its parts are %s", index, indices(parts)))
			continue
		}
		warnings = append(warnings, fmt.Sprintf("scheduling.gpus names GPU %d, which does not exist; this machine has %s", index, indices(there)))
	}
	if missing > 0 && missing == len(wanted) {
		warnings = append(warnings, "scheduling.gpus names no GPU of this machine, so no job gets one")
	}
	return warnings
}
