package gpu

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// noSMI takes nvidia-smi out of the way, whatever this machine has.
func noSMI(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", "/usr/bin:/bin")
	if _, err := os.Stat("/usr/bin/nvidia-smi"); err == nil {
		t.Setenv("PATH", t.TempDir())
	}
}

func openCards(t *testing.T, o OpenOptions) *cardSource {
	t.Helper()
	if o.Env == nil {
		o.Env = func(string) string { return "" }
	}
	source, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	c := source.(*cardSource)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestOpenTakesTheHelper(t *testing.T) {
	f := newFakeHelper(t, eight()...)
	for how, o := range map[string]OpenOptions{
		"by option":      {Helper: f.path},
		"by environment": {Env: func(name string) string { return map[string]string{HelperVariable: f.path}[name] }},
	} {
		c := openCards(t, o)
		if len(takeSample(t, c).Devices) != 8 || c.Name() != "NVML" || !c.Cheap() || c.Facts().Driver != "600.1" {
			t.Errorf("%s: %s, %+v", how, c.Name(), c.Facts())
		}
	}
}

func TestOpenFallsBackToNvidiaSMI(t *testing.T) {
	// seeds: G57
	rubbish := filepath.Join(t.TempDir(), "berth-gpu")
	if err := os.WriteFile(rubbish, []byte("#!/bin/sh\necho what; sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	noNVML := newFakeHelper(t)
	noNVML.set(func(b *fakeBox) { b.NoNVML = "Driver Not Loaded" })
	deadly := newFakeHelper(t)
	deadly.set(func(b *fakeBox) { b.DieAt = HelperHello })
	newer := newFakeHelper(t)
	newer.set(func(b *fakeBox) { b.Protocol = 99 })
	for name, test := range map[string]struct{ helper, note string }{
		"turned off":            {"none", "BERTH_GPU_HELPER=none"},
		"not beside berth":      {"", "berth-gpu is not installed beside berth"},
		"not there":             {"/nonexistent/berth-gpu", "no such file"},
		"not a program":         {t.TempDir(), "permission denied"},
		"not a helper":          {rubbish, "unexpected output"},
		"dies at once":          {deadly.path, "killed"},
		"of another version":    {newer.path, "found 99"},
		"without driver or lib": {noNVML.path, "Driver Not Loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeSMI(t, "h200")
			c := openCards(t, OpenOptions{Env: func(string) string { return test.helper }})
			if len(takeSample(t, c).Devices) != 1 || c.Name() != "nvidia-smi" || c.Cheap() || c.CanLimit() {
				t.Errorf("%s", c.Name())
			}
			if notes := strings.Join(c.Facts().Notes, "\n"); !strings.Contains(notes, test.note) || !strings.Contains(notes, "read through nvidia-smi") {
				t.Errorf("notes: %s", notes)
			}
			if err := c.Limit(t.Context(), MemoryLimit{}); err == nil || !strings.Contains(err.Error(), "not supported by nvidia-smi") {
				t.Errorf("limit: %v", err)
			}
		})
	}
}

func TestOpenSaysBothCauses(t *testing.T) {
	noSMI(t)
	f := newFakeHelper(t)
	f.set(func(b *fakeBox) { b.NoNVML = "Driver Not Loaded" })
	_, err := Open(OpenOptions{Helper: f.path})
	if !errors.Is(err, errNoDriver) || !strings.Contains(err.Error(), "nvidia-smi is not in PATH; berth-gpu: NVML cannot be used: Driver Not Loaded") {
		t.Error(err)
	}
}

// machineWith is the root of a machine with these files.
func machineWith(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestNoDriverAtAllMeansNoCardsAndAFailingOneIsAnError(t *testing.T) {
	onBus := map[string]string{
		"sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
		"sys/bus/pci/devices/0000:01:00.0/class":  "0x030000\n",
	}
	sound := map[string]string{
		"sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n",
		"sys/bus/pci/devices/0000:01:00.1/class":  "0x040300\n",
	}
	noLibrary, notLoaded, dies := newFakeHelper(t), newFakeHelper(t), newFakeHelper(t)
	noLibrary.set(func(b *fakeBox) { b.NoNVML, b.NoLib = "cannot load the library", true })
	notLoaded.set(func(b *fakeBox) { b.NoNVML = "Driver Not Loaded" })
	dies.set(func(b *fakeBox) { b.DieAt = HelperHello })
	for name, test := range map[string]struct {
		helper string
		files  map[string]string
		smi    bool
		wait   bool
		none   bool
	}{
		"no trace":                      {helper: noLibrary.path, none: true},
		"no trace and no helper":        {helper: "none", none: true},
		"a helper that cannot run":      {helper: dies.path, none: true},
		"another device of NVIDIA's":    {helper: "none", files: sound, none: true},
		"a card that nobody drives":     {helper: noLibrary.path, files: onBus, none: true},
		"a card, and no helper":         {helper: "none", files: onBus},
		"a library without its driver":  {helper: notLoaded.path},
		"the driver without a library":  {helper: noLibrary.path, files: map[string]string{"proc/driver/nvidia/version": "600"}},
		"device files":                  {helper: noLibrary.path, files: map[string]string{"dev/nvidia0": ""}},
		"WSL":                           {helper: noLibrary.path, files: map[string]string{"dev/dxg": ""}},
		"an nvidia-smi that fails":      {helper: noLibrary.path, smi: true},
		"cards that were there lately":  {helper: noLibrary.path, wait: true},
		"a Jetson without a library":    {helper: noLibrary.path, files: map[string]string{"dev/nvhost-gpu": ""}},
		"a helper that dies, and a GPU": {helper: dies.path, files: onBus},
	} {
		t.Run(name, func(t *testing.T) {
			noSMI(t)
			if test.smi {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\nexit 9\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				t.Setenv("PATH", dir)
			}
			source, err := Open(OpenOptions{Helper: test.helper, Wait: test.wait, root: machineWith(t, test.files)})
			if err != nil {
				if test.none || test.wait || !errors.Is(err, errNoDriver) {
					t.Error(err)
				}
				return
			}
			defer source.Close()
			sample, err := source.Sample(t.Context())
			if none := err == nil && source.Name() == NoSource && len(sample.Devices) == 0; none != test.none {
				t.Errorf("%s reads %+v, %v", source.Name(), sample, err)
			}
		})
	}
}

func TestOpenOfAHelperThatHangsIsStillTheHelper(t *testing.T) {
	fakeSMI(t, "h200")
	f := newFakeHelper(t, eight()...)
	f.set(func(b *fakeBox) { b.HangHello = true })
	c := openCards(t, OpenOptions{Helper: f.path})
	if c.Name() != "NVML" {
		t.Fatal(c.Name())
	}
	bounded, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Sample(bounded); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	f.set(func(b *fakeBox) { b.HangHello = false })
	f.killAll()
	if s := sampleSoon(t, c); len(s.Devices) != 8 {
		t.Errorf("%+v", s)
	}
}

func TestOpenWaitsForADriverThatIsLate(t *testing.T) {
	noSMI(t)
	f := newFakeHelper(t, eight()...)
	f.set(func(b *fakeBox) { b.NoNVML = "Driver Not Loaded" })
	c := openCards(t, OpenOptions{Helper: f.path, Wait: true})
	if _, err := c.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), "Driver Not Loaded") || c.Cheap() {
		t.Fatal(err)
	}
	if starts := f.starts(); len(starts) != 1 {
		t.Errorf("it was tried again at once: %q", starts)
	}
	f.set(func(b *fakeBox) { b.NoNVML = "" })
	c.mu.Lock()
	c.openAgain = time.Time{}
	c.mu.Unlock()
	if s := takeSample(t, c); len(s.Devices) != 8 || !c.Cheap() {
		t.Errorf("%+v", s)
	}
}

func TestCardsAreLetGoOfAsAsked(t *testing.T) {
	f := newFakeHelper(t, eight()...)
	c := openCards(t, OpenOptions{Helper: f.path})
	takeSample(t, c)
	c.Release(time.Hour)
	if pids := f.pids(); len(pids) != 0 {
		t.Errorf("processes %v still hold the driver", pids)
	}
	until := c.Released()
	if _, err := c.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), "released until "+until.Format(time.TimeOnly)+", as requested") {
		t.Error(err)
	}
	if err := c.Limit(t.Context(), MemoryLimit{}); err == nil || !strings.Contains(err.Error(), "as requested") {
		t.Error(err)
	}
	c.Release(0)
	if !c.Released().IsZero() || len(takeSample(t, c).Devices) != 8 {
		t.Error("it did not take hold again")
	}
}

