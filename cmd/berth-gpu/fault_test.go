//go:build cgo

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/machine/gpu"
	"berth/internal/tests/fakenvml"
	"berth/internal/tests/testkit"
)

func boxOf(t testing.TB, count int) *fakenvml.Box {
	t.Helper()
	var cards []fakenvml.Card
	for i := range count {
		cards = append(cards, fakenvml.H100(i))
	}
	return fakenvml.New(t, cards...)
}

func uuid(i int) string { return fakenvml.H100(i).UUID }

func TestACardThatCannotBeReadIsAFaultAndTheOthersGoOn(t *testing.T) {
	for _, row := range []struct {
		name   string
		known  bool // was seen before
		damage func(*fakenvml.Box)
		want   gpu.Fault
	}{
		{"a card that falls off the bus is lost", true, func(b *fakenvml.Box) { b.Lose(1) },
			gpu.Fault{Index: 1, UUID: uuid(1), Kind: gpu.FaultLost, Text: "has fallen off the bus (get a handle: GPU is lost)"}},
		{"one that was never seen has no UUID", false, func(b *fakenvml.Box) { b.Lose(1) },
			gpu.Fault{Index: 1, Kind: gpu.FaultLost, Text: "has fallen off the bus (get a handle: GPU is lost)"}},
		{"one that needs a reset cannot be read", true, func(b *fakenvml.Box) { b.Fail(1, 16) },
			gpu.Fault{Index: 1, UUID: uuid(1), Kind: gpu.FaultUnreadable, Text: "get a handle: GPU requires reset"}},
		{"one that is not ours to open cannot be read", false, func(b *fakenvml.Box) { b.Fail(1, 4) },
			gpu.Fault{Index: 1, Kind: gpu.FaultUnreadable, Text: "get a handle: Insufficient Permissions"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			box := boxOf(t, 3)
			if !row.known {
				row.damage(box)
			}
			h := start(t, box)
			h.hello()
			if row.known {
				if s := h.sample(gpu.HelperRequest{}); len(s.Devices) != 3 || s.Faults != nil {
					t.Fatalf("a healthy box is %+v", s)
				}
				row.damage(box)
			}
			s := h.sample(gpu.HelperRequest{})
			if !slices.Equal(s.Faults, []gpu.Fault{row.want}) {
				t.Errorf("faults %+v, want %+v", s.Faults, row.want)
			}
			if want := []string{uuid(0), uuid(2)}; !slices.Equal(uuids(s.Devices), want) {
				t.Errorf("devices %v, want %v", uuids(s.Devices), want)
			}
			box.Restore(1)
			if s := h.sample(gpu.HelperRequest{}); len(s.Devices) != 3 || s.Faults != nil {
				t.Errorf("the card is back, but the sample is %+v", s)
			}
		})
	}
}

func TestCardsAfterARemovedOneAreRenumbered(t *testing.T) {
	box := boxOf(t, 3)
	h := start(t, box)
	h.sample(gpu.HelperRequest{})
	box.Remove(0)
	box.Lose(2) // which the driver now calls 1
	s := h.sample(gpu.HelperRequest{})
	if len(s.Devices) != 1 || s.Devices[0].UUID != uuid(1) || s.Devices[0].DriverIndex != 0 || s.Devices[0].Index != 0 {
		t.Errorf("devices %+v", s.Devices)
	}
	// What was number 1 answers as number 0: the lost card is not it.
	if len(s.Faults) != 1 || s.Faults[0].Index != 1 || s.Faults[0].UUID != "" {
		t.Errorf("faults %+v", s.Faults)
	}
}

func TestALostCardIsKnownByItsNewNumber(t *testing.T) {
	box := boxOf(t, 3)
	h := start(t, box)
	h.sample(gpu.HelperRequest{})
	box.Remove(0)
	h.sample(gpu.HelperRequest{})
	box.Lose(2)
	if s := h.sample(gpu.HelperRequest{}); len(s.Faults) != 1 || s.Faults[0].Index != 1 || s.Faults[0].UUID != uuid(2) {
		t.Errorf("faults %+v", s.Faults)
	}
}

