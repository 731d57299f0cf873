package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

func TestKernelRecord(t *testing.T) {
	for name, test := range map[string]struct {
		line string
		want Xid
	}{
		"an Xid": {"4,1766,13626051556,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python, Ch 00000008, intr 10000000.",
			Xid{BusID: "0000:3b:00", Code: 31, Text: "pid=4242, name=python, Ch 00000008, intr 10000000."}},
		"a card off the bus": {"3,9,1,-;NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			Xid{BusID: "0000:3b:00", Code: 79, Text: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."}},
		"an old driver's Xid":     {"4,9,1,-;NVRM: Xid (0000:03:00): 13, 0001 00000000", Xid{BusID: "0000:03:00", Code: 13, Text: "0001 00000000"}},
		"an Xid with a function":  {"4,9,1,-;NVRM: Xid (PCI:0000:3b:00.0): 48, DBE", Xid{BusID: "0000:3b:00", Code: 48, Text: "DBE"}},
		"an Xid with no text":     {"4,9,1,-;NVRM: Xid (PCI:0000:3b:00): 62", Xid{BusID: "0000:3b:00", Code: 62}},
		"off the bus, no number":  {"4,9,1,-;NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", Xid{BusID: "0000:3b:00", Text: "GPU has fallen off the bus."}},
		"off the bus, older":      {"4,9,1,-;NVRM: GPU at 0000:3b:00.0 has fallen off the bus.", Xid{BusID: "0000:3b:00", Text: "GPU has fallen off the bus."}},
		"off the bus, in the way": {"4,9,1,-;NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330) has fallen off the bus and is not responding.", Xid{BusID: "0000:3b:00", Text: "GPU has fallen off the bus and is not responding."}},
		"with more flags":         {"4,9,1,c,caller=T1;NVRM: Xid (PCI:0000:3b:00): 8, x", Xid{BusID: "0000:3b:00", Code: 8, Text: "x"}},
		"written by a program":    {"12,9,1,-;NVRM: Xid (PCI:0000:3b:00): 79, forged", Xid{}},
		"another message":         {"4,9,1,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04", Xid{}},
		"not the driver's":        {"4,9,1,-;usb 1-1: Xid (PCI:0000:3b:00): 79", Xid{}},
		"a user's word, quoted":   {"3,9,1,-;tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:3b:00): 79, x'", Xid{}},
		"another word, quoted":    {"4,9,1,-;process '/tmp/NVRM: GPU 0000:3b:00.0 has fallen off the bus/x' started with executable stack", Xid{}},
		"no bus":                  {"4,9,1,-;NVRM: Xid (PCI:0000:3b:40): 79, x", Xid{}},
		"no head":                 {"NVRM: Xid (PCI:0000:3b:00): 79, x", Xid{}},
		"no time":                 {"4,9,soon,-;NVRM: Xid (PCI:0000:3b:00): 79, x", Xid{}},
		"a time without end":      {"4,9,9223372036854775807,-;NVRM: Xid (PCI:0000:3b:00): 79, x", Xid{}},
		"a continuation":          {" SUBSYSTEM=pci", Xid{}},
		"nothing":                 {"", Xid{}},
	} {
		t.Run(name, func(t *testing.T) {
			_, got, found := parseKernelRecord(test.line)
			if diff := cmp.Diff(test.want, got); diff != "" || found != (test.want.BusID != "") {
				t.Error(found, diff)
			}
		})
	}
}