func TestCardsKeepTheirNumbersWhenTheDriverCountsAnew(t *testing.T) {
	f := newFakeHelper(t, eight()...)
	c := openCards(t, OpenOptions{Helper: f.path, Known: []Device{Unknown(9, "GPU-7", "Fake")}})
	takeSample(t, c)
	f.set(func(b *fakeBox) { b.Cards = slices.Delete(b.Cards, 2, 3); b.Cards[0].Links = map[int]int{2: 4} })
	s := takeSample(t, c)
	var numbers, drivers []int
	for _, d := range s.Devices {
		numbers, drivers = append(numbers, d.Index), append(drivers, d.DriverIndex)
	}
	if !slices.Equal(numbers, []int{0, 1, 3, 4, 5, 6, 9}) || !slices.Equal(drivers, []int{0, 1, 2, 3, 4, 5, 6}) || s.Devices[0].Links[3] != 4 {
		t.Errorf("numbers %v, the driver's %v, links %v", numbers, drivers, s.Devices[0].Links)
	}
}

func TestCardsTellWhatTheKernelSaysAlsoBesideAnError(t *testing.T) {
	path, say := fakeKernelLog(t)
	f := newFakeHelper(t, eight()...)
	c := newCards(nil, newSysfs(t.TempDir()))
	h := f.open(nil)
	c.open = func() (Source, []string, error) { return h, nil, nil }
	var err error
	if c.kernel, err = openKernelLog(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.kernel.Close() })
	takeSample(t, c)
	f.set(func(b *fakeBox) { b.DieAt = HelperSample })
	say(0, "NVRM: Xid (PCI:0000:12:00): 79, GPU has fallen off the bus.")
	testkit.Eventually(t, "it to be read", func() bool { c.kernel.mu.Lock(); defer c.kernel.mu.Unlock(); return len(c.kernel.xids) == 1 })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := c.Sample(gone); !errors.Is(err, context.Canceled) || len(s.Xids) != 0 {
		t.Errorf("a caller whose time is up: %+v, %v", s.Xids, err)
	}
	s, err := c.Sample(t.Context())
	if err == nil || len(s.Xids) != 1 || s.Xids[0].UUID != "GPU-2" || s.Xids[0].Code != 79 {
		t.Errorf("%+v, %v", s.Xids, err)
	}
}

