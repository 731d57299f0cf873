package site

import (
	"os"
	"path/filepath"
	"testing"
)

const (
	unifiedMount = "30 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
	legacyMounts = "31 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"32 1 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)

func TestHostWithinCgroups(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		cpus  int
		mem   int64
	}{
		{"no cgroups", nil, 8, 64000},
		{"version 2 without limits", map[string]string{
			"/proc/self/mountinfo": unifiedMount, "/proc/4711/cgroup": "0::/a\n",
			"/sys/fs/cgroup/a/memory.max": "max\n", "/sys/fs/cgroup/a/cpu.max": "max 100000\n",
		}, 8, 64000},
		{"the limits of this cgroup and of one above", map[string]string{
			"/proc/self/mountinfo": unifiedMount, "/proc/4711/cgroup": "0::/a/b\n",
			"/sys/fs/cgroup/a/memory.max": "1073741824\n", "/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/b/cpu.max": "250000 100000\n",
		}, 3, 1024},
		{"a container's own tree", map[string]string{
			"/proc/self/mountinfo": unifiedMount, "/proc/4711/cgroup": "0::/\n",
			"/sys/fs/cgroup/memory.max": "2147483648\n", "/sys/fs/cgroup/cpu.max": "50000 100000\n",
		}, 1, 2048},
		{"version 1", map[string]string{
			"/proc/self/mountinfo": legacyMounts, "/proc/4711/cgroup": "4:memory:/x\n3:cpuacct,cpu:/y\n1:name=systemd:/z\n",
			"/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1073741824\n",
			"/sys/fs/cgroup/cpu,cpuacct/y/cpu.cfs_quota_us": "400000\n", "/sys/fs/cgroup/cpu,cpuacct/y/cpu.cfs_period_us": "100000\n",
		}, 4, 1024},
		{"version 1 without limits", map[string]string{
			"/proc/self/mountinfo": legacyMounts, "/proc/4711/cgroup": "4:memory:/x\n3:cpu,cpuacct:/y\n",
			"/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
			"/sys/fs/cgroup/cpu,cpuacct/y/cpu.cfs_quota_us": "-1\n", "/sys/fs/cgroup/cpu,cpuacct/y/cpu.cfs_period_us": "100000\n",
		}, 8, 64000},
		{"a mount of a part of the tree", map[string]string{
			"/proc/self/mountinfo": "31 1 0:28 /box\\040one /cg rw - cgroup cgroup rw,memory\n",
			"/proc/4711/cgroup":    "4:memory:/box one/in\n", "/cg/in/memory.limit_in_bytes": "1073741824\n",
		}, 8, 1024},
		{"a mount of another part of the tree", map[string]string{
			"/proc/self/mountinfo": "31 1 0:28 /box /cg rw - cgroup cgroup rw,memory\n",
			"/proc/4711/cgroup":    "4:memory:/boxer\n", "/cg/er/memory.limit_in_bytes": "1073741824\n",
		}, 8, 64000},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFake(t)
			for name, text := range test.files {
				f.file(name, text)
			}
			if cpus, mem := withinLimits(f.machine, 8, 64000); cpus != test.cpus || mem != test.mem {
				t.Errorf("%d cores and %d MiB, want %d and %d", cpus, mem, test.cpus, test.mem)
			}
		})
	}
	if cpus, mem := Host(); cpus < 1 || mem < 1 {
		t.Errorf("this machine: %d cores, %d MiB", cpus, mem)
	}
}

