package gpu

import (
	"os"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// reconsiderNow has Cards take another way as soon as it may.
func reconsiderNow(c *cardSource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reconsiderAt = time.Time{}
	if h, is := c.raw.(*helperSource); is {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.retry.failing.IsZero() {
			h.retry.failing = time.Now().Add(-uselessAfter)
		}
	}
}

func TestCardsReturnToAHelperThatWasOfNoUse(t *testing.T) {
	fakeSMI(t, "h200")
	f := newFakeHelper(t, eight()...)
	f.set(func(b *fakeBox) { b.NoNVML = "Driver Not Loaded" })
	c := openCards(t, OpenOptions{Helper: f.path})
	for range 3 {
		if s := takeSample(t, c); len(s.Devices) != 1 || len(f.starts()) != 1 {
			t.Fatalf("%d cards, started %q", len(s.Devices), f.starts())
		}
	}
	// 1. It is tried again, and is still of none: nobody notices.
	reconsiderNow(c)
	testkit.Eventually(t, "it to be tried", func() bool { return len(takeSample(t, c).Devices) == 1 && len(f.starts()) == 2 })
	testkit.Eventually(t, "the end of that", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return !c.reconsidering })
	if c.Name() != "nvidia-smi" {
		t.Fatal(c.Name())
	}
	// 2. It works by now.
	f.set(func(b *fakeBox) { b.NoNVML = "" })
	reconsiderNow(c)
	testkit.Eventually(t, "all cards", func() bool { s, err := c.Sample(t.Context()); return err == nil && len(s.Devices) == 8 })
	if notes := strings.Join(c.Facts().Notes, "\n"); c.Name() != "NVML" || strings.Contains(notes, "nvidia-smi") {
		t.Errorf("%s: %s", c.Name(), notes)
	}
}

func TestCardsTakeNvidiaSMIWhereTheHelperFailsForLong(t *testing.T) {
	fakeSMI(t, "h200")
	f := newFakeHelper(t, eight()...)
	c := openCards(t, OpenOptions{Helper: f.path})
	takeSample(t, c)
	program, err := os.ReadFile(f.path)
	if err == nil {
		err = os.Remove(f.path)
	}
	if err != nil {
		t.Fatal(err)
	}
	helper := c.raw.(*helperSource)
	helper.stop()
	testkit.Eventually(t, "it to be gone", func() bool { return helper.living() == 0 })
	for range 3 {
		if _, err := c.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), "no such file") || c.Name() != "NVML" {
			t.Fatalf("%s: %v", c.Name(), err)
		}
	}
	reconsiderNow(c)
	testkit.Eventually(t, "a card", func() bool { s, err := c.Sample(t.Context()); return err == nil && len(s.Devices) == 1 })
	if notes := strings.Join(c.Facts().Notes, "\n"); c.Name() != "nvidia-smi" || !strings.Contains(notes, "no such file") {
		t.Errorf("%s: %s", c.Name(), notes)
	}
	if err := os.WriteFile(f.path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the end of that", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return !c.reconsidering })
	reconsiderNow(c)
	testkit.Eventually(t, "all cards", func() bool { s, err := c.Sample(t.Context()); return err == nil && len(s.Devices) == 8 })
}

func TestCardsInPartsAreNotLeftToNvidiaSMI(t *testing.T) {
	fakeSMI(t, "h200")
	f := newFakeHelper(t, fakeCard{UUID: "GPU-0", BusID: "00000000:10:00.0", Parts: []string{"MIG-a", "MIG-b"}})
	c := openCards(t, OpenOptions{Helper: f.path})
	takeSample(t, c)
	f.set(func(b *fakeBox) { b.NoNVML = "Driver Not Loaded" })
	helper := c.raw.(*helperSource)
	helper.stop()
	_, err := c.Sample(t.Context())
	testkit.Eventually(t, "it to be gone", func() bool { return helper.living() == 0 })
	reconsiderNow(c)
	if _, err2 := c.Sample(t.Context()); err == nil || err2 == nil {
		t.Fatal("it answered")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reconsidering || c.raw != helper {
		t.Error("another way was looked for")
	}
}

func TestCardsDoNotTryAHelperThatIsNotWanted(t *testing.T) {
	fakeSMI(t, "h200")
	c := openCards(t, OpenOptions{Helper: "none"})
	reconsiderNow(c)
	takeSample(t, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reconsidering || !c.reconsiderAt.IsZero() {
		t.Error("it was looked for")
	}
}

func TestOpenLeavesACardOutThatTakesTheHelperDown(t *testing.T) {
	fakeSMI(t, "h200")
	f := newFakeHelper(t, eight()...)
	f.set(func(b *fakeBox) { b.Cards[3].AbortHello = true })
	c := openCards(t, OpenOptions{Helper: f.path})
	s := takeSample(t, c)
	if c.Name() != "NVML" || len(s.Devices) != 7 || len(s.Faults) != 1 || s.Faults[0].Index != 3 {
		t.Errorf("%s: cards %v, %+v", c.Name(), indicesOf(s), s.Faults)
	}
}
