package run

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

func TestWhoseAProcessIs(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newBench(t, host.option)
			token := b.start(b.order("1", escaped+`; sleep 1000 & echo $! > child; wait`))
			b.next(Started)
			child, runaway := b.pidFrom("child"), b.pidFrom("escaped")
			id, _ := b.Identity(token)
			if host.cgroup != (id.Cgroup != "") {
				t.Fatalf("identity %+v", id)
			}
			whole := Holder{Key: "1", KeepPID: id.KeepPID, Session: id.Session, Cgroup: id.Cgroup, Token: token}
			other := Holder{Key: "2", KeepPID: 1 << 30, Session: 1 << 30, Cgroup: id.Cgroup + "x", Token: "x" + token}
			namesake := Holder{Key: "3", Cgroup: strings.TrimSuffix(id.Cgroup, id.Cgroup[max(0, len(id.Cgroup)-1):]), Token: token[:4]}
			ways := map[string]Holder{
				"all together": whole,
				"by ancestry":  {Key: "1", KeepPID: id.KeepPID},
				"by token":     {Key: "1", Token: token},
			}
			if host.cgroup {
				ways["by cgroup"] = Holder{Key: "1", Cgroup: id.Cgroup}
			}
			for way, holder := range ways {
				a := NewAttribution()
				a.Set([]Holder{other, namesake, holder})
				for _, p := range []keep.Process{child, runaway} {
					testkit.Eventually(t, way+": its owner is found", func() bool { _, ok, _ := a.Owner(p.PID); return ok })
					for range 2 { // these answers are remembered ones
						if key, ok, known := a.Owner(p.PID); key != "1" || !ok || !known {
							t.Errorf("%s: process %d is %q, %v, %v", way, p.PID, key, ok, known)
						}
					}
				}
			}
			a := NewAttribution()
			a.Set([]Holder{{Key: "1", Session: id.Session}})
			if key, ok, _ := a.Owner(child.PID); key != "1" || !ok {
				t.Error("not known by its session")
			}
			if _, ok, known := a.Owner(runaway.PID); ok || !known {
				t.Error("another session was taken for the job's")
			}
			a.Set([]Holder{whole})
			if _, ok, _ := a.Owner(runaway.PID); !ok {
				t.Error("an old answer outlived a change of the jobs")
			}
			b.Stop(token, job.StopCancel, 10*time.Millisecond)
			b.next(Ended)
		})
	}
}

func TestExternalAndDeadProcesses(t *testing.T) {
	t.Parallel()
	a := NewAttribution()
	a.Set([]Holder{{Key: "1", KeepPID: 1 << 30, Session: 1 << 30, Token: "t"}, {Key: "empty"}})
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if key, ok, known := a.Owner(pid); ok || !known {
		t.Errorf("an external process is %q's", key)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for _, pid := range []int{pid, 0, -1, 1 << 30} {
		// What is gone is nobody's, unless the number is another namespace's.
		want := pid > 0 && !inNamespace("/proc")
		if _, ok, known := a.Owner(pid); ok || known != want {
			t.Errorf("process %d: %v, %v", pid, ok, known)
		}
	}
}

func TestTheDeadAreTheirJobsUntilTheyAreBuried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("1", `sleep 0.1 & echo $! > zombie; exec sleep 1000`))
	b.next(Started)
	zombie := b.pidFrom("zombie")
	testkit.Eventually(t, "it is dead", func() bool { p, err := keep.ReadProcess(zombie.PID); return err == nil && p.Dead() })
	id, _ := b.Identity(token)
	for way, holder := range map[string]Holder{"session": {Key: "1", Session: id.Session}, "ancestry": {Key: "1", KeepPID: id.KeepPID}} {
		a := NewAttribution()
		a.Set([]Holder{holder})
		if key, ok := a.Local(zombie.PID); key != "1" || !ok {
			t.Errorf("not known by its %s", way)
		}
	}
	b.Stop(token, job.StopCancel, 10*time.Millisecond)
	b.next(Ended)
}

func TestAnAdoptedProcessAndItsDescendantsAreTheJobs(t *testing.T) {
	work := t.TempDir()
	cmd := exec.Command("/bin/sh", "-c", `sh -c 'echo $$ > inner; sleep 1000 & echo $! > child; wait' & wait`)
	cmd.Dir, cmd.SysProcAttr = work, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() })
	b := &bench{t: t, work: work}
	inner, child := b.pidFrom("inner"), b.pidFrom("child")
	root, err := keep.ReadProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	whole := Holder{Key: "1", Root: job.Process{PID: root.PID, Start: root.Start}}
	nearer := Holder{Key: "2", Root: job.Process{PID: inner.PID, Start: inner.Start}}
	later := Holder{Key: "3", Root: job.Process{PID: root.PID, Start: root.Start + 1}}
	rows := []struct {
		name    string
		holders []Holder
		want    map[int]string
	}{
		{"the whole tree is one job's", []Holder{whole}, map[int]string{root.PID: "1", inner.PID: "1", child.PID: "1", os.Getpid(): ""}},
		{"the nearer root wins", []Holder{whole, nearer}, map[int]string{root.PID: "1", inner.PID: "2", child.PID: "2"}},
		{"a number that came again is not the process", []Holder{later}, map[int]string{root.PID: "", child.PID: ""}},
	}
	for _, row := range rows {
		a := NewAttribution()
		a.Set(row.holders)
		for pid, want := range row.want {
			if key, ok := a.Local(pid); key != want || ok != (want != "") {
				t.Errorf("%s: process %d is %q's", row.name, pid, key)
			}
		}
	}
}

// BenchmarkAnExternalProcess is what each external process costs in each
// sample.
func BenchmarkAnExternalProcess(b *testing.B) {
	a := NewAttribution()
	a.Set([]Holder{{Key: "1", KeepPID: 1 << 30, Session: 1 << 30, Cgroup: "/nowhere", Token: "t"}})
	b.Run("remembered", func(b *testing.B) {
		for b.Loop() {
			a.Owner(os.Getpid())
		}
	})
	b.Run("looked at", func(b *testing.B) {
		for b.Loop() {
			clear(a.external)
			a.Owner(os.Getpid())
		}
	})
}

// The token is in the supervisor's command line, for all to see.
func TestATokenInAnotherUsersEnvironmentProvesNothing(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can read what others write into their environment")
	}
	const ann, bob = 65533, 65534
	a := NewAttribution()
	a.Set([]Holder{{Key: "1", Token: "feed", UID: ann}})
	for uid, want := range map[int]bool{ann: true, bob: false, 0: true} {
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.Env = []string{"BERTH_TOKEN=feed:1:1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Its environment is there a moment after its program is.
		testkit.Eventually(t, "it has an environment", func() bool {
			env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid))
			return bytes.Contains(env, []byte("feed"))
		})
		if key, ok := a.Local(cmd.Process.Pid); ok != want {
			t.Errorf("a process of user %d is %q's", uid, key)
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
}
