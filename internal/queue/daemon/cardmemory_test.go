package daemon

import (
	"testing"
	"time"

	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
)

func TestWhatIsRememberedOfACardIsAsOldAsItsLastReading(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	read, lost, never := gpu.Unknown(0, "GPU-a", "Card"), gpu.Unknown(1, "GPU-b", "Card"), gpu.Unknown(2, "GPU-c", "Card")
	before := []seenCard{
		{read, noon.Add(-2 * time.Hour), keep.BootID()}, {lost, noon.Add(-2 * time.Hour), keep.BootID()},
		{never, noon.Add(-20 * time.Hour), "another"},
	}
	readAt := map[int]time.Time{0: noon, 1: noon.Add(-time.Hour)}
	got := seenSince(before, []gpu.Device{read, lost, never}, func(index int) time.Time { return readAt[index] })
	want := []seenCard{{read, noon, keep.BootID()}, {lost, noon.Add(-time.Hour), keep.BootID()}, before[2]}
	for i := range want {
		if got[i].Device.UUID != want[i].Device.UUID || !got[i].Seen.Equal(want[i].Seen) || got[i].Boot != want[i].Boot {
			t.Errorf("%s is remembered of %v in boot %q, want %v and %q",
				want[i].Device.UUID, got[i].Seen, got[i].Boot, want[i].Seen, want[i].Boot)
		}
	}
}

// TestACardThatIsMissingAfterARebootIsStillCounted: the driver counts anew, and
// another card has its number.
func TestACardThatIsMissingAfterARebootIsStillCounted(t *testing.T) {
	twoCards(t)
	first := gpu.Unknown(1, "GPU-dead", "Card")
	part := gpu.Unknown(100, "MIG-old", "Card")
	part.Part = &gpu.Part{Of: 0}
	second := gpu.Unknown(2, "GPU-b", "Card") // which is 1 now
	now := time.Now()
	d := cardless(t, seenCard{first, now, "another"}, seenCard{second, now, "another"}, seenCard{part, now, "another"}, seenCard{part, now, "another"})
	if err := d.openMachine(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := indices(d.svc.queue.Devices); got != "0, 1, 2, 100" {
		t.Fatalf("cards %s", got)
	}
	if got := d.svc.queue.Devices[2]; got.UUID != "GPU-dead" {
		t.Errorf("card 2 is %s", got.UUID)
	}
}
