package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestThePageOfExitStatusesIsTrue: each row of the table of outcomes is what
// the code says of that outcome.
func TestThePageOfExitStatusesIsTrue(t *testing.T) {
	page := testkit.Read(t, "../../docs/reference/exit-status.md")
	rows := regexp.MustCompile("(?m)^\\| `([a-z]+(?::[A-Z0-9]+)?)` \\| (\\d+) \\| (\\d+) \\|$").FindAllStringSubmatch(page, -1)
	seen := map[job.Outcome]bool{}
	for _, row := range rows {
		outcome := job.Outcome(row[1])
		seen[outcome] = true
		if got := fmt.Sprintf("%d %d", api.ExitStatus(job.View{Outcome: &outcome}), outcome.Status()); got != row[2]+" "+row[3] {
			t.Errorf("%s: the page says %s and %s, the code %s", outcome, row[2], row[3], got)
		}
	}
	states := testkit.Read(t, "../../docs/reference/states.md")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z:NAME]+)` \\| (finished|failed|cancelled) \\|").FindAllStringSubmatch(states, -1) {
		outcome := job.Outcome(strings.NewReplacer("exit:N", "exit:7", "signal:NAME", "signal:KILL").Replace(row[1]))
		if !seen[outcome] {
			t.Errorf("%s is in states.md and not in exit-status.md", outcome)
		}
		if string(outcome.State()) != row[2] {
			t.Errorf("%s: states.md says %s, the code %s", outcome, row[2], outcome.State())
		}
		delete(seen, outcome)
	}
	for outcome := range seen {
		t.Errorf("%s is in exit-status.md and not in states.md", outcome)
	}
}
