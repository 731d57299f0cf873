package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

// labServer is a machine on which nothing is wrong.
func labServer(t *testing.T) (*fake, exam) {
	f := withAnn(t)
	f.file("/run/systemd/system/x", "").file("/etc/systemd/system/berth.service", "[Service]\n").
		file("/proc/1/limits", strings.Replace(plainLimits, "65536                65536  ", "unlimited            unlimited", 1)).
		file("/etc/systemd/system.conf", "[Manager]\nDefaultLimitMEMLOCK=infinity\n").
		file("/proc/self/mountinfo", unifiedMount+"23 1 0:22 / /proc rw - proc proc rw\n").
		file("/proc/4711/cgroup", "0::/system.slice/berth.service\n").
		file("/sys/fs/cgroup/system.slice/berth.service/cgroup.controllers", "cpuset cpu io memory pids\n").
		file("/proc/sys/kernel/random/boot_id", "8f2c1f0e-0f0e-4f0e-8f0e-0f0e0f0e0f0e\n").
		file("/proc/self/status", "CapEff:\t000001ffffffffff\n").
		file("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 4194304 1024 -2\n").
		file("/proc/driver/nvidia/version", "NVRM version: 580.65.06\n").
		file("/dev/nvidia0", "").file("/dev/nvidiactl", "").file("/dev/nvidia-uvm", "").
		file("/var/lib/berth/store/x", "").file("/dev/shm/x", "").
		file("/dev/kmsg", "").file("/opt/berth/berth-gpu", "").
		file("/sys/devices/system/node/node0/x", "").file("/sys/devices/system/node/node1/x", "").
		says("nvidia-smi", "580.65.06, NVIDIA H200\n580.65.06, NVIDIA H200\n").says("berth-gpu", wellCards)
	for _, bus := range []string{"0000:1b:00.0", "0000:9b:00.0"} {
		dir := "/sys/bus/pci/devices/" + bus
		f.file(dir+"/vendor", "0x10de\n").file(dir+"/class", "0x030200\n").file(dir+"/numa_node", "0\n").file(dir+"/local_cpulist", "0-31\n")
	}
	script(t, f.path("/usr/bin/getent"), "")
	for _, name := range []string{"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"} {
		chmod(t, f.path(name), 0o666)
	}
	chmod(t, f.path("/dev/shm"), 0o777|os.ModeSticky)
	return f, exam{machine: f.machine, kernel: kernel{release: "6.8.0-45-generic"}, places: SharedPlaces(), adminGroup: AdminGroup, deadline: testkit.Patience,
		helper: helper{path: f.path("/opt/berth/berth-gpu")}, protocol: 7, arch: "amd64"}
}

// wellCards is what the helper says of two cards that are well.
const wellCards = `{
  "protocol": 7,
  "facts": {"source": "NVML", "driver": "580.65.06", "nvml": "13.580.65.06", "cuda": "13.0", "events": true, "kernel_log": false, "memory_limits": false, "persistence": true},
  "sample": {"at": "2026-03-01T12:00:00Z", "devices": [{"index": 0, "bus_id": "00000000:1B:00.0"}, {"index": 1, "bus_id": "00000000:9B:00.0"}]}
}`

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsWrongWithALabServer(t *testing.T) {
	f, e := labServer(t)
	for _, finding := range e.all(t.Context()) {
		// How much space is free here is not the fake's to say.
		if finding.Status != OK && finding.Name != "disk" {
			t.Errorf("%+v", finding)
		}
	}
	left, _ := filepath.Glob(f.path("/sys/fs/cgroup/system.slice/berth.service/berth-*"))
	more, _ := filepath.Glob(f.path("/var/lib/berth/.*"))
	if len(left)+len(more) > 0 {
		t.Errorf("it left %v %v", left, more)
	}
}

