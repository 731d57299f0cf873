package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/tests/testkit"
)

// fakeSMI puts an nvidia-smi into PATH that answers from the files of a
// directory: "table" (a line of fields and a line for each card, with bars
// between the columns), or "gpu", "gpu-short" (without the reserve), which are
// given whatever was asked; "bus", "report", "apps" and "topo"; "<name>.rc" is
// its exit status. What has no file is refused.
func fakeSMI(t *testing.T, recorded string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if recorded != "" {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "smi", recorded))); err != nil {
			t.Fatal(err)
		}
	}
	script := fmt.Sprintf(`#!/bin/sh
cd %s
echo "$*" >> calls
case "$*" in
--query-gpu=index,*) if [ -e table ]; then answer=answer; awk -f ask -- "${1#--query-gpu=}" > answer; echo $? > answer.rc
	else case "$*" in *memory.reserved*) answer=gpu ;; *) answer=gpu-short ;; esac; fi ;;
*memory.reserved*) answer=gpu ;;
--query-gpu=uuid,pci.bus_id*) answer=bus ;;
--query-gpu=*) answer=gpu-short ;;
"-q -d PIDS") answer=report ;;
--query-compute-apps=*) answer=apps ;;
"topo -m") answer=topo ;;
esac
[ -e hang ] && exec sleep 1000
[ -e stubborn ] && { trap '' TERM; echo up > trapped; while :; do sleep 0.1; done; }
[ -e "$answer" ] || { echo "Invalid combination of input arguments."; exit 2; }
cat "$answer"
[ -e "$answer.rc" ] && exit $(cat "$answer.rc")
exit 0
`, dir)
	if err := os.WriteFile(filepath.Join(dir, "ask"), []byte(smiTable), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// smiTable picks the columns of a table that were asked for, and refuses those
// it does not have as nvidia-smi does.
const smiTable = `
BEGIN {
	FS = "|"
	asked = ARGV[1]
	ARGV[1] = "table"
	n = split(asked, field, ",")
}
NR == 1 {
	for (i = 1; i <= NF; i++) column[$i] = i
	for (i = 1; i <= n; i++) if (!(field[i] in column)) {
		printf "Field \"%s\" is not a valid field to query.\n\n", field[i]
		exit 2
	}
	next
}
NF == 1 { print; next }
{
	for (i = 1; i <= n; i++) printf "%s%s", (i > 1 ? ", " : ""), $column[field[i]]
	print ""
}
`

func openSMI(t *testing.T) *smiSource {
	t.Helper()
	s, err := findSMI()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSMIReadsOneCard(t *testing.T) {
	fakeSMI(t, "h200")
	got := takeSample(t, openSMI(t))
	want := Unknown(0, "GPU-7deb1ca9-5308-e61f-95a0-f9804f2d26d6", "NVIDIA H200")
	want.TotalMiB, want.ReservedMiB, want.UsedMiB, want.UtilPct = 143771, 616, 1551, 0
	want.Processes, want.ProcessesKnown, want.NUMA = []Process{{PID: 426, UsedMiB: 1542}}, true, 0
	if diff := cmp.Diff([]Device{want}, got.Devices); diff != "" || len(got.Problems) != 0 {
		t.Error(diff, got.Problems)
	}
}

func TestSMIReadsEightCards(t *testing.T) {
	for _, from := range []string{"report", "apps"} {
		t.Run("processes from "+from, func(t *testing.T) {
			dir := fakeSMI(t, "eight")
			if from == "apps" {
				testkit.Write(t, filepath.Join(dir, "report"), "Unknown option\n")
			}
			d := takeSample(t, openSMI(t)).Devices
			if len(d) != 8 {
				t.Fatalf("%d cards", len(d))
			}
			for i, c := range d {
				if c.Index != i || !c.ProcessesKnown || c.TotalMiB != 81920 || c.NUMA != []int{3, 3, 1, 1, 7, 7, 5, 5}[i] {
					t.Errorf("%+v", c)
				}
				if len(c.Links) != 7 || c.Links[(i+1)%8] != 12 {
					t.Errorf("gpu%d links %v", i, c.Links)
				}
			}
			if want := []Process{{PID: 20300, UsedMiB: 20300}, {PID: 20301, UsedMiB: 20304}}; !cmp.Equal(d[2].Processes, want) {
				t.Errorf("gpu2: %+v", d[2].Processes)
			}
			if want := []Process{{PID: 3011, UsedMiB: -1}}; !cmp.Equal(d[5].Processes, want) {
				t.Errorf("gpu5: %+v", d[5].Processes)
			}
			if d[6].UtilPct != 88 || d[6].Processes[0] != (Process{PID: 20999, UsedMiB: 79897}) {
				t.Errorf("gpu6: %+v", d[6])
			}
		})
	}
}

func TestSMICostsTwoCallsPerSample(t *testing.T) {
	// seeds: G57
	for _, recorded := range []string{"eight", "old"} {
		dir := fakeSMI(t, recorded)
		s := openSMI(t)
		if err := os.Remove(filepath.Join(dir, "calls")); err != nil {
			t.Fatal(err)
		}
		takeSample(t, s)
		calls, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil || strings.Count(string(calls), "\n") != 2 {
			t.Errorf("%s: %v\n%s", recorded, err, calls)
		}
	}
}

func TestSMITellsADesktopFromAJob(t *testing.T) {
	fakeSMI(t, "desktop")
	d := takeSample(t, openSMI(t)).Devices[0]
	if want := []Process{process(1712, 412, true), process(1898, 187, true)}; !cmp.Equal(d.Processes, want) {
		t.Errorf("%+v", d.Processes)
	}
	use := NewMeter(0.1).Observe(Sample{Devices: []Device{d}}, nil, external)
	if want := []CardUse{{Index: 0, ForeignMiB: 454 + 206, IdleForeignMiB: 43}}; !cmp.Equal(use, want) {
		t.Errorf("%+v", use)
	}
}

func TestSMIReadsPartitionedCards(t *testing.T) {
	dir := fakeSMI(t, "mig")
	d := takeSample(t, openSMI(t)).Devices
	if d[0].UtilPct != -1 || !d[0].ProcessesKnown || len(d[0].Processes) != 2 || !d[1].ProcessesKnown {
		t.Errorf("%+v", d)
	}
	if err := os.Remove(filepath.Join(dir, "report")); err != nil {
		t.Fatal(err)
	}
	d = takeSample(t, openSMI(t)).Devices
	if d[0].ProcessesKnown || !d[1].ProcessesKnown {
		t.Errorf("a part's name was taken for a card's: %+v", d)
	}
}

func TestSMILeavesOutCardsItCannotRead(t *testing.T) {
	fakeSMI(t, "sick")
	got := takeSample(t, openSMI(t))
	want := Unknown(0, "GPU-b0", "Tesla V100, with a comma")
	want.TotalMiB, want.UsedMiB, want.ProcessesKnown = 32768, 11, true
	if diff := cmp.Diff([]Device{want}, got.Devices); diff != "" {
		t.Error(diff)
	}
	problems := strings.Join(got.Problems, "\n")
	for _, part := range []string{"gpu1", "gpu2", "infoROM", "exit status 14"} {
		if !strings.Contains(problems, part) {
			t.Errorf("%q is not told: %s", part, problems)
		}
	}
}

func TestSMIDoesWithoutTheReserveOnOldDrivers(t *testing.T) {
	fakeSMI(t, "old")
	d := takeSample(t, openSMI(t)).Devices
	if len(d) != 1 || d[0].TotalMiB != 11441 || d[0].UsedMiB != 3 || d[0].ReservedMiB != 0 || len(d[0].Processes) != 1 {
		t.Errorf("%+v", d)
	}
}

func TestSMISaysWhyThereIsNoGPU(t *testing.T) {
	for recorded, reason := range map[string]string{
		"failed":  "couldn't communicate with the NVIDIA driver",
		"none":    "No devices were found",
		"garbage": "lorem",
		"":        "Invalid combination",
	} {
		fakeSMI(t, recorded)
		if _, err := findSMI(); !errors.Is(err, errNoDriver) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v", recorded, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := findSMI(); !errors.Is(err, errNoDriver) || !strings.Contains(err.Error(), "not in PATH") {
		t.Errorf("without nvidia-smi: %v", err)
	}
}

func TestSMILosesProcessesButNotMemory(t *testing.T) {
	dir := fakeSMI(t, "h200")
	s := openSMI(t)
	testkit.Write(t, filepath.Join(dir, "report.rc"), "255")
	got := takeSample(t, s)
	if d := got.Devices[0]; d.ProcessesKnown || d.UsedMiB != 1551 || len(got.Problems) != 1 {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(filepath.Join(dir, "report.rc")); err != nil {
		t.Fatal(err)
	}
	if d := takeSample(t, s).Devices[0]; !d.ProcessesKnown {
		t.Error("processes stayed lost")
	}
}

func TestSMIEndsACallThatHangs(t *testing.T) {
	dir := fakeSMI(t, "h200")
	s := openSMI(t)
	testkit.Write(t, filepath.Join(dir, "hang"), "")
	s.command.deadline = 100 * time.Millisecond
	if _, err := s.Sample(t.Context()); !errors.Is(err, errStuck) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the hung call to end", func() bool { return !s.command.busy() })
	s.command.deadline = smiDeadline
	if err := os.Remove(filepath.Join(dir, "hang")); err != nil {
		t.Fatal(err)
	}
	takeSample(t, s)
}

func TestSMIStartsNothingBesideAStuckCall(t *testing.T) {
	dir := fakeSMI(t, "h200")
	s := openSMI(t)
	testkit.Write(t, filepath.Join(dir, "stubborn"), "")
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := s.Sample(ctx)
		first <- err
	}()
	testkit.Eventually(t, "the call to ignore TERM", func() bool { _, err := os.Stat(filepath.Join(dir, "trapped")); return err == nil })
	cancel()
	if err := <-first; !errors.Is(err, errStuck) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(dir, "calls"))
	if _, err := s.Sample(t.Context()); !errors.Is(err, errStuck) || !strings.Contains(err.Error(), "has been hanging since") {
		t.Errorf("beside a stuck call: %v", err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, "calls")); string(after) != string(before) {
		t.Errorf("another call was started: %s", after)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the stuck call to be killed", func() bool { return !s.command.busy() })
}

func (c *smiCommand) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid != 0
}

// TestSMIReadsTheCardsOfThisMachine runs where there are some.
func TestSMIReadsTheCardsOfThisMachine(t *testing.T) {
	s, err := findSMI()
	if err != nil {
		t.Skip(err)
	}
	sample := takeSample(t, s)
	t.Logf("%+v", sample)
	for _, d := range sample.Devices {
		if !strings.HasPrefix(d.UUID, "GPU-") || d.UsedMiB+d.ReservedMiB > d.TotalMiB+2 || !d.ProcessesKnown {
			t.Errorf("%+v", d)
		}
	}
	if len(sample.Problems) != 0 || s.noReport {
		t.Errorf("problems %q, report unread %v", sample.Problems, s.noReport)
	}
}

func FuzzParse(f *testing.F) {
	recorded, err := filepath.Glob("testdata/smi/*/*")
	if err != nil || len(recorded) == 0 {
		f.Fatal("no recorded output", err)
	}
	for _, path := range recorded {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, fields := range [][]string{smiBase, slices.Concat(smiBase, smiMore)} {
			rows, _ := parseRows(out, fields)
			indices := map[int]bool{}
			for _, d := range rows.devices {
				if d.TotalMiB <= 0 || d.UsedMiB < 0 || d.ReservedMiB < 0 || d.UtilPct < -1 || d.UtilPct > 100 || indices[d.Index] {
					t.Errorf("unsound card %+v", d)
				}
				indices[d.Index] = true
			}
			if lists, err := parseComputeApps(out, rows.devices); err == nil {
				checkLists(t, lists)
			}
		}
		if lists, err := parseReport(out); err == nil {
			checkLists(t, lists)
		}
		parseBusIDs(out)
		parseTopology(out)
	})
}

func checkLists(t *testing.T, lists map[string]processList) {
	for card, list := range lists {
		for _, p := range list.processes {
			if p.PID <= 0 || p.UsedMiB < -1 {
				t.Errorf("%s: unsound process %+v", card, p)
			}
		}
	}
}
