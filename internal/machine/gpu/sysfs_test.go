package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeSysfs is a tree as the kernel shows it: devices by their path below
// /sys/devices, each with a NUMA node.
func fakeSysfs(t *testing.T, nodes int, devices map[string]int) *sysfs {
	t.Helper()
	root := t.TempDir()
	file := func(text string, path ...string) {
		name := filepath.Join(append([]string{root}, path...)...)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for node := range nodes {
		file("", "sys/devices/system/node", fmt.Sprint("node", node), "cpulist")
	}
	if err := os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, node := range devices {
		id := filepath.Base(path)
		file(fmt.Sprintln(node), "sys/devices", path, "numa_node")
		file(fmt.Sprintf("%d-%d\n", 8*max(node, 0), 8*max(node, 0)+7), "sys/devices", path, "local_cpulist")
		if err := os.Symlink(filepath.Join("../../../devices", path), filepath.Join(root, "sys/bus/pci/devices", id)); err != nil {
			t.Fatal(err)
		}
	}
	file("Model: \t\t NVIDIA H200\nDevice Minor: \t 5\n", "proc/driver/nvidia/gpus/0000:07:00.0/information")
	return newSysfs(root)
}

func TestSysfsTellsWhereCardsAre(t *testing.T) {
	s := fakeSysfs(t, 2, map[string]int{
		"pci0000:00/0000:00:01.0/0000:05:00.0/0000:06:08.0/0000:07:00.0": 0,
		"pci0000:00/0000:00:01.0/0000:05:00.0/0000:06:10.0/0000:08:00.0": 0,
		"pci0000:00/0000:00:03.0/0000:0a:00.0":                           0,
		"pci0000:40/0000:40:01.0/0000:41:00.0":                           0,
		"pci0000:80/0000:80:01.0/0000:81:00.0":                           1,
		"pci0000:c0/0000:c0:01.0/0000:c1:00.0":                           -1,
	})
	var devices []Device
	for i, id := range []string{"00000000:07:00.0", "00000000:08:00.0", "0000:0A:00.0", "00000000:41:00.0", "00000000:81:00.0", "00000000:C1:00.0", "00000000:FF:00.0", ""} {
		d := Unknown(10+i, fmt.Sprint("GPU-", i), "Card")
		d.BusID = id
		devices = append(devices, d)
	}
	for range 2 { // the second time from memory
		s.fill(devices)
		numa, cpus := []int{}, []string{}
		for _, d := range devices {
			numa, cpus = append(numa, d.NUMA), append(cpus, d.CPUs)
		}
		if diff := cmp.Diff([]int{0, 0, 0, 0, 1, -1, -1, -1}, numa); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"0-7", "0-7", "0-7", "0-7", "8-15", "", "", ""}, cpus); diff != "" {
			t.Error(diff)
		}
		want := map[int]int{11: nearSwitch, 12: nearHost, 13: nearNode, 14: nearSystem}
		if diff := cmp.Diff(want, devices[0].Near); diff != "" || devices[5].Near != nil || devices[7].Near != nil {
			t.Error(diff, devices[5].Near, devices[7].Near)
		}
		if devices[0].Minor != 5 || devices[1].Minor != -1 {
			t.Errorf("minors %d, %d", devices[0].Minor, devices[1].Minor)
		}
	}
}

func TestSysfsOfAMachineWithOneNode(t *testing.T) {
	s := fakeSysfs(t, 1, map[string]int{"pci0000:00/0000:00:06.0": -1, "pci0000:00/0000:00:07.0": -1})
	a, b := Unknown(0, "GPU-a", "Card"), Unknown(1, "GPU-b", "Card")
	a.BusID, b.BusID, b.Minor = "00000000:00:06.0", "00000000:00:07.0", 3
	devices := []Device{a, b}
	s.fill(devices)
	if d := devices[1]; d.NUMA != 0 || d.CPUs != "0-7" || d.Near[0] != nearHost || d.Minor != 3 {
		t.Errorf("%+v", d)
	}
}

func TestSysfsKeepsWhatTheDriverSaid(t *testing.T) {
	s := fakeSysfs(t, 2, nil)
	a, b := Unknown(0, "GPU-a", "Card"), Unknown(1, "GPU-b", "Card")
	a.BusID, a.NUMA, b.BusID, b.NUMA = "0000:07:00.0", 1, "0000:08:00.0", 1
	devices := []Device{a, b}
	s.fill(devices)
	if d := devices[0]; d.NUMA != 1 || d.Near[1] != nearNode {
		t.Errorf("%+v", d)
	}
}

func TestSysfsAsksTheDriverOnlyForWhatNobodyTold(t *testing.T) {
	s := fakeSysfs(t, 1, map[string]int{"pci0000:00/0000:07:00.0": 0})
	name := filepath.Join(s.root, "proc/driver/nvidia/gpus/0000:07:00.0/information")
	told := func(minor string) {
		t.Helper()
		if err := os.WriteFile(name, []byte("Device Minor: \t "+minor+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	minor := func(said int) int {
		d := Unknown(0, "GPU-a", "Card")
		d.BusID, d.Minor = "00000000:07:00.0", said
		devices := []Device{d}
		s.fill(devices)
		return devices[0].Minor
	}
	if got := minor(3); got != 3 || len(s.minors) != 0 {
		t.Errorf("%d, and read %v", got, s.minors)
	}
	if got := minor(-1); got != 5 {
		t.Error(got)
	}
	told("6")
	if got := minor(-1); got != 5 {
		t.Errorf("read again: %d", got)
	}
	s.forgetMinors()
	if got := minor(-1); got != 6 {
		t.Errorf("a driver that counted anew: %d", got)
	}
}

func TestSysfsPartsOfOneCardAreNotNearOneAnother(t *testing.T) {
	s := fakeSysfs(t, 1, map[string]int{"pci0000:00/0000:00:06.0": 0})
	a, b := partOf(0, 0, "MIG-a", "0000:00:06.0"), partOf(0, 1, "MIG-b", "0000:00:06.0")
	devices := []Device{a, b}
	s.fill(devices)
	if devices[0].Near != nil || devices[0].NUMA != 0 {
		t.Errorf("%+v", devices[0])
	}
}

func TestBusIDs(t *testing.T) {
	for id, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00.0", "0000:3b:00": "0000:3b:00.0", "3b:00.0": "0000:3b:00.0", "00010000:01:1f.7": "10000:01:1f.7",
		"": "", "N/A": "", "0000:3b": "", "0000:3b:20.0": "", "0000:3b:00.8": "", "0000:100:00.0": "", "a:b:c:d": "", "::": "",
	} {
		if got := normalBusID(id); got != want {
			t.Errorf("%q is %q, want %q", id, got, want)
		}
	}
}
