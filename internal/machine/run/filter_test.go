package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// testCapsMajor replaces the major of the driver's capabilities with one that
// the kernel leaves to experiments.
const testCapsMajor = 241

// deviceFiles makes device files without a device behind them: opening one says
// "no such device", unless a filter says "not permitted" first.
func deviceFiles(t *testing.T, files map[string][2]uint32) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, number := range files {
		path := filepath.Join(dir, name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(number[0], number[1]))); err != nil {
			t.Skipf("no device file can be made here: %v", err)
		}
		file, err := os.Open(path)
		if err == nil {
			file.Close()
		}
		if os.IsPermission(err) {
			t.Skipf("no device file can be opened here: %v", err)
		}
	}
	return dir
}

// cards are the files a driver makes for two cards.
func cards(t *testing.T) string {
	return deviceFiles(t, map[string][2]uint32{
		"0": {cardMajor, 0}, "1": {cardMajor, 1}, "254": {cardMajor, 254}, "255": {cardMajor, 255},
	})
}

// tryAll is a shell line that prints the names of the files in a directory that
// it is kept from opening.
func tryAll(dir string) string {
	return fmt.Sprintf(`export LC_ALL=C; for f in %s/*; do case $( (: < $f) 2>&1 ) in *"not permitted"*) echo ${f##*/};; esac; done`, dir)
}

// needFilter skips a test where the kernel filters no devices.
func needFilter(t *testing.T) (parent string) {
	t.Helper()
	if parent = detectCgroup(); parent == "" {
		t.Skip("no cgroups here")
	}
	t.Cleanup(func() { keep.RemoveCgroup(parent) })
	if err := probeFilter(parent); err != nil {
		t.Skipf("no device filter here: %v", err)
	}
	return parent
}

func TestWhatAFilterLetsThrough(t *testing.T) {
	dir := filepath.Join(needFilter(t), "filtered")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer keep.RemoveCgroup(dir)
	files := deviceFiles(t, map[string][2]uint32{
		"card0": {cardMajor, 0}, "card1": {cardMajor, 1}, "card7": {cardMajor, 7}, "card253": {cardMajor, 253},
		"modeset": {cardMajor, 254}, "control": {cardMajor, 255}, "later": {cardMajor, 256},
		"cap1": {testCapsMajor, 1}, "cap30": {testCapsMajor, 30}, "cap255": {testCapsMajor, 255},
		"uvm": {testCapsMajor + 1, 0}, "null": {1, 3},
	})
	rows := []struct {
		name    string
		devices keep.Devices
		caps    int
		denied  string
	}{
		{"a job without a card opens none", keep.Devices{}, testCapsMajor, "cap1 cap255 cap30 card0 card1 card253 card7"},
		{"a job opens its own cards", keep.Devices{Minors: []int{7, 0}}, testCapsMajor, "cap1 cap255 cap30 card1 card253"},
		{"a job on a part of a card opens that part", keep.Devices{Minors: []int{1}, Caps: []int{30}}, testCapsMajor, "cap1 cap255 card0 card253 card7"},
		{"a driver without parts has none to keep from", keep.Devices{Minors: []int{0, 1, 7}}, -1, "card253"},
	}
	for _, row := range rows {
		if err := putFilter(dir, &row.devices, row.caps); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if got := strings.Join(strings.Fields(inCgroup(t, dir, tryAll(files))), " "); got != row.denied {
			t.Errorf("%s: it is kept from %q, not %q", row.name, got, row.denied)
		}
		if n := attached(t, dir); n != 1 {
			t.Errorf("%s: %d programs", row.name, n)
		}
	}
	// The driver's tools make files for everybody.
	if said := inCgroup(t, dir, "mknod "+files+"/new c 195 9 && echo made"); said != "made\n" {
		t.Errorf("no file could be made: %q", said)
	}
	if err := putFilter(dir, &keep.Devices{Caps: make([]int, maxDevices+1)}, testCapsMajor); err == nil {
		t.Error("a filter took more devices than it has room for")
	}
	if err := putFilter(dir, &keep.Devices{Caps: make([]int, maxDevices)}, testCapsMajor); err != nil {
		t.Error(err)
	}
}

// inCgroup runs a shell line in a cgroup and returns what it printed.
func inCgroup(t *testing.T, dir, line string) string {
	t.Helper()
	cgroup, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer cgroup.Close()
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return string(out)
}

func TestWhereTheDriversCapabilitiesAre(t *testing.T) {
	t.Parallel()
	const text = `Character devices:
  1 mem
195 nvidia
195 nvidiactl
236 nvidia-caps-imex-channels
237 nvidia-caps
510 nvidia-uvm

Block devices:
259 blkext
238 nvidia-caps
`
	if major := capsMajorIn(text); major != 237 {
		t.Errorf("major %d", major)
	}
	if major := capsMajorIn(strings.ReplaceAll(text, "237 nvidia-caps", "x nvidia-caps")); major != -1 {
		t.Errorf("a driver without has major %d", major)
	}
}
