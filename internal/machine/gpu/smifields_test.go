package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/tests/testkit"
)

const (
	smiHeader = "index|uuid|name|memory.total|memory.reserved|memory.used|utilization.gpu|pci.bus_id|temperature.gpu|power.draw|power.limit|clocks.sm|clocks.mem|" +
		"ecc.errors.uncorrected.volatile.total|ecc.errors.corrected.volatile.total|remapped_rows.correctable|remapped_rows.uncorrectable|" +
		"remapped_rows.pending|remapped_rows.failure|retired_pages.pending|gpu_recovery_action|mig.mode.current|driver_version\n"
	smiH200  = "0|GPU-a|NVIDIA H200|143771|616|0|7|00000000:00:06.0|34|110.58|700.00|465|3201|0|3|1|2|No|No|[N/A]|None|Disabled|580.159.04\n"
	smiSick  = "1|GPU-b|NVIDIA H200|143771|616|0|0|00000000:00:07.0|[N/A]|[N/A]|[N/A]|[N/A]|[N/A]|2|[N/A]|[N/A]|[N/A]|Yes|Yes|No|Drain and Reset|[N/A]|580.159.04\n"
	smiParts = "2|GPU-c|NVIDIA H200|143771|616|500|[N/A]|00000000:00:08.0|34|110|700|465|3201|0|0|0|0|No|No|[N/A]|None|Enabled|580.159.04\n"
	smiLost  = "3|GPU-d|NVIDIA H200|[GPU is lost]|[GPU is lost]|[GPU is lost]|[GPU is lost]|00000000:00:09.0|||||||||||||||580.159.04\n"
	smiOdd   = "4|GPU-e|NVIDIA H200|[Unknown Error]|0|[Unknown Error]|0|00000000:00:0A.0|||||||||||||||580.159.04\n"
	smiMute  = "5|GPU-f|NVIDIA H200|[N/A]|0|0|0|00000000:00:0B.0|||||||||||||||580.159.04\n"
)

// smiReport is the report on these cards, which have no processes.
func smiReport(busIDs ...string) string {
	var report strings.Builder
	for _, id := range busIDs {
		report.WriteString("GPU " + id + "\n    Processes : None\n")
	}
	return report.String()
}

func TestSMIReadsAllThereIsToKnow(t *testing.T) {
	dir := fakeSMI(t, "")
	testkit.Write(t, filepath.Join(dir, "table"), smiHeader+smiH200+smiSick)
	testkit.Write(t, filepath.Join(dir, "report"), smiReport("00000000:00:06.0", "00000000:00:07.0"))
	s := openSMI(t)
	got := takeSample(t, s)
	a, b := Unknown(0, "GPU-a", "NVIDIA H200"), Unknown(1, "GPU-b", "NVIDIA H200")
	a.TotalMiB, a.ReservedMiB, a.UtilPct, a.BusID, a.ProcessesKnown = 143771, 616, 7, "0000:00:06.0", true
	a.TempC, a.PowerW, a.PowerLimitW, a.SMClockMHz, a.MemClockMHz = 34, 110.58, 700, 465, 3201
	a.Condition = Condition{UncorrectedECC: 0, CorrectedECC: 3, RemappedRows: 3, Recovery: RecoveryNone}
	b.TotalMiB, b.ReservedMiB, b.UtilPct, b.BusID, b.ProcessesKnown = 143771, 616, 0, "0000:00:07.0", true
	b.Condition = Condition{UncorrectedECC: 2, CorrectedECC: -1, RemappedRows: -1, RowsPending: true, RowsFailed: true, Recovery: RecoveryDrainAndReset}
	if diff := cmp.Diff([]Device{a, b}, got.Devices); diff != "" || len(got.Problems)+len(got.Faults) != 0 {
		t.Error(diff, got.Problems, got.Faults)
	}
	if s.Facts().Driver != "580.159.04" {
		t.Errorf("%+v", s.Facts())
	}
}

