package siege

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// TestEveryAttackIsOnTheList holds docs/studies/attacks.md and the attacks together:
// what it cites exists, and what exists it cites.
func TestEveryAttackIsOnTheList(t *testing.T) {
	page, err := os.ReadFile("../../../docs/studies/attacks.md")
	testkit.Must(t, err)
	known := map[string]bool{}
	for group, attacks := range groups() {
		for _, a := range attacks {
			known[group+"/"+a.name] = true
		}
	}
	for _, a := range slowAttacks {
		known["slow/"+a.name] = true
	}
	if len(known) < 40 {
		t.Errorf("only %d attacks", len(known))
	}
	cited := map[string]bool{}
	for _, match := range regexp.MustCompile("`([a-z]+/[^`]+)`").FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(match[1], "internal/") {
			continue
		}
		cited[match[1]] = true
		if !known[match[1]] {
			t.Errorf("docs/studies/attacks.md names %q, which is not an attack", match[1])
		}
	}
	for name := range known {
		if !cited[name] {
			t.Errorf("docs/studies/attacks.md does not name %q", name)
		}
	}
}
