package site

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

// withSystemd is a machine that systemd runs. Its systemd-run puts itself into
// a scope and becomes the command, as the real one does.
func withSystemd(t *testing.T) *fake {
	f := newFake(t)
	f.uid = 0
	f.file("/run/systemd/system/x", "").file("/proc/self/mountinfo", unifiedMount).file("/proc/4711/cgroup", "0::/system.slice/berth.service\n").
		file("/etc/passwd", "root:x:0:0::/root:/bin/sh\n"+ann).exits("systemctl", 0, "\n")
	script(t, f.path("/usr/bin/systemd-run"), `
root=${0%/usr/bin/systemd-run}
echo "$@" >>"$root/asked"
while [ "$1" != -- ]; do shift; done; shift
echo 0::/berth.slice/berth-jobs.scope >"$root/pid.new"
mkdir -p "$root/proc/$$" "$root/sys/fs/cgroup/berth.slice/berth-jobs.scope"
mv "$root/pid.new" "$root/proc/$$/cgroup"
exec "$@"
`)
	return f
}

func (f *fake) self() []string {
	f.t.Helper()
	path, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	return []string{path, "__hold", f.root}
}

const scopePath = "/sys/fs/cgroup/berth.slice/berth-jobs.scope"

// endKeeper ends the process that holds the fake scope.
func (f *fake) endKeeper() {
	f.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(testkit.Read(f.t, f.path(scopePath+"/hold/cgroup.procs"))))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		f.t.Errorf("the keeper: %v", err)
	}
	for deadline := time.Now().Add(testkit.Patience); !isZombie(pid); {
		if time.Now().After(deadline) {
			f.t.Fatal("the keeper does not end")
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestJobScope(t *testing.T) {
	f := withSystemd(t)
	dir, reason, err := jobScope(t.Context(), f.machine, false, f.self())
	if err != nil || reason != "" || dir != f.path(scopePath) {
		t.Fatalf("%q, %q, %v", dir, reason, err)
	}
	asked := testkit.Read(t, f.path("/asked"))
	for _, word := range []string{"--scope", "--collect", "--slice=berth.slice", "--unit=berth-jobs.scope", "Delegate=yes", "TasksMax=infinity"} {
		if !strings.Contains(asked, word) {
			t.Errorf("systemd-run was not asked for %s: %s", word, asked)
		}
	}
	if strings.Contains(asked, "--user") {
		t.Errorf("the user's systemd was asked: %s", asked)
	}
	// The next daemon finds it.
	f.says("systemctl", "/berth.slice/berth-jobs.scope\n").file(scopePath+"/cgroup.events", "populated 1\nfrozen 0\n")
	again, reason, err := jobScope(t.Context(), f.machine, false, f.self())
	if err != nil || reason != "" || again != dir {
		t.Errorf("the next daemon: %q, %q, %v", again, reason, err)
	}
	if testkit.Read(t, f.path("/asked")) != asked {
		t.Error("systemd was asked for another one")
	}
	f.endKeeper()
}

func TestTheScopeOfAUser(t *testing.T) {
	f := withSystemd(t)
	f.uid = 1000
	f.file("/var/lib/systemd/linger/ann", "")
	// Which is systemd-run's own program by the time it is executed.
	dir, reason, err := jobScope(t.Context(), f.machine, true, []string{"/proc/self/exe", "__hold", f.root})
	if err != nil || reason != "" || dir != f.path(scopePath) {
		t.Fatalf("%q, %q, %v", dir, reason, err)
	}
	if asked := testkit.Read(t, f.path("/asked")); !strings.HasPrefix(asked, "--user ") {
		t.Errorf("it was asked %s", asked)
	}
	f.endKeeper()
}

func TestNoScope(t *testing.T) {
	tests := []struct {
		name   string
		user   bool
		change func(*fake)
		want   string // in the reason
	}{
		{"systemd is not there", false, func(f *fake) { os.RemoveAll(f.path("/run/systemd")) }, "does not run systemd"},
		{"version 1 only", false, func(f *fake) { f.file("/proc/self/mountinfo", legacyMounts) }, "version 2"},
		{"the system's, but not root", false, func(f *fake) { f.uid = 1000 }, "only root"},
		{"a user's that ends at logout", true, func(f *fake) { f.uid = 1000 }, "enable-linger"},
		{"systemd-run is not installed", false, func(f *fake) { os.Remove(f.path("/usr/bin/systemd-run")) }, "not installed"},
	}
	for _, test := range tests {
		f := withSystemd(t)
		test.change(f)
		dir, reason, err := jobScope(t.Context(), f.machine, test.user, f.self())
		if err != nil || dir != "" || !strings.Contains(reason, test.want) {
			t.Errorf("%s: %q, %q, %v", test.name, dir, reason, err)
		}
	}
}

func TestAScopeThatCannotBeMade(t *testing.T) {
	t.Run("systemd refuses", func(t *testing.T) {
		f := withSystemd(t)
		script(t, f.path("/usr/bin/systemd-run"), "echo 'Failed to start transient scope unit' >&2; exit 1")
		if dir, _, err := jobScope(t.Context(), f.machine, false, f.self()); err == nil || dir != "" || !strings.Contains(err.Error(), "Failed to start") {
			t.Errorf("%q, %v", dir, err)
		}
	})
	t.Run("another daemon was faster", func(t *testing.T) {
		f := withSystemd(t)
		script(t, f.path("/usr/bin/systemd-run"), "echo 'Unit berth-jobs.scope already exists' >&2; exit 1")
		f.file(scopePath+"/cgroup.events", "populated 1\n")
		asked := 0
		f.programs["systemctl"] = func(call) (answer, error) {
			if asked++; asked == 1 {
				return answer{}, nil
			}
			return answer{stdout: "/berth.slice/berth-jobs.scope\n"}, nil
		}
		if dir, reason, err := jobScope(t.Context(), f.machine, false, f.self()); err != nil || reason != "" || dir != f.path(scopePath) {
			t.Errorf("%q, %q, %v", dir, reason, err)
		}
	})
	t.Run("systemd does not answer", func(t *testing.T) {
		f := withSystemd(t)
		script(t, f.path("/usr/bin/systemd-run"), "exec sleep 1000")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if dir, _, err := jobScope(ctx, f.machine, false, f.self()); err == nil || dir != "" {
			t.Errorf("%q, %v", dir, err)
		}
	})
	t.Run("an empty scope does not count", func(t *testing.T) {
		f := withSystemd(t)
		f.says("systemctl", "/berth.slice/berth-jobs.scope\n").file(scopePath+"/cgroup.events", "populated 0\n")
		if dir := findScope(t.Context(), f.machine, false); dir != "" {
			t.Errorf("found %q", dir)
		}
	})
}

// TestHoldTakesItsPlace: in a real cgroup the keeper moves out of the way, so
// that the scope can pass its controllers on.
func TestHoldTakesItsPlace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a cgroup anywhere")
	}
	m := here()
	h, ok := unified(m, os.Getpid())
	if !ok {
		t.Skip("cgroup version 2 is not mounted")
	}
	parent := filepath.Join(h.dir, fmt.Sprintf("berth-site-test-%d", os.Getpid()))
	scope := filepath.Join(parent, scopeUnit)
	if err := os.MkdirAll(scope, 0o755); err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		for _, dir := range []string{filepath.Join(scope, holdDir), scope, parent} {
			if err := unix.Rmdir(dir); err != nil {
				t.Errorf("remove %s: %v", dir, err)
			}
		}
	})
	place, err := os.Open(scope)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "__hold")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(place.Fd())}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("a process cannot be started in a cgroup: %v", err)
	}
	said := make([]byte, 100)
	n, err := out.Read(said)
	if err != nil || string(said[:n]) != holdReady {
		t.Errorf("it says %q, %v", said[:n], err)
	}
	if dir, err := scopeOf(m, cmd.Process.Pid); err != nil || dir != scope {
		t.Errorf("its scope is %q, %v", dir, err)
	}
	if text := testkit.Read(t, filepath.Join(scope, "cgroup.procs")); text != "" {
		t.Errorf("the scope itself has processes: %q", text)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("asked to end, it says %v", err)
	}
}

func TestHoldRefusesAPlaceThatIsNotItsOwn(t *testing.T) {
	f := withSystemd(t)
	if status := holdScope(f.machine, os.Stderr); status != 1 {
		t.Errorf("status %d", status)
	}
}
