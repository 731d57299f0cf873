package gpu

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/tests/fakenvml"
	"berth/internal/tests/testkit"
)

// realHelper is berth-gpu as people run it, built once.
var realHelper = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "berth-gpu-client-")
	if err != nil {
		return "", err
	}
	scratch = dir
	return filepath.Join(dir, "berth-gpu"), testkit.Build(dir, "", "cmd/berth-gpu")
})

// realCards is the whole way from a driver's library to berth's cards.
func realCards(t *testing.T, cards int, timing helperTiming) (*fakenvml.Box, *cardSource, *helperSource) {
	t.Helper()
	var list []fakenvml.Card
	for i := range cards {
		list = append(list, fakenvml.H100(i))
	}
	box := fakenvml.New(t, list...)
	for _, entry := range box.Env() {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
	path, err := realHelper()
	if err != nil {
		t.Fatal(err)
	}
	h := newHelper(path, slog.New(slog.NewTextHandler(t.Output(), nil)), timing)
	c := newCards(nil, newSysfs(t.TempDir()))
	c.open = func() (Source, []string, error) { return h, nil, openHelper(h) }
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		for _, p := range h.alive {
			p.signal(unix.SIGKILL)
		}
		h.mu.Unlock()
		testkit.Eventually(t, "the helpers to be gone", func() bool { return h.living() == 0 })
	})
	return box, c, h
}

// present are the cards in a sample, by berth's number: "0 1 3".
func present(s Sample) string {
	var words []string
	for _, d := range s.Devices {
		words = append(words, fmt.Sprint(d.Index))
	}
	return strings.Join(words, " ")
}

func TestRealHelperShowsTheOthersWhileACardHangs(t *testing.T) {
	for name, hang := range map[string]func(*fakenvml.Box, int){
		"it can be ended":         (*fakenvml.Box).Hang,
		"only SIGKILL can end it": (*fakenvml.Box).HangHard,
	} {
		t.Run(name, func(t *testing.T) {
			timing := patientHelper
			timing.grace, timing.probe, timing.probeMax = time.Second, 100*time.Millisecond, 200*time.Millisecond
			box, c, h := realCards(t, 8, timing)
			if s := takeSample(t, c); present(s) != "0 1 2 3 4 5 6 7" || s.Devices[2].TotalMiB != 81559 || !s.Devices[2].ProcessesKnown {
				t.Fatalf("%+v", s)
			}
			hang(box, 3)
			s := sampleSoon(t, c)
			if present(s) != "0 1 2 4 5 6 7" || len(s.Faults) != 1 || s.Faults[0].Index != 3 || s.Faults[0].Kind != FaultHangs || s.Faults[0].UUID == "" {
				t.Fatalf("%s, %+v", present(s), s.Faults)
			}
			// While it is tried again and again, nobody notices.
			testkit.Eventually(t, "probes that hang", func() bool {
				if s := takeSample(t, c); present(s) != "0 1 2 4 5 6 7" || len(s.Faults) != 1 {
					t.Fatalf("%s, %+v", present(s), s.Faults)
				}
				if living := h.living(); living > maxHelpers {
					t.Fatalf("%d processes", living)
				}
				return len(box.Stuck()) >= 2
			})
			box.Restore(3)
			testkit.Eventually(t, "the card to be back", func() bool { s := takeSample(t, c); return len(s.Devices) == 8 && len(s.Faults) == 0 })
		})
	}
}

func TestRealHelperSurvivesEveryPlug(t *testing.T) {
	timing := patientHelper
	timing.retry, timing.probe, timing.probeMax = 10*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond
	timing.renew = 300 * time.Millisecond
	box, c, _ := realCards(t, 4, timing)
	whole := func(s Sample) bool { return present(s) == "0 1 2 3" && len(s.Faults) == 0 }
	for _, plug := range []struct {
		name      string
		pull, end func()
		shows     func(Sample) bool
	}{
		{"a card is lost", func() { box.Lose(1) }, func() { box.Restore(1) },
			func(s Sample) bool {
				return present(s) == "0 2 3" && len(s.Faults) == 1 && s.Faults[0].Kind == FaultLost && s.Faults[0].Index == 1
			}},
		{"a card is lost to whoever holds the driver", func() { box.LoseForSession(1) }, func() { box.Restore(1) },
			func(s Sample) bool {
				return present(s) == "0 2 3" && len(s.Faults) == 1 && s.Faults[0].Kind == FaultLost && s.Faults[0].Index == 1
			}},
		{"a card is gone and the driver counts anew", func() { box.Remove(1) }, func() { box.Restore(1) },
			func(s Sample) bool { return present(s) == "0 2 3" && s.Devices[1].DriverIndex == 1 }},
		{"a card takes the helper down", func() { box.Abort(2) }, func() { box.Restore(2) },
			func(s Sample) bool { return present(s) == "0 1 3" && len(s.Faults) == 1 && s.Faults[0].Index == 2 }},
		{"a card fails", func() { box.Fail(0, 999) }, func() { box.Restore(0) },
			func(s Sample) bool { return present(s) == "1 2 3" && len(s.Faults) == 1 && s.Faults[0].Index == 0 }},
		{"all cards are lost", func() { loseAll(box) }, func() { restoreAll(box) },
			func(s Sample) bool { return len(s.Devices) == 0 && len(s.Faults) == 4 }},
		{"an Xid is raised", func() { box.Xid(3, 48) }, func() {},
			func(s Sample) bool {
				return slices.ContainsFunc(s.Xids, func(x Xid) bool { return x.Code == 48 && x.BusID == "0000:13:00" })
			}},
	} {
		t.Run(plug.name, func(t *testing.T) {
			plug.pull()
			testkit.Eventually(t, "it to be seen", func() bool { s, err := c.Sample(t.Context()); return err == nil && plug.shows(s) })
			plug.end()
			testkit.Eventually(t, "all to be well", func() bool { s, err := c.Sample(t.Context()); return err == nil && whole(s) })
		})
	}
}

