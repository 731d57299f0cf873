package run

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/keep"
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
					until(t, way+": its owner is found", func() bool { _, ok, _ := a.Owner(p.PID); return ok })
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

func TestStrangersAndTheDead(t *testing.T) {
	a := NewAttribution()
	a.Set([]Holder{{Key: "1", KeepPID: 1 << 30, Session: 1 << 30, Token: "t"}, {Key: "empty"}})
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if key, ok, known := a.Owner(pid); ok || !known {
		t.Errorf("a stranger is %q's", key)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for _, pid := range []int{pid, 0, -1, 1 << 30} {
		if _, ok, known := a.Owner(pid); ok || known {
			t.Errorf("process %d: %v, %v", pid, ok, known)
		}
	}
}