func TestFreeMemoryWithinCgroups(t *testing.T) {
	const gib = "1073741824\n"
	tests := []struct {
		name  string
		files map[string]string
		jobs  string
		want  int64
	}{
		{"no cgroups", nil, "", 8192},
		{"version 2 without limits", map[string]string{
			"/proc/self/mountinfo": unifiedMount, "/proc/4711/cgroup": "0::/a\n",
			"/sys/fs/cgroup/a/memory.max": "max\n", "/sys/fs/cgroup/a/memory.current": gib,
		}, "", 8192},
		{"a limit above the daemon, and what counts towards it", map[string]string{
			"/proc/self/mountinfo": unifiedMount, "/proc/4711/cgroup": "0::/a/b\n",
			"/sys/fs/cgroup/a/memory.max": "4294967296\n", "/sys/fs/cgroup/a/memory.current": "3221225472\n",
			"/sys/fs/cgroup/a/memory.stat": "anon 5\nfile 9\ninactive_file 1073741824\n",
		}, "", 2048},
		{"a limit above the jobs only", map[string]string{
			"/proc/self/mountinfo": unifiedMount, "/proc/4711/cgroup": "0::/service\n",
			"/sys/fs/cgroup/jobs.scope/memory.max": gib,
		}, "/sys/fs/cgroup/jobs.scope/berth-1", 1024},
		{"a limit beside them", map[string]string{
			"/proc/self/mountinfo": unifiedMount, "/proc/4711/cgroup": "0::/service\n",
			"/sys/fs/cgroup/other/memory.max": gib,
		}, "/sys/fs/cgroup/jobs.scope/berth-1", 8192},
		{"full", map[string]string{
			"/proc/self/mountinfo": unifiedMount, "/proc/4711/cgroup": "0::/a\n",
			"/sys/fs/cgroup/a/memory.max": gib, "/sys/fs/cgroup/a/memory.current": "2147483648\n",
		}, "", 0},
		{"version 1", map[string]string{
			"/proc/self/mountinfo": legacyMounts, "/proc/4711/cgroup": "4:memory:/x/y\n3:cpu,cpuacct:/y\n",
			"/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4294967296\n", "/sys/fs/cgroup/memory/x/memory.usage_in_bytes": "3221225472\n",
			"/sys/fs/cgroup/memory/x/memory.stat":             "inactive_file 1\ntotal_inactive_file 1073741824\n",
			"/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes": "9223372036854771712\n",
		}, "", 2048},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFake(t).file("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
			for name, text := range test.files {
				f.file(name, text)
			}
			if got := freeMiB(f.machine, test.jobs); got != test.want {
				t.Errorf("%d MiB, want %d", got, test.want)
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	passwd := "ann:x:1000:1000::/home/ann:/bin/sh\n"
	tests := []struct {
		name                  string
		env                   map[string]string
		passwd                string
		state, socket, config string
	}{
		{"where the user says", map[string]string{"XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}, "", "/s/berth", "/s/berth/berth.sock", "/c/berth/config.toml"},
		{"a relative path says nothing", map[string]string{"XDG_STATE_HOME": "s", "HOME": "/h"}, "", "/h/.local/state/berth", "/h/.local/state/berth/berth.sock", "/h/.config/berth/config.toml"},
		{"at home", map[string]string{"HOME": "/h"}, "", "/h/.local/state/berth", "/h/.local/state/berth/berth.sock", "/h/.config/berth/config.toml"},
		{"at the home of the user database", nil, passwd, "/home/ann/.local/state/berth", "/home/ann/.local/state/berth/berth.sock", "/home/ann/.config/berth/config.toml"},
		{"nowhere", nil, "bob:x:1:1::/:/bin/sh\n", "", "", ""},
	}
	for _, test := range tests {
		f := newFake(t).file("/etc/passwd", test.passwd)
		places, err := privatePlaces(f.machine, func(name string) string { return test.env[name] })
		want := Places{StateDir: test.state, Socket: test.socket, Config: test.config}
		if places != want || (err == nil) != (test.state != "") {
			t.Errorf("%s: %+v, %v", test.name, places, err)
		}
	}
	shared := SharedPlaces()
	if !shared.Shared || shared.StateDir != "/var/lib/berth" || shared.Socket != "/run/berth/berth.sock" || shared.Config != "/etc/berth/config.toml" {
		t.Errorf("%+v", shared)
	}
	if _, err := PrivatePlaces(os.Getenv); err != nil {
		t.Logf("this user has no place: %v", err)
	}
	if !filepath.IsAbs(SelfDir()) {
		t.Errorf("this program is in %q", SelfDir())
	}
}

// TestProgramsOfTestsHaveNoMachine: a daemon for all users is not looked for where the
// machine has it.
func TestProgramsOfTestsHaveNoMachine(t *testing.T) {
	elsewhere = t.TempDir()
	defer func() { elsewhere = "" }()
	if p := SharedPlaces(); p.Socket != elsewhere+"/run/berth/berth.sock" || p.Config != elsewhere+"/etc/berth/config.toml" || p.StateDir != elsewhere+"/var/lib/berth" {
		t.Errorf("its places are %+v", p)
	}
	if SystemService() {
		t.Error("a service is installed in an empty directory")
	}
	units := filepath.Join(elsewhere, "etc/systemd/system")
	if err := os.MkdirAll(units, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(units, "berth.socket"), []byte("[Socket]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !SystemService() {
		t.Error("the service there is not found")
	}
}
