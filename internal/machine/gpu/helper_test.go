package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

// indicesOf are the driver indices of the cards in a sample.
func indicesOf(s Sample) []int {
	var indices []int
	for _, d := range s.Devices {
		indices = append(indices, d.DriverIndex)
	}
	return indices
}

// sampleSoon takes samples until one works.
func sampleSoon(t *testing.T, source Source) (s Sample) {
	t.Helper()
	var err error
	testkit.Eventually(t, "a sample", func() bool {
		s, err = source.Sample(t.Context())
		return err == nil
	})
	return s
}

func TestHelperReadsCards(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(nil)
	before := time.Now()
	for range 3 {
		s := takeSample(t, h)
		if len(s.Devices) != 8 || len(s.Faults) != 0 || s.At.Before(before) {
			t.Errorf("%+v", s)
		}
	}
	if starts := f.starts(); len(starts) != 1 || !strings.HasSuffix(starts[0], " serve") {
		t.Errorf("started %q", starts)
	}
	if facts := h.Facts(); facts.Driver != "600.1" || facts.Source != "NVML through "+f.path {
		t.Errorf("%+v", facts)
	}
}

func TestHelperLeavesACardOutThatHangs(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(func(timing *helperTiming) { timing.sample = 3 * time.Second })
	takeSample(t, h)
	f.set(func(b *fakeBox) { b.Cards[3].Hang = true })
	_, err := h.Sample(t.Context())
	if !errors.Is(err, errHelperHangs) || !strings.Contains(err.Error(), "GPU 3") || errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	s := sampleSoon(t, h)
	if got := indicesOf(s); !slices.Equal(got, []int{0, 1, 2, 4, 5, 6, 7}) {
		t.Errorf("cards %v", got)
	}
	if len(s.Faults) != 1 || s.Faults[0].UUID != "GPU-3" || s.Faults[0].Kind != FaultHangs || !strings.HasPrefix(s.Faults[0].Text, "has not answered since ") {
		t.Errorf("faults %+v", s.Faults)
	}
}

func TestHelperNamesThePartsOfACardThatHangs(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, fakeCard{UUID: "GPU-0"}, fakeCard{UUID: "GPU-1", Parts: []string{"MIG-a", "MIG-b"}})
	h := f.open(func(timing *helperTiming) { timing.sample = 3 * time.Second })
	takeSample(t, h)
	f.set(func(b *fakeBox) { b.Cards[1].Hang = true })
	if _, err := h.Sample(t.Context()); err == nil {
		t.Fatal("it did not hang")
	}
	var named []string
	for _, fault := range sampleSoon(t, h).Faults {
		named = append(named, fault.UUID)
	}
	if !slices.Equal(named, []string{"MIG-a", "MIG-b"}) {
		t.Errorf("faults of %q", named)
	}
}

func TestHelperTakesACardBackThatAnswersAgain(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(func(timing *helperTiming) {
		timing.sample, timing.probe, timing.probeMax = 3*time.Second, 20*time.Millisecond, 100*time.Millisecond
	})
	takeSample(t, h)
	f.set(func(b *fakeBox) { b.Cards[5].Hang = true })
	if _, err := h.Sample(t.Context()); err == nil {
		t.Fatal("it did not hang")
	}
	probes := func() int {
		return len(slices.DeleteFunc(f.starts(), func(start string) bool { return !strings.HasSuffix(start, "serve -only 5") }))
	}
	testkit.Eventually(t, "two probes that hang", func() bool {
		s, err := h.Sample(t.Context())
		if err == nil && len(s.Devices) != 7 {
			t.Fatalf("%d cards", len(s.Devices))
		}
		if living := h.living(); living > maxHelpers {
			t.Fatalf("%d processes", living)
		}
		return probes() >= 2
	})
	f.set(func(b *fakeBox) { b.Cards[5].Hang = false })
	testkit.Eventually(t, "the card to be back", func() bool {
		s, err := h.Sample(t.Context())
		return err == nil && len(s.Devices) == 8 && len(s.Faults) == 0
	})
}

func TestHelperStartsNothingBesideOneThatHangsOnNoCard(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	f.set(func(b *fakeBox) { b.HangHello, b.IgnoreTerm = true, true })
	h := f.open(func(timing *helperTiming) { timing.start, timing.grace = 2*time.Second, time.Hour })
	if _, err := h.Sample(t.Context()); !errors.Is(err, errHelperHangs) {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := h.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be killed") {
			t.Fatal(err)
		}
	}
	if starts := f.starts(); len(starts) != 1 {
		t.Errorf("started %q", starts)
	}
	f.set(func(b *fakeBox) { b.HangHello, b.IgnoreTerm = false, false })
	f.killAll()
	sampleSoon(t, h)
}