func loseAll(box *fakenvml.Box) {
	for i := range 4 {
		box.Lose(i)
	}
}

func restoreAll(box *fakenvml.Box) {
	for i := range 4 {
		box.Restore(i)
	}
}

func TestRealHelperThatIsKilledComesBack(t *testing.T) {
	timing := patientHelper
	timing.retry = 10 * time.Millisecond
	box, c, _ := realCards(t, 2, timing)
	takeSample(t, c)
	for round := range 3 {
		pids := box.Inits()
		_ = unix.Kill(pids[len(pids)-1], unix.SIGKILL)
		if s := sampleSoon(t, c); len(s.Devices) != 2 {
			t.Fatalf("round %d: %+v", round, s)
		}
	}
}

func TestRealHelperWhoseDriverIsBrokenAtFirst(t *testing.T) {
	timing := patientHelper
	timing.start, timing.grace, timing.retry = time.Second, 100*time.Millisecond, 10*time.Millisecond
	box, c, h := realCards(t, 2, timing)
	box.HangInit(true)
	if _, err := c.Sample(t.Context()); err == nil {
		t.Fatal("it answered")
	}
	box.HangInit(false)
	if s := sampleSoon(t, c); len(s.Devices) != 2 {
		t.Errorf("%+v", s)
	}
	box.FailInit(9)
	h.stop()
	if _, err := c.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), "NVML cannot be used") {
		t.Error(err)
	}
	box.FailInit(0)
	sampleSoon(t, c)
}

func TestRealHelperLetsGoOfTheDriver(t *testing.T) {
	box, c, _ := realCards(t, 2, patientHelper)
	takeSample(t, c)
	c.Release(time.Hour)
	if ins, outs := len(box.Inits()), len(box.Shutdowns()); ins != 1 || outs != 1 {
		t.Errorf("taken hold of %d times, let go of %d times", ins, outs)
	}
	c.Release(0)
	takeSample(t, c)
}

func TestRealHelperShowsParts(t *testing.T) {
	box, c, _ := realCards(t, 2, patientHelper)
	takeSample(t, c)
	box.Change(0, func(card *fakenvml.Card) {
		card.MIG = 1
		card.Parts = []fakenvml.Part{{UUID: "MIG-a", Profile: "1g.10gb", GPUInstance: 1, Slices: 1, TotalMiB: 9728}, {UUID: "MIG-b", Profile: "1g.10gb", GPUInstance: 2, Slices: 1, TotalMiB: 9728}}
	})
	testkit.Eventually(t, "the parts", func() bool {
		s := takeSample(t, c)
		return present(s) == "1 100 101" && s.Devices[1].Part.Of == 0 && s.Devices[1].TotalMiB == 9728
	})
}

func TestRealHelperSeesAShortPeak(t *testing.T) {
	box, c, _ := realCards(t, 1, patientHelper)
	takeSample(t, c)
	box.SetProcesses(0, fakenvml.Process{PID: os.Getpid(), UsedMiB: 5000})
	tick := time.NewTimer(3 * watchEvery)
	<-tick.C
	box.SetProcesses(0, fakenvml.Process{PID: os.Getpid(), UsedMiB: 100})
	s := takeSample(t, c)
	if p := s.Devices[0].Processes; len(p) != 1 || p[0].UsedMiB != 100 || p[0].PeakMiB != 5000 {
		t.Errorf("%+v", p)
	}
}

func BenchmarkRealHelperSample(b *testing.B) {
	path, err := realHelper()
	if err != nil {
		b.Fatal(err)
	}
	var list []fakenvml.Card
	for i := range 8 {
		list = append(list, fakenvml.H100(i))
	}
	for _, entry := range fakenvml.New(b, list...).Env() {
		name, value, _ := strings.Cut(entry, "=")
		b.Setenv(name, value)
	}
	h := newHelper(path, slog.New(slog.DiscardHandler), patientHelper)
	defer h.Close()
	c := newCards(nil, newSysfs(b.TempDir()))
	c.open = func() (Source, []string, error) { return h, nil, nil }
	for b.Loop() {
		if _, err := c.Sample(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
