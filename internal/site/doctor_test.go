package site

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		says("nvidia-smi", "580.65.06, NVIDIA H200\n580.65.06, NVIDIA H200\n")
	script(t, f.path("/usr/bin/getent"), "")
	for _, name := range []string{"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"} {
		chmod(t, f.path(name), 0o666)
	}
	chmod(t, f.path("/dev/shm"), 0o777|os.ModeSticky)
	return f, exam{machine: f.machine, kernel: kernel{release: "6.8.0-45-generic"}, places: SharedPlaces(), deadline: patience}
}

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
		{"a kernel that calls itself oddly", "kernel", func(_ *fake, e *exam) { e.kernel.release = "\x1b[2J" }, Warn, "calls itself"},
		{"a container that forbids process descriptors", "pidfd", func(_ *fake, e *exam) { e.kernel.pidfd = errors.New("not permitted") }, Fail, "not permitted"},
		{"no name of this boot", "boot id", func(f *fake, _ *exam) { f.file("/proc/sys/kernel/random/boot_id", "") }, Fail, "restart"},
		{"no clock", "clock", func(_ *fake, e *exam) { e.kernel.bootTime = errors.New("invalid") }, Fail, "nobody can set"},
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
		{"a cgroup of somebody else's", "cgroup", func(f *fake, _ *exam) { f.file("/proc/4711/cgroup", "0::/not/there\n") }, Warn, "none can be made"},
		{"no controllers", "controllers", func(f *fake, _ *exam) {
			f.file("/sys/fs/cgroup/system.slice/berth.service/cgroup.controllers", "pids\n")
		}, Warn, "not enforced"},
		{"a part of the controllers", "controllers", func(f *fake, _ *exam) {
			f.file("/sys/fs/cgroup/system.slice/berth.service/cgroup.controllers", "memory pids\n")
		}, Warn, "mem is enforced"},
		{"old controllers do for root", "controllers", func(f *fake, e *exam) {
			f.file("/proc/self/mountinfo", legacyMounts).file("/proc/4711/cgroup", "4:memory:/\n3:cpu,cpuacct:/\n")
			e.uid = 0
		}, OK, "memory version 1"},
		{"no systemd", "systemd", func(f *fake, _ *exam) { os.RemoveAll(f.path("/run/systemd")) }, Warn, "after a reboot"},
		{"jobs end at logout", "logout", func(f *fake, e *exam) {
			e.places.Shared = false
			f.says("busctl", "b true\n")
		}, Warn, "KillUserProcesses"},
		{"no getent", "getent", func(f *fake, _ *exam) { os.Remove(f.path("/usr/bin/getent")) }, Warn, "/etc/passwd"},
		{"no getent, and users from elsewhere", "getent", func(f *fake, _ *exam) {
			os.Remove(f.path("/usr/bin/getent"))
			f.file("/etc/nsswitch.conf", "passwd: files sss\n")
		}, Fail, "sss"},
		{"a user of no database", "users", func(_ *fake, e *exam) { e.uid = 4242 }, Fail, "no user database"},
		{"a database that does not answer", "users", func(f *fake, _ *exam) { f.breaks("getent passwd 1000", errNoAnswer) }, Fail, "does not answer"},
		{"no group of administrators", "admins", func(f *fake, _ *exam) { f.exits("getent group berth-admin", getentNotFound, "") }, OK, "only root"},
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
		{"a state directory that is not this user's to write", "state", func(*fake, *exam) {}, OK, "only root can tell"},
		{"a state directory", "state", func(_ *fake, e *exam) { e.uid = 0 }, OK, "keeps what is written"},
		{"no state directory yet", "state", func(f *fake, e *exam) {
			e.uid = 0
			os.RemoveAll(f.path("/var/lib/berth"))
		}, OK, "will be made"},
		{"no place for state", "state", func(_ *fake, e *exam) { e.places.StateDir = "" }, Fail, "no place"},
		{"no shared memory", "ledger", func(f *fake, _ *exam) { os.RemoveAll(f.path("/dev/shm")) }, Warn, "/tmp"},
		{"shared memory of one user", "ledger", func(f *fake, _ *exam) { chmod(f.t, f.path("/dev/shm"), 0o755) }, Warn, "several users"},
		{"swap is in use", "swap", func(f *fake, _ *exam) { f.file("/proc/swaps", "Filename\n/a partition 2048 2000 -2\n") }, Warn, "wait for the disk"},
		{"no swap", "swap", func(f *fake, _ *exam) { f.file("/proc/swaps", "Filename\n") }, OK, "no swap"},
		{"no driver", "driver", func(f *fake, _ *exam) {
			f.breaks("nvidia-smi", errNotInstalled)
			os.RemoveAll(f.path("/proc/driver"))
		}, Warn, "no cards"},
		{"a driver without its tools", "driver", func(f *fake, _ *exam) { f.breaks("nvidia-smi", errNotInstalled) }, Fail, "is missing"},
		{"a driver that hangs", "driver", func(f *fake, _ *exam) { f.breaks("nvidia-smi", errNoAnswer) }, Fail, "no answer"},
		{"a driver that was replaced", "driver", func(f *fake, _ *exam) {
			f.exits("nvidia-smi", 18, "Failed to initialize NVML: Driver/library version mismatch\n")
		}, Fail, "version mismatch"},
		{"a driver that says nothing", "driver", func(f *fake, _ *exam) { f.says("nvidia-smi", "") }, Fail, "answers"},
		{"cards for some users", "devices", func(f *fake, _ *exam) { chmod(f.t, f.path("/dev/nvidia0"), 0o660) }, Warn, "open /dev/nvidia0"},
		{"a driver without devices", "devices", func(f *fake, _ *exam) {
			for _, name := range []string{"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"} {
				os.Remove(f.path(name))
			}
		}, Warn, "no devices"},
		{"MPS runs", "mps", func(f *fake, _ *exam) {
			script(f.t, f.path("/usr/bin/nvidia-cuda-mps-control"), "")
			f.file("/proc/77/comm", "nvidia-cuda-mps\n")
		}, OK, "runs"},
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
	findings := Examine(context.Background(), places)
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
