package job

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestThePageHasTheStateTable: docs/reference/states.md lists the states, and
// for each the states that may follow.
func TestThePageHasTheStateTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/states.md")
	if err != nil {
		t.Fatal(err)
	}
	words := func(cell string) (states []State) {
		for _, word := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(cell, -1) {
			states = append(states, State(word[1]))
		}
		slices.Sort(states)
		return states
	}
	listed := map[State][]State{}
	_, rest, _ := strings.Cut(string(page), "| next |\n")
	for line := range strings.Lines(rest) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			break
		}
		for _, state := range words(cells[1]) {
			listed[state] = words(cells[3])
		}
	}
	want := map[State][]State{}
	for state, next := range table {
		want[state] = slices.Sorted(slices.Values(next))
	}
	if !maps.EqualFunc(listed, want, slices.Equal[[]State]) {
		t.Errorf("the page has %v, the code %v", listed, want)
	}
}