func TestThePageNamesTheCardThatHangs(t *testing.T) {
	for _, row := range []struct {
		name  string
		hang  func(*fakenvml.Box)
		ask   string
		word  uint32
		ended func(*helper) int
	}{
		{"in a sample, and SIGTERM ends it", func(b *fakenvml.Box) { b.Hang(2) }, gpu.HelperSample, 3,
			func(h *helper) int { h.terminate(); return h.ended() }},
		{"in hello, and the end of its input ends it", func(b *fakenvml.Box) { b.Hang(0) }, gpu.HelperHello, 1,
			func(h *helper) int { h.in.Close(); return h.ended() }},
		{"so hard that SIGTERM does not help, and the end of its input ends it", func(b *fakenvml.Box) { b.HangHard(1) }, gpu.HelperSample, 2,
			func(h *helper) int { h.terminate(); h.in.Close(); return h.ended() }},
		{"when NVML starts, which is not about one card", func(b *fakenvml.Box) { b.HangInit(true) }, gpu.HelperHello, pageSystem,
			func(h *helper) int { h.terminate(); return h.ended() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			box := boxOf(t, 3)
			row.hang(box)
			h := start(t, box)
			h.send(gpu.HelperRequest{Do: row.ask})
			testkit.Eventually(t, "it hangs", func() bool { return slices.Contains(box.Stuck(), h.cmd.Process.Pid) })
			if word := h.pageWord(); word != row.word {
				t.Errorf("the page says %#x, want %#x", word, row.word)
			}
			if status := row.ended(h); status != 0 {
				t.Errorf("exit status %d", status)
			}
		})
	}
}

func TestCardsThatAreNotAskedAboutAreLeftAlone(t *testing.T) {
	box := boxOf(t, 4)
	box.Hang(1)
	h := start(t, box)
	h.hello(1)
	s := h.sample(gpu.HelperRequest{Skip: []int{1}, Watch: 10 * time.Millisecond, WatchFor: time.Minute})
	if want := []string{uuid(0), uuid(2), uuid(3)}; !slices.Equal(uuids(s.Devices), want) || s.Faults != nil {
		t.Errorf("all but card 1: %v and %+v", uuids(s.Devices), s.Faults)
	}
	box.Hang(0)
	box.Hang(3)
	only := start(t, box, "-only", "2")
	only.hello()
	if s := only.sample(gpu.HelperRequest{}); !slices.Equal(uuids(s.Devices), []string{uuid(2)}) || s.Faults != nil {
		t.Errorf("only card 2: %v and %+v", uuids(s.Devices), s.Faults)
	}
	if word := only.pageWord(); word != pageIdle {
		t.Errorf("after the reply the page says %d", word)
	}
}

func TestALibraryThatAbortsTakesTheHelperAloneAndThePageNamesTheCard(t *testing.T) {
	box := boxOf(t, 3)
	h := start(t, box)
	h.hello()
	box.Abort(1)
	h.send(gpu.HelperRequest{Do: gpu.HelperSample})
	select {
	case reply := <-h.replies:
		t.Fatalf("a reply %+v from a library that aborts", reply)
	case <-h.over:
	}
	if word := h.pageWord(); word != 2 {
		t.Errorf("the page says %d, want 2", word)
	}
}

func TestXidsComeWithTheNextSample(t *testing.T) {
	split := fakenvml.Partitioned(1, 1)
	box := fakenvml.New(t, fakenvml.H100(0), split, fakenvml.H100(2))
	h := start(t, box)
	if !h.hello().Events {
		t.Fatal("no events")
	}
	raised := time.Now()
	box.Xid(0, 79)
	box.Xid(1, 48)
	box.Event(2, fakenvml.EventRecovery, 0)
	box.Event(2, fakenvml.EventRecovery, 0) // told twice is told once
	box.Event(2, fakenvml.EventUnavailable, 0)
	box.Xid(2, 31)
	var got []gpu.Xid
	testkit.Eventually(t, "the Xids are there", func() bool {
		got = append(got, h.sample(gpu.HelperRequest{}).Xids...)
		return len(got) > 0 && got[len(got)-1].Code == 31
	})
	var said []gpu.Xid
	for _, xid := range got {
		if xid.At.Before(raised.Add(-time.Minute)) || xid.At.After(time.Now().Add(time.Minute)) {
			t.Errorf("Xid at %s", xid.At)
		}
		xid.At, xid.Text = time.Time{}, ""
		if !slices.Contains(said, xid) {
			said = append(said, xid)
		}
	}
	want := []gpu.Xid{
		{UUID: uuid(0), BusID: "0000:10:00", Code: 79}, {BusID: "0000:11:00", Code: 48},
		{UUID: uuid(2), BusID: "0000:12:00", Code: 154}, {UUID: uuid(2), BusID: "0000:12:00", Code: 0}, {UUID: uuid(2), BusID: "0000:12:00", Code: 31},
	}
	if !slices.Equal(said, want) {
		t.Errorf("Xids\n%+v\nwant\n%+v", said, want)
	}
	if again := h.sample(gpu.HelperRequest{}).Xids; again != nil {
		t.Errorf("delivered twice: %+v", again)
	}
}

