package run

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
)

// bystander starts a process that this test holds, and says who it is.
func bystander(t *testing.T, argv ...string) (*exec.Cmd, job.Process) {
	t.Helper()
	command := exec.Command(argv[0], argv[1:]...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	start, err := keep.StartTicks(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return command, job.Process{PID: command.Process.Pid, Start: start}
}

func noPidfd(int) (int, error) { return 0, unix.ENOSYS }

func TestAWatchEndsWithItsProcessAndNotBefore(t *testing.T) {
	for name, open := range map[string]func(int) (int, error){
		"through a descriptor of the process":        openPidfd,
		"by looking, where the kernel has none":      noPidfd,
		"by looking, where they are forbidden by it": func(int) (int, error) { return 0, unix.EPERM },
	} {
		t.Run(name, func(t *testing.T) {
			command, p := bystander(t, "sleep", "600")
			over := make(chan error, 1)
			go func() { over <- watch(p, 10*time.Millisecond, open) }()
			select {
			case err := <-over:
				t.Fatalf("the watch is over while the process lives: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			if err := command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			// Nobody has waited for it yet: the end is seen all the same.
			select {
			case err := <-over:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("the process is gone, and is still watched")
			}
		})
	}
}

func TestAWatchOfAnotherProcessWithTheSameNumberIsOverAtOnce(t *testing.T) {
	_, p := bystander(t, "sleep", "600")
	p.Start++
	for name, open := range map[string]func(int) (int, error){"descriptor": openPidfd, "looking": noPidfd} {
		if err := watch(p, time.Hour, open); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if Alive(p) {
		t.Error("another process is taken for it")
	}
}

func TestTheWatchersOwnProgram(t *testing.T) {
	t.Parallel()
	command, p := bystander(t, "true")
	_ = command.Wait()
	var out, errOut bytes.Buffer
	if status := WatchMain(WatchArgs(p)[1:], &out, &errOut); status != 0 || !strings.Contains(out.String(), "process "+strconv.Itoa(p.PID)) {
		t.Errorf("of a process that is gone: status %d, %q %q", status, out.String(), errOut.String())
	}
	for _, args := range [][]string{nil, {"x", "1"}, {"-1", "1"}, {"0", "1"}, {"1", "x"}, {"1", "2", "3"}} {
		if status := WatchMain(args, &out, &errOut); status != 2 {
			t.Errorf("%q: status %d", args, status)
		}
	}
}

func TestAnExternalProcessIsReadAsTheKernelShowsIt(t *testing.T) {
	command, p := bystander(t, "sleep", "600")
	s, err := ReadExternal(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	if s.Process != p || s.UID != os.Getuid() || s.Name != "sleep" || !slices.Equal(s.Argv, []string{"sleep", "600"}) || s.Kernel || s.Leader != p.PID || s.IsSupervisor() {
		t.Errorf("read as %+v", s)
	}
	if !Within(p.PID, p) || Within(os.Getpid(), p) {
		t.Error("a process is within itself, and its parent is not")
	}
	self, err := ReadExternal(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !Within(p.PID, self.Process) {
		t.Error("a child is not within its parent")
	}
	_ = command.Process.Kill()
	waitZombie(t, p.PID)
	if _, err := ReadExternal(p.PID); err == nil || !strings.Contains(err.Error(), "no such process") {
		t.Errorf("a dead one: %v", err)
	}
}

// waitZombie waits until a process of ours is dead and not yet waited for.
func waitZombie(t *testing.T, pid int) {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

func TestALongCommandLineIsCut(t *testing.T) {
	t.Parallel()
	_, p := bystander(t, "sh", "-c", "kill -STOP $$", strings.Repeat("x", 10_000))
	s, err := ReadExternal(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	if size := len(strings.Join(s.Argv, " ")); size > maxShownBytes+8 || !strings.HasSuffix(s.Argv[len(s.Argv)-1], "…") {
		t.Errorf("%d bytes of it are kept", size)
	}
}

func TestAThreadOfTheKernelIsKnownAsSuch(t *testing.T) {
	t.Parallel()
	if _, err := keep.ReadProcess(kernelThreads); err != nil {
		t.Skip("the kernel's threads are not to be seen here")
	}
	s, err := ReadExternal(kernelThreads)
	if err != nil {
		t.Fatal(err)
	}
	if name, _ := os.ReadFile("/proc/2/comm"); strings.TrimSpace(string(name)) == "kthreadd" && !s.Kernel {
		t.Errorf("read as %+v", s)
	}
}

func TestWhatIsBelowAnAdoptedProcessIsItsJobs(t *testing.T) {
	self, err := ReadExternal(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	_, p := bystander(t, "sleep", "600")
	a := NewAttribution()
	a.Set([]Holder{{Key: "7", Root: self.Process}, {Key: "8", Root: p}})
	if key, _, _ := a.Owner(p.PID); key != "8" {
		t.Errorf("the nearest one does not count: %q", key)
	}
	a.Set([]Holder{{Key: "7", Root: self.Process}})
	for _, pid := range []int{p.PID, self.PID} {
		if key, ok, known := a.Owner(pid); key != "7" || !ok || !known {
			t.Errorf("process %d is %q's (%v, %v)", pid, key, ok, known)
		}
	}
	self.Start++
	a.Set([]Holder{{Key: "7", Root: self.Process}})
	if key, ok, _ := a.Owner(p.PID); ok {
		t.Errorf("below another process with the same number is %q's", key)
	}
}