func TestFirstLookIsTakenAgain(t *testing.T) {
	f := newFakeHelper(t, eight()...)
	f.set(func(b *fakeBox) { b.Cards[0].Hang = true })
	h := f.open(func(timing *helperTiming) { timing.sample = 3 * time.Second })
	s, err := FirstLook(t.Context(), h)
	if err != nil || len(s.Devices) != 7 || len(s.Faults) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// scripted gives the samples that it was made with, one after the other.
type scripted struct {
	Source
	samples []Sample
	errs    []error
}

func (s *scripted) Sample(context.Context) (Sample, error) {
	sample, err := s.samples[0], s.errs[0]
	s.samples, s.errs = s.samples[1:], s.errs[1:]
	return sample, err
}

func TestFirstLookKeepsWhatWasSaidMeanwhile(t *testing.T) {
	source := &scripted{
		samples: []Sample{{Xids: []Xid{{Code: 79}}}, {}, {Devices: []Device{{UUID: "GPU-0"}}, Xids: []Xid{{Code: 48}}}},
		errs:    []error{errors.New("not yet"), errors.New("not yet"), nil},
	}
	s, err := FirstLook(t.Context(), source)
	if err != nil || len(s.Devices) != 1 || len(s.Xids) != 2 || s.Xids[0].Code != 79 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestHelperWordsAreBounded(t *testing.T) {
	var kept strings.Builder
	log := &helperLog{log: slog.New(slog.NewTextHandler(&kept, nil))}
	log.copy(strings.NewReader("first\n" + strings.Repeat("x", 100*maxHelperWord) + "\n" + strings.Repeat("again\n", 10*maxHelperWords)))
	if lines := strings.Count(kept.String(), "\n"); lines != maxHelperWords || kept.Len() > maxHelperWords*2*maxHelperWord {
		t.Errorf("%d lines, %d bytes", lines, kept.Len())
	}
	if log.said() != ": first" {
		t.Errorf("said %q", log.said())
	}
	if log.listen(); log.said() != "" {
		t.Error("it remembers")
	}
}

// TestOpenReadsTheCardsOfThisMachine runs where there are some, and a helper.
func TestOpenReadsTheCardsOfThisMachine(t *testing.T) {
	path := os.Getenv(HelperVariable)
	smi, err := findSMI()
	if err != nil || path == "" || path == "none" {
		t.Skip("no cards, or no helper: ", err)
	}
	c := openCards(t, OpenOptions{Helper: path})
	sample, told := takeSample(t, c), takeSample(t, smi)
	t.Logf("%s: %+v\n%+v", c.Name(), c.Facts(), sample)
	if c.Name() != "NVML" || len(sample.Devices) != len(told.Devices) || len(sample.Faults) != 0 {
		t.Fatalf("%d cards, nvidia-smi shows %d: %+v", len(sample.Devices), len(told.Devices), sample.Faults)
	}
	for i, d := range sample.Devices {
		o := told.Devices[i]
		if d.UUID != o.UUID || normalBusID(d.BusID) != o.BusID || d.TotalMiB != o.TotalMiB || d.Minor < 0 || d.NUMA < 0 || d.CPUs == "" || d.Condition.Recovery != o.Condition.Recovery {
			t.Errorf("%+v\nnvidia-smi: %+v", d, o)
		}
	}
}