func TestFindings(t *testing.T) {
	tests := []struct {
		about  string
		name   string
		change func(*fake, *exam)
		status string
		want   string
	}{
		{"an old kernel", "kernel", func(_ *fake, e *exam) { e.kernel.release = "4.18.0-553.el8" }, Fail, "no process descriptors"},
		{"an older kernel", "kernel", func(_ *fake, e *exam) { e.kernel.release = "5.4.0-100-generic" }, Warn, "one by one"},
		{"a kernel that calls itself oddly", "kernel", func(_ *fake, e *exam) { e.kernel.release = "\x1b[2J" }, Warn, "expected a kernel release"},
		{"a container that forbids process descriptors", "pidfd", func(_ *fake, e *exam) { e.kernel.pidfd = errors.New("not permitted") }, Fail, "not permitted"},
		{"no name of this boot", "boot id", func(f *fake, _ *exam) { f.file("/proc/sys/kernel/random/boot_id", "") }, Fail, "reboot"},
		{"no clock", "clock", func(_ *fake, e *exam) { e.kernel.bootTime = errors.New("invalid") }, Fail, "CLOCK_BOOTTIME"},
		{"processes are hidden from a user", "proc", func(f *fake, e *exam) {
			f.file("/proc/self/mountinfo", "23 1 0:22 / /proc rw - proc proc rw,hidepid=invisible\n")
			e.places.Shared = false
		}, Warn, "hidepid"},
		{"processes are hidden from a user, but not from the machine's daemon", "proc", func(f *fake, e *exam) {
			f.file("/proc/self/mountinfo", "23 1 0:22 / /proc rw - proc proc rw,hidepid=invisible\n")
			e.places.Shared = true
		}, OK, "all processes"},
		{"processes are not hidden from root", "proc", func(f *fake, e *exam) {
			f.file("/proc/self/mountinfo", "23 1 0:22 / /proc rw - proc proc rw,hidepid=2\n")
			e.uid = 0
		}, OK, "all processes"},
		{"no proc", "proc", func(f *fake, _ *exam) { os.Remove(f.path("/proc/self/mountinfo")) }, Fail, "not mounted"},
		{"no cgroups", "cgroup", func(f *fake, _ *exam) { f.file("/proc/self/mountinfo", "") }, Warn, "no cgroups"},
		{"old cgroups", "cgroup", func(f *fake, _ *exam) {
			f.file("/proc/self/mountinfo", legacyMounts).file("/proc/4711/cgroup", "4:memory:/\n")
		}, Warn, "version 1 only"},
		{"a cgroup of somebody else's", "cgroup", func(f *fake, _ *exam) { f.file("/proc/4711/cgroup", "0::/not/there\n") }, Warn, "cannot create cgroups"},
		{"no controllers", "controllers", func(f *fake, _ *exam) {
			f.file("/sys/fs/cgroup/system.slice/berth.service/cgroup.controllers", "pids\n")
		}, Warn, "not enforced"},
		{"a part of the controllers", "controllers", func(f *fake, _ *exam) {
			f.file("/sys/fs/cgroup/system.slice/berth.service/cgroup.controllers", "memory pids\n")
		}, Warn, "mem is enforced"},
		{"old controllers do for root", "controllers", func(f *fake, e *exam) {
			f.file("/proc/self/mountinfo", legacyMounts+"39 1 0:39 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n")
			f.file("/proc/4711/cgroup", "5:pids:/\n4:memory:/\n3:cpu,cpuacct:/\n")
			e.uid = 0
		}, OK, "memory version 1"},
		{"no controller for the number of processes", "controllers", func(f *fake, e *exam) {
			f.file("/proc/self/mountinfo", legacyMounts).file("/proc/4711/cgroup", "4:memory:/\n3:cpu,cpuacct:/\n")
			e.uid = 0
		}, Warn, "no pids controller"},
		{"a berth that reaps nobody", "zombies", func(f *fake, _ *exam) {
			f.file("/proc/4711/comm", "berth\n")
			for pid := range manyZombies {
				f.file(fmt.Sprintf("/proc/%d/stat", 5000+pid), fmt.Sprintf("%d (a) S 1 () Z 4711 1 1\n", 5000+pid))
			}
		}, Warn, "process 4711 (berth) has 100 ended children"},
		{"a program of somebody's that reaps nobody", "zombies", func(f *fake, _ *exam) {
			f.file("/proc/4711/comm", "sh\n")
			for pid := range manyZombies {
				f.file(fmt.Sprintf("/proc/%d/stat", 5000+pid), fmt.Sprintf("%d (a) Z 4711 1 1\n", 5000+pid))
			}
		}, OK, "no berth"},
		{"no systemd", "systemd", func(f *fake, _ *exam) { os.RemoveAll(f.path("/run/systemd")) }, Warn, "after a reboot"},
		{"no systemd, and a private daemon", "systemd", func(f *fake, e *exam) {
			e.places.Shared = false
			os.RemoveAll(f.path("/run/systemd"))
		}, Warn, "go on with your next berth command"},
		{"a private daemon without a service", "systemd", func(f *fake, e *exam) { privately(f, e) }, OK, "go on with your next berth command; as a user service"},
		{"a user service", "systemd", func(f *fake, e *exam) {
			privately(f, e)
			f.file("/etc/systemd/user/default.target.wants/berth.service", "")
		}, OK, "once you log in"},
		{"a user service of a user who lingers", "systemd", func(f *fake, e *exam) {
			privately(f, e)
			f.file("/etc/systemd/user/default.target.wants/berth.service", "").file("/var/lib/systemd/linger/ann", "")
		}, OK, "your user service goes on with queued jobs after a crash or a reboot"},
		{"jobs end at logout", "logout", func(f *fake, e *exam) {
			e.places.Shared = false
			f.says("busctl", "b true\n")
		}, Warn, "KillUserProcesses"},
		{"no getent", "getent", func(f *fake, _ *exam) { os.Remove(f.path("/usr/bin/getent")) }, Warn, "/etc/passwd"},
		{"no getent, and users from elsewhere", "getent", func(f *fake, _ *exam) {
			os.Remove(f.path("/usr/bin/getent"))
			f.file("/etc/nsswitch.conf", "passwd: files sss\n")
		}, Fail, "sss"},
		{"a user of no database", "users", func(_ *fake, e *exam) { e.uid = 4242 }, Fail, "not in the user database"},
		{"a database that does not answer", "users", func(f *fake, _ *exam) { f.breaks("getent passwd 1000", errNoAnswer) }, Fail, "does not answer"},
		{"no group of administrators", "admins", func(f *fake, _ *exam) { f.exits("getent group berth-admin", getentNotFound, "") }, OK, "only root"},
		{"another group of administrators", "admins", func(f *fake, e *exam) { e.adminGroup = "wheel"; f.exits("getent group wheel", 0, "wheel:x:10:ann") }, OK, "group wheel (10)"},
		{"a config without administrators", "admins", func(_ *fake, e *exam) { e.adminGroup = "" }, OK, "names no group"},
		{"groups that cannot be looked up", "admins", func(f *fake, _ *exam) { f.breaks("getent group berth-admin", errNoAnswer) }, Warn, "only root"},
		{"few open files", "limits", func(f *fake, _ *exam) { f.file("/etc/security/limits.conf", "* - nofile 1000\n") }, Warn, "1000 open files"},
		{"root that may not raise limits", "limits", func(f *fake, e *exam) {
			f.file("/proc/self/status", "CapEff:\t0\n").file("/proc/self/limits", plainLimits)
			f.says("getent passwd 0", "root:x:0:0::/root:/bin/sh\n").says("getent initgroups root", "root\n")
			e.uid = 0
		}, Warn, "may not raise"},
		{"little locked memory", "limits", func(f *fake, _ *exam) { f.file("/etc/security/limits.conf", "* - memlock 64\n") }, Warn, "64 KiB"},
		{"limits that others may write", "limits", func(f *fake, _ *exam) {
			f.file("/etc/security/limits.conf", "")
			chmod(f.t, f.path("/etc/security/limits.conf"), 0o666)
		}, Fail, "limits.conf"},
		{"a state directory that is not this user's to write", "state", func(*fake, *exam) {}, OK, "only root can check"},
		{"a state directory", "state", func(_ *fake, e *exam) { e.uid = 0 }, OK, "and writable"},
		{"no state directory yet", "state", func(f *fake, e *exam) {
			e.uid = 0
			os.RemoveAll(f.path("/var/lib/berth"))
		}, OK, "will be created"},
		{"no place for state", "state", func(_ *fake, e *exam) { e.places.StateDir = "" }, Fail, "no state directory"},
		{"no shared memory", "ledger", func(f *fake, _ *exam) { os.RemoveAll(f.path("/dev/shm")) }, Warn, "/tmp"},
		{"shared memory of one user", "ledger", func(f *fake, _ *exam) { chmod(f.t, f.path("/dev/shm"), 0o755) }, Warn, "several users"},
		{"no ledger yet", "ledger", func(*fake, *exam) {}, OK, "will share"},
		{"a ledger", "ledger", func(f *fake, _ *exam) { f.file("/dev/shm/berth-ledger/lock", "") }, OK, "all users share"},
		{"a link for a ledger", "ledger", func(f *fake, _ *exam) { os.Symlink("/tmp", f.path("/dev/shm/berth-ledger")) }, Fail, "found a symlink at"},
		{"a pipe for a ledger", "ledger", func(f *fake, _ *exam) { unix.Mkfifo(f.path("/dev/shm/berth-ledger"), 0o644) }, Fail, "found a named pipe at"},
		{"a file for a ledger", "ledger", func(f *fake, _ *exam) { f.file("/dev/shm/berth-ledger", "") }, Fail, "found a file at"},
		{"a pipe for the ledger's lock", "ledger", func(f *fake, _ *exam) {
			os.Mkdir(f.path("/dev/shm/berth-ledger"), 0o777)
			unix.Mkfifo(f.path("/dev/shm/berth-ledger/lock"), 0o644)
		}, Fail, "found a named pipe at"},
		{"a link for the ledger's lock", "ledger", func(f *fake, _ *exam) {
			os.Mkdir(f.path("/dev/shm/berth-ledger"), 0o777)
			os.Symlink("/etc/passwd", f.path("/dev/shm/berth-ledger/lock"))
		}, Fail, "found a symlink at"},
		{"swap is in use", "swap", func(f *fake, _ *exam) { f.file("/proc/swaps", "Filename\n/a partition 2048 2000 -2\n") }, Warn, "wait for the disk"},
		{"no swap", "swap", func(f *fake, _ *exam) { f.file("/proc/swaps", "Filename\n") }, OK, "no swap"},
		{"no driver", "driver", func(f *fake, _ *exam) {
			f.breaks("nvidia-smi", errNotInstalled)
			os.RemoveAll(f.path("/proc/driver"))
			os.Remove(f.path("/dev/nvidiactl"))
		}, Warn, "no GPUs"},
		{"a driver without its tools", "driver", func(f *fake, e *exam) {
			f.breaks("nvidia-smi", errNotInstalled)
			e.helper = helper{}
		}, Fail, "is missing"},
		{"a driver that hangs", "driver", func(f *fake, _ *exam) { f.breaks("nvidia-smi", errNoAnswer) }, Fail, "no answer"},
		{"a driver that was replaced", "driver", func(f *fake, _ *exam) {
			f.exits("nvidia-smi", 18, "Failed to initialize NVML: Driver/library version mismatch\n")
		}, Fail, "version mismatch"},
		{"a driver that says nothing", "driver", func(f *fake, _ *exam) { f.says("nvidia-smi", "") }, Fail, "expected a version"},
		{"cards for some users", "devices", func(f *fake, _ *exam) { chmod(f.t, f.path("/dev/nvidia0"), 0o660) }, Warn, "open /dev/nvidia0"},
		{"a driver without devices", "devices", func(f *fake, _ *exam) {
			for _, name := range []string{"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"} {
				os.Remove(f.path(name))
			}
		}, Warn, "device files in /dev are missing"},
		{"a driver without its tools, but with berth's own helper", "driver", func(f *fake, _ *exam) { f.breaks("nvidia-smi", errNotInstalled) }, OK, "berth does not need it"},
		{"cards that are well", "nvml", func(*fake, *exam) {}, OK, "2 GPUs, read through NVML 13.580.65.06 (driver 580.65.06, CUDA 13.0)"},
		{"one card", "nvml", func(f *fake, _ *exam) { f.says("berth-gpu", `{"facts": {}, "sample": {"devices": [{"index": 0}]}}`) }, OK, "1 GPU, read"},
		{"no helper", "nvml", func(_ *fake, e *exam) { e.helper = helper{} }, Warn, "does not support MIG"},
		{"a helper that is switched off", "nvml", func(_ *fake, e *exam) { e.helper = helper{off: true} }, Warn, "BERTH_GPU_HELPER"},
		{"a helper that cannot be run", "nvml", func(_ *fake, e *exam) { e.helper = helper{wrong: "/opt/berth-gpu is not executable"} }, Warn, "berth-gpu cannot be run: /opt/berth-gpu is not executable"},
		{"a helper that hangs", "nvml", func(f *fake, _ *exam) { f.breaks("berth-gpu", errNoAnswer) }, Fail, "hangs"},
		{"a helper that finds no library", "nvml", func(f *fake, _ *exam) {
			f.exits("berth-gpu", 1, `{"error": "NVML: ERROR_LIBRARY_NOT_FOUND\u001b[2J"}`)
		}, Warn, "ERROR_LIBRARY_NOT_FOUND"},
		{"a helper that only complains", "nvml", func(f *fake, _ *exam) { f.exits("berth-gpu", 2, "built without NVML\n") }, Warn, "built without NVML"},
		{"a helper of another time", "nvml", func(f *fake, _ *exam) { f.says("berth-gpu", "hello\n") }, Fail, "unreadable output"},
		{"a helper of another version", "nvml", func(f *fake, _ *exam) {
			f.says("berth-gpu", strings.Replace(wellCards, `"protocol": 7`, `"protocol": 8`, 1))
		}, Warn, "speaks protocol version 8, berth speaks version 7: GPUs are read through nvidia-smi"},
		{"a card that cannot be read", "nvml", func(f *fake, _ *exam) {
			f.says("berth-gpu", `{"facts": {}, "sample": {"devices": [], "faults": [{"index": 3, "kind": "lost", "text": "GPU is lost\u001b[2J"}]}}`)
		}, Warn, "gpu3 GPU is lost"},
		{"parts of cards", "nvml", func(f *fake, _ *exam) {
			f.says("berth-gpu", `{"facts": {"nvml": "13"}, "sample": {"devices": [{"index": 100, "part": {"of": 0, "profile": "1g.10gb"}}, {"index": 1}]}}`)
		}, OK, "2 GPUs, 1 of them MIG parts"},
		{"root keeps jobs off other cards", "isolation", func(_ *fake, e *exam) { e.uid, e.places.Shared = 0, false }, OK, "only its own GPUs"},
		{"a user cannot keep jobs off other cards", "isolation", func(_ *fake, e *exam) { e.places.Shared = false }, Warn, "only root"},
		{"old cgroups keep no job off other cards", "isolation", func(f *fake, _ *exam) {
			f.file("/proc/self/mountinfo", legacyMounts).file("/proc/4711/cgroup", "4:memory:/\n")
		}, Warn, "cgroup version 2 is missing"},
		{"a log that can be read", "xid", func(_ *fake, e *exam) { e.places.Shared = false }, OK, "from the kernel log"},
		{"a log that is root's", "xid", func(f *fake, e *exam) {
			e.places.Shared = false
			os.Remove(f.path("/dev/kmsg"))
		}, Warn, "that NVML reports"},
		{"no log and no helper", "xid", func(f *fake, e *exam) {
			e.places.Shared, e.helper = false, helper{}
			os.Remove(f.path("/dev/kmsg"))
		}, Warn, "go unnoticed"},
		{"a log that the daemon reads", "xid", func(f *fake, _ *exam) { os.Remove(f.path("/dev/kmsg")) }, OK, "the shared daemon"},
		{"a driver that can park", "checkpoint", func(f *fake, _ *exam) {
			f.file("/proc/meminfo", "MemTotal: 9999999 kB\nMemAvailable:   33554432 kB\n").file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
		}, OK, "jobs can be parked; the host has 32 GiB of memory available; with transparent huge pages set to always, parking is nearly twice as fast"},
		{"a driver that cannot park", "checkpoint", func(f *fake, e *exam) {
			e.helper = helper{}
			f.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build\n")
		}, OK, "driver 550.163.01 cannot"},
		{"a driver whose calls do not work", "checkpoint", func(f *fake, _ *exam) {
			f.exits("berth-gpu park -check", 1, "berth-gpu: libcuda.so.1 cannot be loaded: no such file\n")
		}, Warn, "jobs cannot be parked: libcuda.so.1 cannot be loaded: no such file"},
		{"a driver that is slow to say so", "checkpoint", func(f *fake, _ *exam) {
			f.breaks("berth-gpu park -check", errNoAnswer)
		}, OK, "jobs can be parked"},
		{"a helper that does not know the question", "checkpoint", func(f *fake, _ *exam) {
			f.exits("berth-gpu park -check", 2, "berth-gpu: flag provided but not defined: -check\n")
		}, OK, "jobs can be parked"},
		{"a driver without the helper", "checkpoint", func(f *fake, e *exam) {
			e.helper = helper{}
			f.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n")
		}, OK, "jobs cannot be parked without berth-gpu"},
		{"a machine that cannot park", "checkpoint", func(_ *fake, e *exam) { e.arch = "arm64" }, OK, "x86-64 only"},
		{"a driver without limits", "memory limits", func(*fake, *exam) {}, OK, "615 and newer"},
		{"a driver with limits", "memory limits", func(f *fake, _ *exam) {
			f.says("berth-gpu", strings.NewReplacer("580.65.06", "615.12", `"memory_limits": false`, `"memory_limits": true`).Replace(wellCards))
		}, OK, "driver 615.12 can limit"},
		{"a driver whose limits do not work", "memory limits", func(f *fake, _ *exam) {
			f.says("berth-gpu", strings.ReplaceAll(wellCards, "580.65.06", "615.12"))
		}, OK, "do not work here"},
		{"no persistence", "persistence", func(f *fake, _ *exam) {
			f.says("berth-gpu", strings.Replace(wellCards, `"persistence": true`, `"persistence": false`, 1))
		}, Warn, "seconds longer"},
		{"persistence by its daemon", "persistence", func(f *fake, e *exam) {
			e.helper = helper{}
			f.file("/proc/78/comm", "nvidia-persiste\n")
		}, OK, "mode is on"},
		{"persistence that nobody tells of", "persistence", func(_ *fake, e *exam) { e.helper = helper{} }, OK, "unknown"},
		{"no docker", "containers", func(*fake, *exam) {}, OK, "docker is not installed"},
		{"docker and root", "containers", func(f *fake, _ *exam) { f.file(dockerSocket, "") }, OK, "berth.token"},
		{"cards of no node", "topology", func(f *fake, _ *exam) { f.file("/sys/bus/pci/devices/0000:9b:00.0/numa_node", "-1\n") }, Warn, "1 of 2 GPUs"},
		{"one node", "topology", func(f *fake, _ *exam) {
			f.file("/sys/bus/pci/devices/0000:9b:00.0/numa_node", "-1\n")
			os.RemoveAll(f.path("/sys/devices/system/node/node1"))
		}, OK, "one NUMA node; the CPUs near each of the 2 GPUs"},
		{"cards without CPUs", "topology", func(f *fake, _ *exam) { f.file("/sys/bus/pci/devices/0000:9b:00.0/local_cpulist", "\n") }, OK, "--pin does nothing"},
		{"no bus to look at", "topology", func(f *fake, _ *exam) { os.RemoveAll(f.path("/sys/bus")) }, OK, "no GPUs"},
		{"MPS of an old driver", "mps", func(f *fake, _ *exam) {
			script(f.t, f.path("/usr/bin/nvidia-cuda-mps-control"), "")
			f.says("berth-gpu", strings.ReplaceAll(wellCards, "580.65.06", "470.82.01"))
		}, OK, "needs 495"},
		{"no MPS", "mps", func(*fake, *exam) {}, OK, "not installed"},
		{"MPS runs", "mps", func(f *fake, _ *exam) {
			script(f.t, f.path("/usr/bin/nvidia-cuda-mps-control"), "")
			f.file("/proc/77/comm", "nvidia-cuda-mps\n")
		}, OK, "installed and running"},
		{"MPS is installed", "mps", func(f *fake, _ *exam) { script(f.t, f.path("/usr/bin/nvidia-cuda-mps-control"), "") }, OK, "is installed"},
	}
	for _, test := range tests {
		t.Run(test.about, func(t *testing.T) {
			f, e := labServer(t)
			test.change(f, &e)
			finding := one(t, e, test.name)
			if finding.Status != test.status || !strings.Contains(finding.What, test.want) {
				t.Errorf("%+v", finding)
			}
			if finding.Status != OK && finding.Fix == "" {
				t.Error("it does not say what helps")
			}
			if strings.ContainsRune(finding.What+finding.Fix, '\x1b') {
				t.Error("it steers the terminal")
			}
		})
	}
}