// fakeKernelLog is a pipe that takes records.
func fakeKernelLog(t *testing.T) (path string, say func(ago time.Duration, text string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close() })
	return path, func(ago time.Duration, text string) {
		t.Helper()
		if _, err := fmt.Fprintf(pipe, "4,1,%d,-;%s\n", (sinceBoot() - ago).Microseconds(), text); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKernelLogIsFollowed(t *testing.T) {
	path, say := fakeKernelLog(t)
	say(-time.Second, "NVRM: Xid (PCI:0000:01:00): 13, first")
	k, err := openKernelLog(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []Xid
	testkit.Eventually(t, "the first", func() bool { got = append(got, k.drain()...); return len(got) == 1 })
	said := time.Now()
	say(0, "something else")
	say(0, "NVRM: Xid (PCI:0000:02:00): 79, second")
	testkit.Eventually(t, "the second", func() bool { got = append(got, k.drain()...); return len(got) == 2 })
	if at := got[1].At; got[1].Code != 79 || at.Before(said.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("%+v", got[1])
	}
	// Nobody sets the clock in the log right: it may be off by any amount.
	testkit.Eventually(t, "all to be read that was there", k.live.Load)
	said = time.Now()
	say(2*kernelLogBack, "NVRM: Xid (PCI:0000:02:00): 62, behind")
	say(-time.Hour, "NVRM: Xid (PCI:0000:02:00): 62, ahead")
	testkit.Eventually(t, "what has another clock", func() bool { got = append(got, k.drain()...); return len(got) == 4 })
	for _, x := range got[2:] {
		if x.At.Before(said) || x.At.After(time.Now()) {
			t.Errorf("%s after it was said: %+v", x.At.Sub(said), x)
		}
	}
	for range 2 * maxXids {
		say(0, "NVRM: Xid (PCI:0000:02:00): 31, again")
	}
	testkit.Eventually(t, "as many as are kept", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.xids) == maxXids
	})
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

func TestKernelLogPassesOverWhatIsOld(t *testing.T) {
	path, say := fakeKernelLog(t)
	say(kernelLogBack+time.Minute, "NVRM: Xid (PCI:0000:01:00): 79, old")
	say(kernelLogBack/2, "NVRM: Xid (PCI:0000:01:00): 48, young")
	k, err := openKernelLog(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []Xid
	testkit.Eventually(t, "one", func() bool { got = append(got, k.drain()...); return len(got) > 0 })
	if len(got) != 1 || got[0].Code != 48 || time.Since(got[0].At) < kernelLogBack/3 {
		t.Errorf("%+v", got)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// TestKernelLogOfThisMachine runs where it can be read: that it is let go of
// while nothing comes is the point.
func TestKernelLogOfThisMachine(t *testing.T) {
	k, err := openKernelLog(kernelLogPath)
	if err != nil {
		t.Skip(err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

func TestXidsOfTwoSourcesAreToldOnce(t *testing.T) {
	now := time.Now()
	m := newXidMerge()
	whole := listed(0, "GPU-a", "00000000:3B:00.0")
	m.learn([]Device{whole, partOf(1, 0, "MIG-b", "00000000:4B:00.0")})
	nvml := func(code int, after time.Duration) Xid { return Xid{At: now.Add(after), UUID: "GPU-a", Code: code} }
	kernel := func(code int, after time.Duration) Xid {
		return Xid{At: now.Add(after), BusID: "0000:3b:00", Code: code}
	}
	codes := func(xids []Xid) string {
		var words []string
		for _, x := range xids {
			words = append(words, fmt.Sprintf("%d %s %s", x.Code, x.UUID, x.BusID))
		}
		return strings.Join(words, " ")
	}
	for _, step := range []struct {
		nvml, kernel []Xid
		want         string
	}{
		{[]Xid{nvml(79, 0)}, []Xid{kernel(79, time.Second), kernel(31, -time.Second)}, "31 GPU-a 0000:3b:00 79 GPU-a 0000:3b:00"},
		{nil, []Xid{kernel(79, 4*time.Second)}, ""},
		{nil, []Xid{kernel(79, 20*time.Second)}, "79 GPU-a 0000:3b:00"},
		{[]Xid{nvml(79, 21*time.Second), nvml(79, 40*time.Second)}, nil, "79 GPU-a 0000:3b:00"},
		{[]Xid{nvml(48, 0), nvml(48, time.Second)}, nil, "48 GPU-a 0000:3b:00 48 GPU-a 0000:3b:00"},
		{nil, []Xid{{At: now, BusID: "0000:4b:00", Code: 79}}, "79  0000:4b:00"},
	} {
		if got := codes(m.merge(step.nvml, step.kernel)); got != step.want {
			t.Errorf("got %s, want %s", got, step.want)
		}
	}
}

func FuzzKmsg(f *testing.F) {
	for _, line := range []string{
		"4,1766,13626051556,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=42, GPU has fallen off the bus.\n",
		"4,9,1,c;NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n",
		"12,9,1,-;NVRM: Xid (0000:03:00): 13, x",
		"4,9,1,-;NVRM: \\x0a Xid (PCI:0:0:0): 999999, \xff",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, record string) {
		for line := range strings.Lines(record) {
			since, xid, found := parseKernelRecord(line)
			if !found {
				continue
			}
			if since < 0 || xid.Code < 0 || xid.Code > 999999 || len(xid.Text) > 3*maxKernelText || strings.ContainsAny(xid.Text, "\n\x1b") {
				t.Errorf("unsound %v %+v", since, xid)
			}
			if kernelBusID(xid.BusID) != xid.BusID || xid.BusID == "" {
				t.Errorf("unsound place %q", xid.BusID)
			}
		}
	})
}

func TestFactsSayWhenTheKernelLogIsReadNoMore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(path, []byte("4,1,1,-;the end of it\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := openKernelLog(path)
	if err != nil {
		t.Fatal(err)
	}
	c := newCards(nil, newSysfs(t.TempDir()))
	c.kernel = k
	t.Cleanup(func() { _ = c.Close() })
	testkit.Eventually(t, "the end", func() bool { return k.broken() != nil })
	facts := c.Facts()
	if facts.KernelLog || !strings.Contains(strings.Join(facts.Notes, "\n"), "cannot read the kernel log any more (EOF)") {
		t.Errorf("%+v", facts)
	}
}
