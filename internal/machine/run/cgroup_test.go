package run

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
)

// cgroupHost is a way to run a test: with cgroups or without.
type cgroupHost struct {
	name   string
	cgroup bool
	option func(*Options)
}

// cgroupHosts are those this machine has.
func cgroupHosts(t *testing.T) []cgroupHost {
	hosts := []cgroupHost{{"without a cgroup", false, func(o *Options) { o.CgroupParent = "none" }}}
	if dir := detectCgroup(); dir != "" {
		t.Cleanup(func() { keep.RemoveCgroup(dir) })
		hosts = append(hosts, cgroupHost{"with a cgroup", true, func(o *Options) { o.CgroupParent = "" }})
	} else {
		t.Log("no cgroups here: those tests were left out")
	}
	return hosts
}

func TestACgroupServesOneJobAfterAnotherAndGoesWithItsSupervisor(t *testing.T) {
	parent := detectCgroup()
	if parent == "" {
		t.Skip("no cgroups here")
	}
	b := newBench(t, func(o *Options) { o.CgroupParent = "" })
	r := b.finish(b.order("1", "cat /proc/self/cgroup"))
	if r.Cgroup == "" || filepath.Dir(r.Cgroup) != parent {
		t.Fatalf("cgroup %q, note %q", r.Cgroup, r.Note)
	}
	// A job may make cgroups of its own; the next one does not find them.
	inner := filepath.Join(r.Cgroup, "inner")
	if made := b.finish(b.order("2", "mkdir "+inner)); made.ExitCode != 0 || made.Cgroup != r.Cgroup {
		t.Errorf("the second job: %+v", made)
	}
	if next := b.finish(b.order("3", "test ! -e "+inner)); next.ExitCode != 0 || next.Cgroup != r.Cgroup {
		t.Errorf("the third job: %+v", next)
	}
	b.Close()
	if _, err := os.Stat(r.Cgroup); !os.IsNotExist(err) {
		t.Errorf("the cgroup is still there: %v", err)
	}
	if _, err := os.Stat(parent); !os.IsNotExist(err) {
		t.Errorf("its parent is still there: %v", err)
	}
}

// Since Linux 6.14 whatever is forked into a cgroup that was ever killed whole
// dies at once.
func TestAJobAfterAKilledOneLives(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newBench(t, host.option)
			token := b.start(b.order("1", `trap "" TERM; echo $$ > main; while :; do sleep 0.1; done`))
			b.next(Started)
			b.pidFrom("main")
			b.Stop(token, job.StopCancel, 10*time.Millisecond)
			if r := b.next(Ended).Record; r.Signal != 9 {
				t.Errorf("got %+v", r)
			}
			b.Ack(token)
			for _, id := range []string{"2", "3"} {
				if r := b.finish(b.order(id, "exit 4")); r.ExitCode != 4 || host.cgroup != (r.Cgroup != "") {
					t.Errorf("job %s after it: %+v", id, r)
				}
			}
		})
	}
}

func TestAJobRunsWithoutACgroupWhereNoneCanBeMade(t *testing.T) {
	b := newBench(t, func(o *Options) { o.CgroupParent = "/proc/no/such/place" })
	r := b.finish(b.order("1", "exit 4"))
	if r.ExitCode != 4 || r.Cgroup != "" || r.Note == "" {
		t.Errorf("got %+v", r)
	}
}

func TestCgroupsOfDeadBerthsAreSwept(t *testing.T) {
	own := ownCgroup()
	stale := filepath.Join(own, "berth-1-1", "7.1.x")
	if own == "" || os.MkdirAll(stale, 0o755) != nil {
		t.Skip("no cgroups here")
	}
	dir := detectCgroup()
	defer keep.RemoveCgroup(dir)
	if _, err := os.Stat(filepath.Dir(stale)); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
	if detectCgroup() != dir {
		t.Error("one process has one directory")
	}
}

func TestAPlaceHandsOnWhatItsSubtreeControlSays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"cpu memory pids\n": true, "memory cpu": true, "cpu pids": false, "memory": false, "": false} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if passesOn(dir) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	if passesOn("") || passesOn(t.TempDir()) {
		t.Error("something that is not a cgroup passes controllers on")
	}
}

func TestWhoMayUseTheTopOfTheHierarchy(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name    string
		euid    int
		managed bool
		outer   string
		want    bool
	}{
		{"root, where nobody else divides the machine up", 0, false, "", true},
		{"an ordinary user", 1000, false, "", false},
		{"root beside a service manager", 0, true, "", false},
		{"root in a job, whose walls are its own jobs' too", 0, false, "feed:1:1", false},
	}
	for _, row := range rows {
		if got := topIsOurs(row.euid, row.managed, row.outer); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}
