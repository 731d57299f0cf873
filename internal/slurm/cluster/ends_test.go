package cluster_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/tests/testkit"
)

// TestEndsThatSlurmKnows: a job that left no record ended as Slurm's accounting says.
func TestEndsThatSlurmKnows(t *testing.T) {
	t.Parallel()
	// Slurm ends jobs of one partition after a minute.
	endings(t, testkit.SlurmSetup{Accounts: true, MinJobAge: 2, CPUs: 16, Conf: []string{"PartitionName=short Nodes=ALL MaxTime=1 DefaultTime=1"}}, true)
}

// TestEndsThatSlurmctldRemembers: without accounting, slurmctld is asked.
func TestEndsThatSlurmctldRemembers(t *testing.T) {
	t.Parallel()
	endings(t, testkit.SlurmSetup{CPUs: 16}, true)
}

// TestEndsThatNobodyKnows: a job whose end nobody knows is lost, and never taken for
// done.
func TestEndsThatNobodyKnows(t *testing.T) {
	t.Parallel()
	endings(t, testkit.SlurmSetup{MinJobAge: 2, CPUs: 16}, false)
}

// endings ends jobs in ways that leave no record, or one that says nothing. known: Slurm
// can say how they ended.
func endings(t *testing.T, setup testkit.SlurmSetup, known bool) {
	t.Helper()
	b := newBerth(t, setup)
	const forever = "while :; do sleep 0.2; done"
	limited := ""
	if setup.Conf != nil {
		limited = b.submit("--slurm", "--partition=short", "--grace", "1", "--", forever)
		b.running(limited)
	}
	names := []string{"wrapper", "all", "signal", "scancel"}
	ids := map[string]string{}
	for _, name := range names {
		ids[name] = b.submit("--name", name, "--grace", "1", "--", forever)
	}
	views := map[string]view{}
	for _, name := range names {
		views[name] = b.running(ids[name])
	}
	kill(t, b.wrappers(ids["wrapper"]))
	kill(t, b.processes(views["all"]))
	for name, args := range map[string][]string{"signal": {"--signal=KILL", "--full"}, "scancel": nil} {
		v := views[name]
		b.slurm.Must(t, "scancel", append(args, v.slurm())...)
	}

	for name, want := range map[string][]string{
		"wrapper": {"signal:KILL", "exit:137", "lost"}, "all": {"signal:KILL", "exit:137", "lost"},
		"signal": {"signal:KILL", "exit:137", "cancelled", "lost"}, "scancel": {"cancelled"},
	} {
		v := b.over(ids[name])
		if !known {
			want = append(want, "lost")
		}
		if !contained(want, v.outcome()) {
			t.Errorf("%s: %s", name, v)
		}
	}
	if limited == "" {
		return
	}
	if v := b.ends(limited, "timeout"); v.reason() != "Slurm ended it at its time limit" {
		t.Errorf("limited: %s", v)
	}
}

func contained(list []string, one string) bool {
	for _, word := range list {
		if word == one {
			return true
		}
	}
	return false
}

// processes are those of a job on its node, wrapper and all: its id is in their
// environment.
func (b *berth) processes(v view) []int {
	b.t.Helper()
	// A task of an array has a number of its own.
	slurmJob := strings.TrimSpace(b.slurm.Must(b.t, "squeue", "--noheader", "--array", "--jobs="+v.slurm(), "--format=%A"))
	return find(func(pid string) bool {
		raw, _ := os.ReadFile("/proc/" + pid + "/environ")
		vars := "\x00" + string(raw)
		return strings.Contains(vars, "\x00SLURM_JOB_ID="+slurmJob+"\x00") && strings.Contains(vars, b.slurm.Dir)
	})
}

// wrappers are the processes of berth itself for a job.
func (b *berth) wrappers(id string) []int {
	b.t.Helper()
	log := word(b.show(id).Log) // it is in the directory of its batch, and named by its index
	index := strings.TrimSuffix(filepath.Base(log), ".log")
	return find(func(pid string) bool {
		raw, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		words := bytes.Split(raw, []byte{0})
		return len(words) > 3 && string(words[1]) == "__node" && string(words[2]) == filepath.Dir(log) && string(words[3]) == index
	})
}

// daemonsOf are Slurm's own processes for a running job on its node.
func (b *berth) daemonsOf(id string) (pids []int) {
	b.t.Helper()
	for _, wrapper := range b.wrappers(id) {
		raw := testkit.Read(b.t, "/proc/"+itoa(wrapper)+"/stat")
		fields := strings.Fields(raw[strings.LastIndex(raw, ")"):])
		parent, err := strconv.Atoi(fields[2])
		testkit.Must(b.t, err)
		pids = append(pids, parent)
	}
	return pids
}

func find(is func(pid string) bool) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range all {
		if pid := filepath.Base(path); is(pid) {
			n, _ := strconv.Atoi(pid) // it is digits
			pids = append(pids, n)
		}
	}
	return pids
}

func kill(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) == 0 {
		t.Fatal("there is no process to kill")
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone with another
	}
}
