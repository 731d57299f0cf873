package soak

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// TestLettingGoOfTheDriver: for as long as an administrator wants it, no
// process of berth's holds the driver open and nothing starts on a card; the
// rest goes on, and so does everything afterwards.
func TestLettingGoOfTheDriver(t *testing.T) {
	r := newRack(t, 2)
	daemon := r.up()
	card := r.card(0)
	if card.TemperatureC == nil || card.PowerW == nil || card.PowerLimitW == nil || card.SMClockMHz == nil || card.BusID == "" || card.Minor == nil || card.ECCUncorrected == nil || card.Processes == nil {
		t.Errorf("NVML tells more of a card: %+v", card)
	}
	busy := r.give(0, "sleep", "600")
	testkit.Eventually(t, "a job is on a card", func() bool { return r.state(busy) == "running" })
	if _, said, status := r.cli("gpu", "release"); status != 1 || !strings.Contains(said, "jobs are running on the GPUs: "+busy) || !strings.Contains(said, "--force") {
		t.Errorf("%d %s", status, said)
	}
	r.cli("cancel", "--grace", "0", busy)
	testkit.Eventually(t, "the cards are empty", func() bool { return len(r.card(0).Jobs) == 0 })
	if out, said, status := r.cli("gpu", "release", "--for", "10m"); status != 0 || !strings.Contains(out, "released until") {
		t.Fatalf("%d %s %s", status, out, said)
	}
	for _, pid := range r.box.Inits() {
		if comm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); err == nil && strings.HasPrefix(string(comm), "berth-gpu") {
			t.Errorf("process %d still holds the driver", pid)
		}
	}
	waits := r.give(1, "true")
	out, _, status := r.cli("submit", "--gpus", "0", "--wait", "--", "true")
	if status != 0 {
		t.Errorf("a job that needs no card: %d %s", status, out)
	}
	if out, _, _ := r.cli("gpus"); !strings.Contains(out, "released until") {
		t.Errorf("%s", out)
	}
	if state := r.state(waits); state != "queued" {
		t.Errorf("a job for a card is %s", state)
	}
	if _, said, status := r.cli("gpu", "release", "--end"); status != 0 {
		t.Errorf("%d %s", status, said)
	}
	testkit.Eventually(t, "what waited has run", func() bool { return r.state(waits) == "finished" })
	if out, _, _ := r.cli("gpu", "history"); !strings.Contains(out, "in use again") || !strings.Contains(out, "released until") {
		t.Errorf("%s", out)
	}
	r.down(daemon)
}
