package siege

import (
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// attack is one attempt. It fails where the attempt succeeds.
type attack struct {
	name string
	try  func(t *testing.T, c *camp)
}

// linger is an attack that takes its time. It is begun before the others, and
// finish says what came of it.
type linger struct {
	name  string
	begin func(t *testing.T, c *camp) (finish func(t *testing.T))
}

// flood is the group whose attacks take all that one user may have, and so go
// one after another.
const flood = "flood"

// order is in which the groups have their turn.
var order = []string{"others", "identity", "http", "logs", "snapshot", "environment", "privilege", "terminal", "administrator", "messages", "limits", flood}

func groups() map[string][]attack {
	return map[string][]attack{
		"others": othersAttacks, "identity": identityAttacks, "http": httpAttacks, "logs": logAttacks, "snapshot": snapshotAttacks,
		"environment": environmentAttacks, "privilege": privilegeAttacks, "terminal": terminalAttacks,
		"administrator": adminAttacks, "messages": messageAttacks, "limits": limitAttacks, flood: floodAttacks, hoard: hoardAttacks,
	}
}

// TestSiege makes every attack on one daemon, most of them at the same time,
// and holds it to answering everybody else meanwhile.
func TestSiege(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	c := newCamp(t)
	c.keepWatch()
	pid := c.daemon.cmd.Process.Pid
	finish := make([]func(*testing.T), len(slowAttacks))
	for i, a := range slowAttacks {
		finish[i] = a.begin(t, c)
	}
	for _, group := range order {
		t.Run(group, func(t *testing.T) {
			for _, a := range groups()[group] {
				t.Run(a.name, func(t *testing.T) {
					if group != flood {
						t.Parallel()
					}
					a.try(t, c)
				})
			}
		})
	}
	for i, a := range slowAttacks {
		t.Run("slow/"+a.name, finish[i])
	}
	c.watch.responsive(t)
	c.mustBeSmall(t)
	if !c.daemon.running() || c.daemon.cmd.Process.Pid != pid {
		t.Fatalf("the daemon did not live through it: %s", c.daemon.said.String())
	}
	log := testkit.Read(t, filepath.Join(c.stateDir, "berth.log"))
	for line := range strings.Lines(log) {
		if strings.Contains(line, "bug while") || strings.Contains(line, "panic") {
			t.Errorf("the daemon says %.2000s", line)
		}
	}
	if said := c.daemon.said.String(); strings.Contains(said, "panic") {
		t.Errorf("the daemon says %.2000s", said)
	}
	if strings.Contains(log, rootCanary) {
		t.Error("the log holds root's environment")
	}
}