// TestAMachineWithoutCardsIsNotBotheredWithThem: the helper is not even asked.
func TestAMachineWithoutCardsIsNotBotheredWithThem(t *testing.T) {
	f, e := labServer(t)
	f.breaks("nvidia-smi", errNotInstalled)
	os.RemoveAll(f.path("/proc/driver"))
	for _, name := range []string{"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"} {
		os.Remove(f.path(name))
	}
	quiet := 0
	for _, finding := range e.all(t.Context()) {
		if finding.Status == Fail && finding.Name != "disk" {
			t.Errorf("%+v", finding)
		}
		if finding.What == NoCards && finding.Status == OK {
			quiet++
		}
	}
	if quiet != 10 || f.count("berth-gpu once") != 0 {
		t.Errorf("%d findings say that there are no cards, and the helper was asked %d times", quiet, f.count("berth-gpu once"))
	}
}

func TestTheHelperIsAskedOnce(t *testing.T) {
	f, e := labServer(t)
	e.all(t.Context())
	if n := f.count("berth-gpu once"); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestWhereTheHelperIs(t *testing.T) {
	dir := t.TempDir()
	beside := filepath.Join(dir, "berth-gpu")
	script(t, beside, "")
	elsewhere := filepath.Join(dir, "other")
	script(t, elsewhere, "")
	plain := filepath.Join(dir, "plain")
	testkit.Write(t, plain, "")
	for _, test := range []struct {
		name, env, dir string
		want           helper
	}{
		{"beside berth", "", dir, helper{path: beside}},
		{"where the user says", elsewhere, dir, helper{path: elsewhere}},
		{"switched off", "none", dir, helper{off: true}},
		{"nowhere", "", t.TempDir(), helper{}},
		{"not where the user says", filepath.Join(dir, "missing"), dir, helper{wrong: "BERTH_GPU_HELPER names " + filepath.Join(dir, "missing") + ", which does not exist"}},
		{"not a program", plain, dir, helper{wrong: plain + " is not executable"}},
		{"berth itself is nowhere", "", "", helper{}},
	} {
		getenv := func(string) string { return test.env }
		if got := findHelper(getenv, test.dir); got != test.want {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

// TestTheHelperIsRunWhereItLies, as a real process, and not waited for longer
// than it may take.
func TestTheHelperIsRunWhereItLies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth-gpu")
	script(t, path, `[ "$1" = once ] && echo '{"facts":{"driver":"580.1"}}'`)
	e := exam{machine: here(), helper: helper{path: path}}
	if said := e.askHelper(t.Context()); said.err != nil || said.Facts.Driver != "580.1" {
		t.Errorf("%+v", said)
	}
	script(t, path, "exec sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if said := e.askHelper(ctx); !errors.Is(said.err, errNoAnswer) {
		t.Errorf("%+v", said)
	}
	allCommandsEnd(t)
}

// privately asks about a private daemon on a machine without a service.
func privately(f *fake, e *exam) {
	e.places.Shared, e.uid, e.getenv = false, 1000, func(string) string { return "" }
	os.Remove(f.path("/etc/systemd/system/berth.service"))
}

func one(t *testing.T, e exam, name string) Finding {
	t.Helper()
	for _, c := range e.checks() {
		if c.name == name {
			return c.bounded(t.Context())
		}
	}
	t.Fatalf("nobody looks at %s", name)
	return Finding{}
}

func TestDisks(t *testing.T) {
	tests := []struct {
		name                      string
		freeMiB, inodes, freeNode int64
		want                      string
	}{
		{"plenty", 100000, 1e6, 1e5, OK},
		{"little", 500, 1e6, 1e5, Warn},
		{"nothing", 50, 1e6, 1e5, Fail},
		{"room, but no more files", 100000, 1e6, 10, Warn},
		{"a file system that does not count files", 100000, 0, 0, OK},
	}
	for _, test := range tests {
		if f := judgeDisk("/x", test.freeMiB, test.inodes, test.freeNode); f.Status != test.want || (f.Fix == "") != (f.Status == OK) {
			t.Errorf("%s: %+v", test.name, f)
		}
	}
}

func TestAnExaminationEnds(t *testing.T) {
	f, e := labServer(t)
	hang := make(chan struct{})
	f.programs["nvidia-smi"] = func(call) (answer, error) { <-hang; return answer{}, errNoAnswer }
	e.deadline = 100 * time.Millisecond
	findings := e.all(t.Context())
	close(hang)
	if len(findings) != len(e.checks()) {
		t.Fatalf("%d findings", len(findings))
	}
	for i, c := range e.checks() {
		if findings[i].Name != c.name {
			t.Errorf("number %d is %s, want %s", i, findings[i].Name, c.name)
		}
		if c.name == "driver" && findings[i].Status != Fail {
			t.Errorf("%+v", findings[i])
		}
	}
}

func TestThisMachineIsExamined(t *testing.T) {
	places := Places{StateDir: t.TempDir()}
	findings := Examine(context.Background(), places, AdminGroup, 1)
	names := make(map[string]bool)
	for _, f := range findings {
		t.Logf("%-12s %-4s %s", f.Name, f.Status, f.What)
		if f.What == "" || f.Status != OK && f.Status != Warn && f.Status != Fail || f.Status != OK && f.Fix == "" || names[f.Name] {
			t.Errorf("%+v", f)
		}
		names[f.Name] = true
	}
	if left, _ := os.ReadDir(places.StateDir); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	text, err := json.Marshal(findings[0])
	if err != nil || !strings.HasPrefix(string(text), `{"name":"kernel","status":"`) || !strings.Contains(string(text), `"what":`) || !strings.Contains(string(text), `"fix":`) {
		t.Errorf("%s, %v", text, err)
	}
	allCommandsEnd(t)
}
