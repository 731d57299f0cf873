package reason

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bounds on a sentence: beyond them it counts instead of naming.
const (
	maxCardsNamed = 8
	maxJobsNamed  = 3
)

func gpus(indices []int) string {
	names := make([]string, len(indices))
	for i, index := range indices {
		names[i] = "gpu" + strconv.Itoa(index)
	}
	return some(names, maxCardsNamed)
}

// numbers writes indices as people type them: "0,1".
func numbers(indices []int) string {
	words := make([]string, len(indices))
	for i, index := range indices {
		words[i] = strconv.Itoa(index)
	}
	return strings.Join(words, ",")
}

// some joins the first of the names and counts the rest.
func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// countGPUs counts cards, of which a share is a part.
func countGPUs(n float64) string {
	if text := decimal(n); text != "1" {
		return text + " GPUs"
	}
	return "1 GPU"
}

// verb is what one does, or several do.
func verb(n int64, do string) string {
	if n == 1 {
		return do + "s"
	}
	return do
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// decimal writes a number to three places, without those that are 0.
func decimal(f float64) string { return strconv.FormatFloat(math.Round(f*1000)/1000, 'f', -1, 64) }

func fraction(f float64) string { return strconv.FormatFloat(f, 'g', 3, 64) }
