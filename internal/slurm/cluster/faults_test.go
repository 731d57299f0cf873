package cluster_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// TestKillBerthAtEachStep: whatever it was about to do when it was killed, each job
// runs exactly once.
func TestKillBerthAtEachStep(t *testing.T) {
	t.Parallel()
	b := pitch(t, testkit.NewSlurm(t, testkit.SlurmSetup{CPUs: 8}))
	testkit.Must(t, os.Mkdir(b.file("ran"), 0o755))
	var ids []string
	for _, step := range []string{"handed over:1", "submitted:1", "handed over:2", "submitted:2"} {
		b.faults = step
		b.start()
		for i := range 4 {
			ids = append(ids, b.asked(itoa(1+i%2)))
		}
		b.dies()
	}
	b.faults = ""
	b.start()
	n := 0
	for _, id := range ids {
		if id != "" { // it may have died before it answered
			b.ends(id, "ok")
			n++
		}
	}
	if n < 4 {
		t.Errorf("only %d of %d were accepted", n, len(ids))
	}
	b.ranOnce("ran", b.accepted())
}

// asked submits a job to a daemon that may die meanwhile; its id is empty then.
func (b *berth) asked(cpus string) string {
	out, status := b.run("submit", "--quiet", "--to", "slurm", "--gpus", "0", "--cpus", cpus, "--", "echo x >>ran/$BERTH_JOB_ID; sleep 0.3")
	if status != 0 {
		return ""
	}
	return out
}

// accepted is how many jobs there are. One may have been accepted whose answer got
// lost.
func (b *berth) accepted() int {
	b.t.Helper()
	return strings.Count(b.must("list", "--all", "--limit", "0", "--format", "{{.id}}"), "\n") + 1
}

// TestKillBerthAnyTime: as above, at times that nobody chose.
func TestKillBerthAnyTime(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{CPUs: 8})
	testkit.Must(t, os.Mkdir(b.file("ran"), 0o755))
	chance := rand.New(rand.NewPCG(11, 12))
	var ids []string
	rounds := 6
	if long() {
		rounds = 40
	}
	for round := range rounds {
		for i := range 4 {
			if id := b.asked(itoa(1 + i%2)); id != "" {
				ids = append(ids, id)
			}
		}
		pause := time.NewTimer(time.Duration(chance.IntN(2500)) * time.Millisecond)
		<-pause.C
		b.kill()
		if round%3 == 2 { // and slurmctld with it, which saves its jobs: a node refuses ids given twice
			b.slurm.StopController(t)
			b.start()
			b.slurm.StartController(t)
			continue
		}
		b.start()
	}
	for _, id := range ids {
		b.ends(id, "ok")
	}
	b.ranOnce("ran", b.accepted())
}

// TestAFullDisk: a job waits while its files cannot be written, says so, and goes on
// when there is room. The record of one that ends meanwhile arrives, and one that
// Slurm tried to start meanwhile is handed over again.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	b := pitch(t, testkit.NewSlurm(t, testkit.SlurmSetup{Nodes: 2}))
	disk := b.file(".local/state/berth/slurm")
	testkit.Must(t, os.MkdirAll(disk, 0o700))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "berth-test", disk).CombinedOutput(); err != nil {
		t.Skipf("a small disk needs the right to mount: %s", out)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	b.start()
	b.slurm.Must(t, "sbatch", "-w", "n2", "--exclusive", "--output=/dev/null", "--wrap", "while [ ! -e "+b.file("free")+" ]; do sleep 0.1; done")
	queued := b.submit("--output", "queued.log", "--slurm", "-w n2", "--", "echo queued")
	waiting := b.waits(queued, "Resources")
	first := b.submit("--output", "first.log", "--slurm", "-w n1", "--", "while [ ! -e go ]; do sleep 0.1; done; exit 7")
	b.running(first)
	fill(t, disk)
	second := b.submit("--output", "second.log", "--", "echo second")
	v := b.waits(second, "no space left")
	contains(t, b.must("why", second), "cannot be written", "no space left")
	if strings.Contains(v.reason(), "cannot be reached") {
		t.Errorf("it blames Slurm: %s", v)
	}
	testkit.Write(t, b.file("free"), "")
	testkit.Eventually(t, "Slurm tries to start a job", func() bool {
		return strings.Contains(b.slurm.Must(t, "squeue", "--states=all", "--noheader", "--format=%T", "--jobs="+waiting.slurm()), "FAILED")
	})
	testkit.Write(t, b.file("go"), "")
	testkit.Eventually(t, "the wrapper cannot leave its record", func() bool {
		all, _ := filepath.Glob(filepath.Join(disk, "*", "*", "slurm.out"))
		return len(all) > 0
	})
	testkit.Must(t, os.Remove(filepath.Join(disk, "filler")))
	b.ends(first, "exit:7")
	b.printed(b.ends(second, "ok"), "second\n")
	b.printed(b.ends(queued, "ok"), "queued\n")
}