func TestHelperNeverHasMoreThanTwoProcesses(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	f.set(func(b *fakeBox) { b.IgnoreTerm = true })
	h := f.open(func(timing *helperTiming) {
		timing.sample, timing.grace, timing.probe = 3*time.Second, time.Hour, time.Millisecond
	})
	takeSample(t, h)
	for _, card := range []int{2, 6} {
		f.set(func(b *fakeBox) { b.Cards[card].Hang = true })
		if _, err := h.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprint("GPU ", card)) {
			t.Fatal(err)
		}
	}
	for range 20 {
		if _, err := h.Sample(t.Context()); err == nil || len(f.starts()) > 2 {
			t.Fatalf("%v, started %q", err, f.starts())
		}
	}
	_ = unix.Kill(f.pids()[0], unix.SIGKILL)
	s := sampleSoon(t, h)
	if got := indicesOf(s); !slices.Equal(got, []int{0, 1, 3, 4, 5, 7}) || len(s.Faults) != 2 {
		t.Errorf("cards %v, faults %+v", got, s.Faults)
	}
}

func TestHelperIsNotCondemnedByACallerWithoutTime(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(nil)
	takeSample(t, h)
	f.set(func(b *fakeBox) { b.Slow, b.Xids = 300*time.Millisecond, []Xid{{Code: 31, UUID: "GPU-1"}} })
	glance, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	asked := time.Now()
	if s, err := h.Sample(glance); !errors.Is(err, context.DeadlineExceeded) || len(s.Xids) != 0 {
		t.Fatal(s, err)
	}
	s := takeSample(t, h)
	if s.At.Before(asked.Add(-time.Second)) || len(s.Xids) != 1 {
		t.Errorf("the next caller had %+v", s)
	}
	if starts := f.starts(); len(starts) != 1 {
		t.Errorf("started %q", starts)
	}
}

func TestHelperKeepsAReplyForTheNextCaller(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(nil)
	takeSample(t, h)
	f.set(func(b *fakeBox) { b.Slow = 100 * time.Millisecond })
	glance, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := h.Sample(glance); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	h.mu.Lock()
	left := h.look
	h.mu.Unlock()
	<-left.done
	h.mu.Lock()
	left.at = time.Now().Add(time.Hour) // however slow this machine is
	h.mu.Unlock()
	if s := takeSample(t, h); !s.At.Equal(left.sample.At) {
		t.Errorf("the reading of %s was not kept, but one of %s taken", left.sample.At, s.At)
	}
	if s := takeSample(t, h); s.At.Equal(left.sample.At) {
		t.Error("a reading was returned twice")
	}
}

func TestHelperThatFailsIsStartedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		breaks func(*fakeBox)
		cause  error
		says   string
	}{
		"it is killed while it reads":         {func(b *fakeBox) { b.DieAt = HelperSample }, errHelperDied, "killed"},
		"it dies at hello":                    {func(b *fakeBox) { b.DieAt = HelperHello }, errHelperDied, "killed"},
		"it writes rubbish":                   {func(b *fakeBox) { b.Rubbish = "Segmentation\x1b[2J fault" }, errHelperRubbish, "Segmentation"},
		"it writes half an object":            {func(b *fakeBox) { b.Rubbish = `{"id":2,` }, errHelperRubbish, "id"},
		"it writes a line without end":        {func(b *fakeBox) { b.Flood = true }, errHelperRubbish, "4194304"},
		"it answers another request":          {func(b *fakeBox) { b.WrongID = true }, errHelperRubbish, "reply to request"},
		"it answers twice":                    {func(b *fakeBox) { b.Extra = true }, errHelperRubbish, "found that to request 1"},
		"it speaks another version":           {func(b *fakeBox) { b.Protocol = 99 }, errHelperRubbish, "found 99"},
		"it answers with nothing":             {func(b *fakeBox) { b.Rubbish = "{\"id\":2}" }, errHelperRubbish, "without a sample"},
		"it closes its output and lives on":   {func(b *fakeBox) { b.Mute = true }, errHelperRubbish, "closed its output"},
		"it ignores SIGTERM beside all that":  {func(b *fakeBox) { b.Rubbish, b.IgnoreTerm = "x", true }, errHelperRubbish, "x"},
		"the driver's library cannot be used": {func(b *fakeBox) { b.NoNVML = "Driver Not Loaded" }, errNoNVML, "Driver Not Loaded"},
		"it says why before it dies":          {func(b *fakeBox) { b.DieAt, b.Words = HelperSample, "symbol lookup error" }, errHelperDied, "symbol lookup error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeHelper(t, eight()...)
			f.set(test.breaks)
			h := f.open(nil)
			seen := false
			testkit.Eventually(t, "the failure", func() bool {
				_, err := h.Sample(t.Context())
				if errors.Is(err, test.cause) && strings.Contains(err.Error(), test.says) {
					seen = true
				} else if err != nil && !strings.Contains(err.Error(), "started again") && !strings.Contains(err.Error(), "cannot be killed") {
					t.Fatal(err)
				}
				return seen
			})
			f.set(func(b *fakeBox) { *b = fakeBox{Cards: eight()} })
			if s := sampleSoon(t, h); len(s.Devices) != 8 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestHelperThatDiesBetweenSamplesCostsNone(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(nil)
	takeSample(t, h)
	f.killAll()
	testkit.Eventually(t, "its end to be seen", func() bool { return h.living() == 0 })
	takeSample(t, h)
}

func TestHelperThatKeepsDyingIsNotStartedWithoutEnd(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	f.set(func(b *fakeBox) { b.DieAt = HelperHello })
	h := f.open(func(timing *helperTiming) { timing.retry, timing.retryMax = time.Hour, time.Hour })
	for range 50 {
		if _, err := h.Sample(t.Context()); err == nil {
			t.Fatal("it answered")
		}
	}
	if _, err := h.Sample(t.Context()); !strings.Contains(err.Error(), "restarted at") || len(f.starts()) != 1 {
		t.Errorf("%v, started %q", err, f.starts())
	}
}

func TestHelperLeavesACardOutThatTakesItDown(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(nil)
	takeSample(t, h)
	f.set(func(b *fakeBox) { b.Cards[1].Abort = true })
	s := sampleSoon(t, h)
	if got := indicesOf(s); !slices.Equal(got, []int{0, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("cards %v", got)
	}
	if len(s.Faults) != 1 || s.Faults[0].UUID != "GPU-1" || !strings.Contains(s.Faults[0].Text, "crashes berth-gpu") {
		t.Errorf("%+v", s.Faults)
	}
	if starts := f.starts(); len(starts) != 3 {
		t.Errorf("started %q", starts)
	}
}

// TestHelpersLeaveNothingOpen counts what berth itself holds, so it is not one
// of those that run beside others.
func TestHelpersLeaveNothingOpen(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would close what we forget
	f := newFakeHelper(t, eight()...)
	h := f.open(nil)
	ends := []func(){h.stop, f.killAll, func() {
		f.set(func(b *fakeBox) { b.Rubbish = "what?" })
		if _, err := h.Sample(t.Context()); err == nil {
			t.Error("it made sense")
		}
		f.set(func(b *fakeBox) { b.Rubbish = "" })
	}}
	round := func(i int) {
		sampleSoon(t, h)
		ends[i%len(ends)]()
	}
	held := func() (files, goroutines int) {
		h.stop()
		testkit.Eventually(t, "the helpers to be gone", func() bool { return h.living() == 0 })
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(open), runtime.NumGoroutine()
	}
	round(0)
	filesBefore, goroutinesBefore := held()
	for i := range 45 {
		round(i)
	}
	// A few may come and go with the runtime and with what ends just now.
	testkit.Eventually(t, "as little to be held as before", func() bool {
		files, goroutines := held()
		return files <= filesBefore+5 && goroutines <= goroutinesBefore+5
	})
}

func TestHelperIsLetGoOfWhenIdle(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fakeBox){
		"it leaves":                 func(*fakeBox) {},
		"it has to be told":         func(b *fakeBox) { b.IgnoreEOF = true },
		"it has to be made to go":   func(b *fakeBox) { b.IgnoreEOF, b.IgnoreTerm = true, true },
		"it is busy beyond the end": func(b *fakeBox) { b.Slow = 50 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeHelper(t, eight()...)
			f.set(change)
			h := f.open(func(timing *helperTiming) { timing.idle = 10 * time.Millisecond })
			takeSample(t, h)
			testkit.Eventually(t, "it to be gone", func() bool { return h.living() == 0 })
			takeSample(t, h)
			if starts := f.starts(); len(starts) < 2 {
				t.Errorf("started %q", starts)
			}
		})
	}
}

// TestHelperIsLetGoOfAfterARequestThatEndsLate: the time may be up while a request
// that has set the clock still has the turn.
func TestHelperIsLetGoOfAfterARequestThatEndsLate(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(func(timing *helperTiming) { timing.idle = time.Hour })
	takeSample(t, h)
	h.turn <- struct{}{}
	h.timing.idle = 10 * time.Millisecond
	h.goIdle()
	<-h.turn
	testkit.Eventually(t, "it to be gone", func() bool { return h.living() == 0 })
}

func TestHelperLimitsMemory(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(nil)
	takeSample(t, h)
	if err := h.Limit(t.Context(), MemoryLimit{UUID: "GPU-1"}); h.CanLimit() || err == nil || !strings.Contains(err.Error(), "does not support memory limits") {
		t.Errorf("an old driver: %v", err)
	}
	f.set(func(b *fakeBox) { b.Limits = true })
	h.stop()
	takeSample(t, h)
	if err := h.Limit(t.Context(), MemoryLimit{UUID: "GPU-1", HardMiB: 10}); err != nil || !h.CanLimit() {
		t.Errorf("a new driver: %v", err)
	}
}

func TestHelperLeavesAHangingCardAloneWhenItLimitsAnother(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	f.set(func(b *fakeBox) { b.Limits = true })
	h := f.open(func(timing *helperTiming) { timing.sample = 3 * time.Second })
	takeSample(t, h)
	f.set(func(b *fakeBox) { b.Cards[0].Hang = true })
	if _, err := h.Sample(t.Context()); err == nil {
		t.Fatal("it did not hang")
	}
	sampleSoon(t, h)
	if err := h.Limit(t.Context(), MemoryLimit{UUID: "GPU-5", HardMiB: 10}); err != nil {
		t.Error(err)
	}
	if s := takeSample(t, h); len(s.Devices) != 7 {
		t.Errorf("cards %v, faults %+v", indicesOf(s), s.Faults)
	}
}

func TestHelperThatIsSlowWithEveryCardHangsOnNone(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(func(timing *helperTiming) { timing.sample = 3 * time.Second })
	takeSample(t, h)
	f.set(func(b *fakeBox) { b.SlowCard = 500 * time.Millisecond })
	if s := takeSample(t, h); len(s.Devices) != 8 || len(s.Faults) != 0 {
		t.Errorf("cards %v, faults %+v", indicesOf(s), s.Faults)
	}
}

// TestHelperLooksAnewWhereSomethingIsAmiss is about a driver that shows each
// process what was there when that took hold of it, and nothing else.
func TestHelperLooksAnewWhereSomethingIsAmiss(t *testing.T) {
	t.Parallel()
	for name, amiss := range map[string]func(*fakeBox){
		"a card is missing":         func(b *fakeBox) { b.Cards = b.Cards[:7] },
		"there is no card":          func(b *fakeBox) { b.Cards = nil },
		"a card cannot be read":     func(b *fakeBox) { b.Cards[2].Unreadable = true },
		"nothing can be read":       func(b *fakeBox) { b.Refuse = "count the cards: Uninitialized" },
		"a card is lost":            func(b *fakeBox) { b.Cards[2].Lost = true },
		"the driver is not loaded":  func(b *fakeBox) { b.NoNVML = "Driver Not Loaded" },
		"the library does not suit": func(b *fakeBox) { b.NoNVML = "Driver/library version mismatch" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeHelper(t, eight()...)
			h := f.open(func(timing *helperTiming) { timing.renew, timing.renewMax = 50*time.Millisecond, 100*time.Millisecond })
			if name != "there is no card" {
				takeSample(t, h)
			}
			f.set(func(b *fakeBox) { amiss(b); b.Frozen = true })
			h.stop()
			if s, err := h.Sample(t.Context()); err == nil && len(s.Devices) == 8 {
				t.Fatal("it was not seen")
			} else if why := readFakeBox(f.dir); err != nil && !strings.Contains(err.Error(), why.NoNVML+why.Refuse) {
				t.Error(err)
			}
			f.set(func(b *fakeBox) { *b = fakeBox{Cards: eight(), Frozen: true} })
			testkit.Eventually(t, "all to be well", func() bool {
				s, err := h.Sample(t.Context())
				return err == nil && len(s.Devices) == 8 && len(s.Faults) == 0
			})
			started := len(f.starts())
			for range 20 {
				takeSample(t, h)
			}
			if now := len(f.starts()); now > started+1 {
				t.Errorf("started %d times more though all is well", now-started)
			}
		})
	}
}

func TestHelperForgetsANumberThatIsAnothersNow(t *testing.T) {
	t.Parallel()
	f := newFakeHelper(t, eight()...)
	h := f.open(func(timing *helperTiming) { timing.sample = 3 * time.Second })
	takeSample(t, h)
	f.set(func(b *fakeBox) { b.Cards[3].Hang = true })
	if _, err := h.Sample(t.Context()); err == nil {
		t.Fatal("it did not hang")
	}
	// The driver loses card 0 and counts anew: the one that hung is 2 now.
	f.set(func(b *fakeBox) { b.Cards = b.Cards[1:]; b.Cards[2].Hang = false })
	sampleSoon(t, h)
	if s := sampleSoon(t, h); len(s.Devices) != 7 || len(s.Faults) != 0 {
		t.Errorf("cards %v, faults %+v", indicesOf(s), s.Faults)
	}
}