func TestSMICardsThatCannotBeUsedAreFaults(t *testing.T) {
	dir := fakeSMI(t, "")
	testkit.Write(t, filepath.Join(dir, "table"), smiHeader+smiH200+smiParts+smiLost+smiOdd+smiMute)
	testkit.Write(t, filepath.Join(dir, "report"), smiReport("00000000:00:06.0", "00000000:00:08.0"))
	s := openSMI(t)
	if err := os.Remove(filepath.Join(dir, "calls")); err != nil {
		t.Fatal(err)
	}
	got := takeSample(t, s)
	if len(got.Devices) != 1 || got.Devices[0].UUID != "GPU-a" || !got.Devices[0].ProcessesKnown {
		t.Errorf("%+v", got.Devices)
	}
	kinds := []string{}
	for _, f := range got.Faults {
		kinds = append(kinds, f.UUID+" "+f.Kind)
	}
	if want := []string{"GPU-c unreadable", "GPU-d lost", "GPU-e lost", "GPU-f unreadable"}; !slices.Equal(kinds, want) {
		t.Errorf("faults %q", kinds)
	}
	if got.Faults[0].Text != "is partitioned (MIG), and using its parts needs berth-gpu" || len(got.Problems) != 4 {
		t.Errorf("%+v %q", got.Faults[0], got.Problems)
	}
	if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || strings.Count(string(calls), "\n") != 2 {
		t.Errorf("calls: %s", calls)
	}
}

func TestSMIKnowsACardAgainThatIsNamedAsLost(t *testing.T) {
	dir := fakeSMI(t, "")
	testkit.Write(t, filepath.Join(dir, "table"), smiHeader+smiH200+smiSick)
	testkit.Write(t, filepath.Join(dir, "report"), smiReport("00000000:00:06.0", "00000000:00:07.0"))
	s := openSMI(t)
	testkit.Write(t, filepath.Join(dir, "table"), smiHeader+smiH200+"Unable to determine the device handle for GPU1: 0000:00:07.0: GPU is lost.  Reboot the system to recover this GPU\n")
	got := takeSample(t, s)
	if len(got.Devices) != 1 || len(got.Faults) != 1 || got.Faults[0].UUID != "GPU-b" || got.Faults[0].Kind != FaultLost || got.Faults[0].Index != 1 {
		t.Errorf("%+v", got)
	}
}

func TestSMIDoesWithoutEachFieldOfANewerDriver(t *testing.T) {
	lacking := []string{"gpu_recovery_action", "remapped_rows.pending", "memory.reserved", "mig.mode.current", "retired_pages.pending"}
	header, row := strings.Split(strings.TrimSpace(smiHeader), "|"), strings.Split(strings.TrimSpace(smiH200), "|")
	var fields, values []string
	for i, field := range header {
		if !slices.Contains(lacking, field) {
			fields, values = append(fields, field), append(values, row[i])
		}
	}
	dir := fakeSMI(t, "")
	testkit.Write(t, filepath.Join(dir, "table"), strings.Join(fields, "|")+"\n"+strings.Join(values, "|")+"\n")
	testkit.Write(t, filepath.Join(dir, "report"), smiReport("00000000:00:06.0"))
	s := openSMI(t)
	d := takeSample(t, s).Devices[0]
	if d.ReservedMiB != 0 || d.Condition.Recovery != "" || d.TempC != 34 || d.Condition.CorrectedECC != 3 || d.BusID == "" || d.TotalMiB != 143771 {
		t.Errorf("%+v", d)
	}
	if err := os.Remove(filepath.Join(dir, "calls")); err != nil {
		t.Fatal(err)
	}
	takeSample(t, s)
	if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || strings.Count(string(calls), "\n") != 2 {
		t.Errorf("it was found out more than once: %s", calls)
	}
}

func TestRecoveryWords(t *testing.T) {
	for text, want := range map[string]string{
		"None": RecoveryNone, "Reset": RecoveryReset, "GPU Reset": RecoveryReset, "Reboot": RecoveryReboot, "Node Reboot": RecoveryReboot,
		"Drain P2P": RecoveryDrain, "Drain and Reset": RecoveryDrainAndReset, "Bus Reset": RecoveryBusReset, "Fabric recovery": RecoveryFabric,
		"[N/A]": "", "": "", "ERR!": "",
	} {
		if got := recoveryWord(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
