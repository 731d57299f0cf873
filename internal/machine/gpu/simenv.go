package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SimFromEnv reads BERTH_SIM, the number of simulated cards (0: not set, -1:
// invalid), and BERTH_SIM_DIR, the box that an enclosing berth created.
func SimFromEnv(getenv func(string) string) (n int, dir string) {
	dir = getenv("BERTH_SIM_DIR")
	value := strings.TrimSpace(getenv("BERTH_SIM"))
	if value == "" {
		return 0, dir
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > maxSimCards {
		return -1, dir
	}
	return n, dir
}

// SimSize is how many cards the box in dir has, and how much memory each.
func SimSize(dir string) (n int, vramMiB int64, err error) {
	box, err := readSimBox(dir)
	if err != nil {
		return 0, 0, err
	}
	return len(box.Cards), box.Cards[0].TotalMiB, nil
}

// SimCards are the cards of the box in dir that CUDA_VISIBLE_DEVICES lists, by
// index or UUID, in its order. An empty list means no cards. Without the
// variable a program sees every card and uses the first, so that is the
// result.
func SimCards(lookup func(string) (string, bool), dir string) ([]int, error) {
	visible, set := lookup("CUDA_VISIBLE_DEVICES")
	if set && strings.TrimSpace(visible) == "" {
		return nil, nil
	}
	box, err := readSimBox(dir)
	if err != nil {
		return nil, err
	}
	if !set {
		return []int{box.Cards[0].Index}, nil
	}
	var cards []int
	for word := range strings.SplitSeq(visible, ",") {
		word = strings.TrimSpace(word)
		i := slices.IndexFunc(box.Cards, func(c simCard) bool { return c.UUID == word || strconv.Itoa(c.Index) == word })
		if i < 0 {
			return nil, fmt.Errorf("CUDA_VISIBLE_DEVICES: expected a simulated GPU, found %q", word)
		}
		cards = append(cards, box.Cards[i].Index)
	}
	return cards, nil
}
