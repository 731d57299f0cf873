package jobfile

import (
	"strings"
	"testing"
)

func TestFlagValue(t *testing.T) {
	for _, row := range []struct {
		line  string
		value string
		found bool
	}{
		{"", "", false},
		{"--mode train", "train", true},
		{"--mode=train", "train", true},
		{"--mode=", "", true},
		{"--mode", "", false}, // nothing behind it
		{"--mode a --mode=b", "b", true},
		{"--mode=a --mode b", "b", true},
		{"--mode a --mode", "a", true},
		{"--model x --moden=y mode z", "", false},
	} {
		value, found := FlagValue(strings.Fields(row.line), "--mode")
		if value != row.value || found != row.found {
			t.Errorf("%q: %q, %v; want %q, %v", row.line, value, found, row.value, row.found)
		}
	}
}
