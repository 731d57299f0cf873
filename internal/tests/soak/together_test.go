package soak

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// TestTwoBerthsOneBox: two queues that know nothing of one another start in
// the same instant on the same cards. Each job fits a card alone, no two do.
func TestTwoBerthsOneBox(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for range rounds {
		twoBerths(t)
	}
}

func twoBerths(t *testing.T) {
	shared := t.TempDir()
	// On each other's cards these would overlap, so their locks are exclusive.
	lines := make([]line, 3)
	for i := range lines {
		lines[i] = line{number: i + 1, block: "vram=14G", cards: 1, alone: true, kind: "sim", hold: 30 * time.Millisecond}
	}
	var sites [2]*site
	for i := range sites {
		s := newSite(t, 2, lines)
		s.env = []string{
			"SOAK=" + s.dir, "BERTH_SIM_DIR=" + filepath.Join(shared, "box"),
			"BERTH_LEDGER_DIR=" + filepath.Join(shared, "reservations"),
		}
		// The jobs of both lock the same cards.
		script := strings.ReplaceAll(jobScript, `$SOAK/card`, shared+"/card")
		testkit.Write(t, filepath.Join(s.dir, "job.sh"), strings.ReplaceAll(script, "--vram 3500", "--vram 14000"))
		sites[i] = s
	}
	first, second := sites[0].start(), sites[1].start()
	first.mustEnd(0)
	second.mustEnd(0)
	for _, s := range sites {
		s.mustHaveRunAll(lines, "")
		s.mustBeClean()
	}
}

// TestSecondRunJoins: a second run on one directory follows the queue of the first,
// and stops it for both.
func TestSecondRunJoins(t *testing.T) {
	lines := []line{{number: 1, cards: 1, alone: true, kind: "plain", hold: 5 * time.Minute}}
	s := newSite(t, 1, lines)
	first := s.start()
	testkit.Eventually(t, "the job runs", func() bool { return s.wrote("start 1 1") })
	second := s.start()
	testkit.Eventually(t, "the second follows", func() bool { return strings.Contains(second.said(), "job 1 runs on gpu") })
	if !first.running() || len(s.queues()) != 1 {
		t.Error("the first was disturbed")
	}
	second.signal(syscall.SIGINT)
	second.mustEnd(130)
	first.mustEnd(1)
	s.mustBeSound(lines)
	s.mustBeClean()
}