func TestACardThatAppearsReportsXidsToo(t *testing.T) {
	box := boxOf(t, 2)
	box.Remove(1)
	h := start(t, box)
	h.hello()
	h.sample(gpu.HelperRequest{})
	box.Restore(1)
	h.sample(gpu.HelperRequest{})
	box.Xid(1, 62)
	testkit.Eventually(t, "its Xid is there", func() bool {
		xids := h.sample(gpu.HelperRequest{}).Xids
		return len(xids) == 1 && xids[0].UUID == uuid(1) && xids[0].Code == 62
	})
}

func TestAWaitForEventsThatHangsHoldsNothingUp(t *testing.T) {
	box := boxOf(t, 1)
	h := start(t, box)
	h.hello()
	box.HangEvents()
	testkit.Eventually(t, "it hangs", func() bool { return len(box.Stuck()) > 0 })
	if s := h.sample(gpu.HelperRequest{}); len(s.Devices) != 1 {
		t.Errorf("sample %+v", s)
	}
	h.in.Close()
	if status := h.ended(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

func TestADriverThatDoesNotStartIsSaid(t *testing.T) {
	for _, row := range []struct {
		name string
		code int
		want string
	}{
		{"the kernel's part is not loaded", 9, "start NVML: Driver Not Loaded"},
		{"the library is newer than the kernel's part", 18, "start NVML: Driver/library version mismatch"},
	} {
		t.Run(row.name, func(t *testing.T) {
			box := boxOf(t, 1)
			box.FailInit(row.code)
			h := start(t, box)
			if reply := h.ask(gpu.HelperRequest{Do: gpu.HelperHello}); reply.Error != row.want || reply.Hello != nil {
				t.Errorf("reply %+v, want %q", reply, row.want)
			}
			if status := h.ended(); status != exitNoNVML {
				t.Errorf("exit status %d", status)
			}
		})
	}
}

func TestMemoryLimitsAreSetWhereTheDriverHasThem(t *testing.T) {
	box := boxOf(t, 2)
	h := start(t, box)
	limit := gpu.MemoryLimit{Cgroup: "/sys/fs/cgroup/berth/7", UUID: uuid(1), SoftMiB: 1000, HardMiB: 4000}
	if reply := h.ask(gpu.HelperRequest{Do: gpu.HelperLimit, Limit: &limit}); reply.Error != "" {
		t.Fatal(reply.Error)
	}
	lifted := gpu.MemoryLimit{Cgroup: limit.Cgroup, UUID: uuid(1)}
	if reply := h.ask(gpu.HelperRequest{Do: gpu.HelperLimit, Limit: &lifted}); reply.Error != "" {
		t.Fatal(reply.Error)
	}
	want := []fakenvml.Limit{{UUID: uuid(1), Cgroup: limit.Cgroup, SoftMiB: 1000, HardMiB: 4000}, {UUID: uuid(1), Cgroup: limit.Cgroup}}
	if got := box.Limits(); !slices.Equal(got, want) {
		t.Errorf("the driver was asked for %+v, want %+v", got, want)
	}

	for _, row := range []struct {
		name  string
		alter func(*gpu.MemoryLimit)
		want  string
	}{
		{"more than the card has", func(l *gpu.MemoryLimit) { l.HardMiB = 1 << 20 }, "Invalid Argument"},
		{"a card that is not there", func(l *gpu.MemoryLimit) { l.UUID = "GPU-x" }, "no GPU GPU-x"},
		{"no cgroup", func(l *gpu.MemoryLimit) { l.Cgroup = "" }, "expected a cgroup"},
		{"less than nothing", func(l *gpu.MemoryLimit) { l.SoftMiB = -1 }, "expected a cgroup"},
		{"a card that cannot", func(*gpu.MemoryLimit) { box.Change(1, func(c *fakenvml.Card) { c.Limits = -1 }) }, errNoLimits.Error()},
	} {
		t.Run(row.name, func(t *testing.T) {
			bad := limit
			row.alter(&bad)
			if reply := h.ask(gpu.HelperRequest{Do: gpu.HelperLimit, Limit: &bad}); !strings.Contains(reply.Error, row.want) {
				t.Errorf("error %q, want one that says %q", reply.Error, row.want)
			}
		})
	}
	box.Miss(fakenvml.MemoryLimits...)
	old := start(t, box)
	if reply := old.ask(gpu.HelperRequest{Do: gpu.HelperLimit, Limit: &limit}); reply.Error != errNoLimits.Error() {
		t.Errorf("an old driver: %q", reply.Error)
	}
}