// fill leaves no room on a disk.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	testkit.Must(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 1 << 12, 1} {
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		err = nil
	}
}

// TestRefusals: what Slurm does not take fails in Slurm's words.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{})
	for _, row := range []struct{ options, words string }{
		{"--partition=nowhere", "partition"},
		{"--nodelist=nowhere", "node"},
		{"--reservation=none", "reservation"},
		{"--bogus=1", "bogus"},
	} {
		if v := b.ends(b.submit("--slurm", row.options, "--", "true"), "launch"); !strings.Contains(strings.ToLower(v.reason()), row.words) {
			t.Errorf("%s: %s", row.options, v)
		}
	}
	for _, row := range [][]string{{"--slurm", "--array=1-3"}, {"--slurm", "--nodes=2"}} {
		if out, status := b.run(append([]string{"submit", "--to", "slurm", "--gpus", "0"}, append(row, "--", "true")...)...); status != 1 {
			t.Errorf("%q: status %d, %s", row, status, out)
		}
	}
}

// TestAnOutage: while slurmctld is down every verb answers, and afterwards all goes
// on.
func TestAnOutage(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{})
	runs := b.submit("--", "while [ ! -e go ]; do sleep 0.1; done; echo ran")
	stopped := b.submit("--", "sleep 300")
	b.running(runs)
	b.running(stopped)
	b.slurm.StopController(t)
	waits := b.submit("--", "echo waited")
	gone := b.submit("--", "echo gone >gone")
	b.waits(waits, "cannot be reached")
	contains(t, b.must("why", waits), "last answer at")
	contains(t, b.must("list"), "cannot be reached")
	contains(t, b.must("show", runs), "running")
	b.must("cancel", gone)
	b.ends(gone, "cancelled")
	b.must("cancel", stopped)
	b.ends(stopped, "cancelled") // its wrapper needs no slurmctld
	testkit.Write(t, b.file("go"), "")
	b.printed(b.ends(runs, "ok"), "ran\n") // its record needs no slurmctld
	b.slurm.StartController(t)
	b.printed(b.ends(waits, "ok"), "waited\n")
	if _, err := os.Stat(b.file("gone")); err == nil {
		t.Error("a cancelled job ran")
	}
}

// TestAFailedNode: its jobs run again, unless they must not, and never twice at the
// same time.
func TestAFailedNode(t *testing.T) {
	t.Parallel()
	b := newBerth(t, testkit.SlurmSetup{Conf: []string{"SlurmdTimeout=6"}})
	const command = `exec 9>$BERTH_JOB_NAME.lock; flock -n 9 || echo twice >twice; echo x >>$BERTH_JOB_NAME.ran; [ $(wc -l <$BERTH_JOB_NAME.ran) = 2 ] || while :; do sleep 0.2; done`
	lost := b.submit("--name", "lost", "--slurm", "--no-requeue", "--", command)
	again := b.submit("--name", "again", "--", command)
	cut := b.submit("--name", "cut", "--requeue", "--", command) // the node goes on, and Slurm does not see it
	b.running(cut)
	var all []int
	for _, id := range []string{lost, again} {
		v := b.running(id)
		all = append(append(all, b.daemonsOf(id)...), b.processes(v)...)
	}
	b.slurm.KillNode(t, 1)
	kill(t, all)
	if v := b.ends(lost, "lost"); !strings.Contains(v.reason(), "n1 failed") {
		t.Errorf("%s", v)
	}
	for _, id := range []string{again, cut} {
		b.until(id, "queued again", func(v *view) bool { return v.State == "queued" || v.Attempt == 2 })
	}
	b.slurm.StartNode(t, 1)
	for _, id := range []string{again, cut} {
		if v := b.ends(id, "ok"); v.Attempt != 2 {
			t.Errorf("%s", v)
		}
	}
	if _, err := os.Stat(b.file("twice")); err == nil {
		t.Error("a job ran twice at the same time")
	}
	if got := testkit.Read(t, b.file("lost.ran")); got != "x\n" {
		t.Errorf("the lost one ran as %q", got)
	}
}
