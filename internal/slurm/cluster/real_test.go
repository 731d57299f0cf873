package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/slurm"
	"berth/internal/tests/testkit"
)

// newRealQueue is a queue that hands over to a real Slurm.
func newRealQueue(t *testing.T, s *testkit.Slurm) *queue {
	t.Helper()
	t.Setenv("BERTH_LEDGER_DIR", t.TempDir())
	dir, err := os.MkdirTemp("/var/tmp", "berth-cluster-") // its path must be short enough for sockets
	testkit.Must(t, err)
	q := &queue{t: t, dir: dir, vars: slurm.Environ(s.Env()), pace: pace{
		look: 100 * time.Millisecond, queue: 300 * time.Millisecond, troubled: 300 * time.Millisecond, stop: 5 * time.Second,
		patience: 3 * time.Second, stuck: time.Minute, fence: 3 * time.Second, full: time.Second, gather: 20 * time.Millisecond,
	}}
	q.start()
	t.Cleanup(func() {
		q.stop()
		_ = os.RemoveAll(dir)
	})
	return q
}

// over waits for the end of a job.
func (q *queue) over(id string) job.Job {
	q.t.Helper()
	var j job.Job
	if !testkit.Holds(4*testkit.Patience, func() bool { j = q.job(id); return j.State.Terminal() }) {
		q.t.Fatalf("job %s has not ended: %s, %s, %+v\n%s", id, j.State, q.why(id), j.Handover, q.tail(&j))
	}
	return j
}

// tail is what the node said about a job.
func (q *queue) tail(j *job.Job) string {
	out, _ := os.ReadFile(slurmLog(j.Handover.Dir))
	log, _ := os.ReadFile(filepath.Join(q.dir, "berth.log"))
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ev := range q.events {
		if ev.Job != nil {
			out = fmt.Appendf(out, "%s %s %s %s\n", ev.At.Format(time.TimeOnly), ev.Kind, ev.Job.ID, ev.Text)
		}
	}
	return string(out) + string(log)
}

func shell(lines ...string) func(int, *job.Job) {
	return func(i int, j *job.Job) { j.Spec.Shell, j.Spec.GPUs = lines[i%len(lines)], 0 }
}

// TestJobsOnARealSlurm: each way to end comes back as it was, with what the job
// printed.
func TestJobsOnARealSlurm(t *testing.T) {
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Nodes: 2, GPUs: 2, CPUs: 4})
	q := newRealQueue(t, s)
	ids := q.submit(5, func(i int, j *job.Job) {
		shell("echo gpu $CUDA_VISIBLE_DEVICES on $SLURMD_NODENAME $A", "exit 3", "kill -9 $$", "cd /nowhere || exit 7", "sleep 100")(i, j)
		j.Spec.GPUs = 1
		if i == 4 {
			j.Spec.GPUs, j.Spec.TimeLimit, j.Spec.Grace = 0, 2*time.Second, time.Second
		}
	})
	for i, want := range []job.Outcome{job.OK, "exit:3", "signal:KILL", "exit:7", job.Timeout} {
		j := q.over(ids[i])
		if j.Outcome != want || j.Handover.Node == "" || j.StartedAt.IsZero() {
			t.Errorf("job %d ended as %s (%s) on %q\n%s", i, j.Outcome, j.Detail, j.Handover.Node, q.tail(&j))
		}
		if out := strings.TrimSpace(testkit.Read(t, j.Log)); i == 0 && !strings.HasPrefix(out, "gpu ") || i == 0 && !strings.HasSuffix(out, " b") {
			t.Errorf("it printed %q", out)
		}
	}
}

// TestStopsOnARealSlurm: cancelled while it waits and while it runs, by berth and by
// Slurm's own scancel.
func TestStopsOnARealSlurm(t *testing.T) {
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Nodes: 1, GPUs: 1, CPUs: 4})
	q := newRealQueue(t, s)
	ids := q.submit(4, func(i int, j *job.Job) { j.Spec.Shell, j.Spec.GPUs = "exec sleep 1000", 1 })
	running := ""
	testkit.Eventually(t, "one runs and the others wait", func() bool {
		waiting := 0
		for _, id := range ids {
			if j := q.job(id); j.State == job.Running {
				running = id
			} else if strings.Contains(q.why(id), "in Slurm's queue as") {
				waiting++
			}
		}
		return running != "" && waiting == 3
	})
	cancel := func(id string) { q.act(func(t *engine.Turn) { t.Requests().CancelBy(id, "ann", 0) }) }
	var others []string
	for _, id := range ids {
		if id != running {
			others = append(others, id)
		}
	}
	cancel(others[0])
	if j := q.over(others[0]); j.Outcome != job.WasCancelled || j.Detail != "cancelled by ann" {
		t.Errorf("waiting: %s: %s", j.Outcome, j.Detail)
	}
	cancel(running)
	if j := q.over(running); j.Outcome != job.WasCancelled || j.Detail != "cancelled by ann while running" {
		t.Errorf("running: %s: %s", j.Outcome, j.Detail)
	}
	for _, id := range []string{others[2], others[1]} {
		if id == others[1] { // in the moment of its start berth would hand it over again
			testkit.Eventually(t, "it runs", func() bool { return q.job(id).State == job.Running })
		}
		j := q.job(id)
		s.Must(t, "scancel", j.Handover.Slurm)
		if j := q.over(id); j.Outcome != job.WasCancelled || !strings.Contains(j.Detail, "in Slurm") {
			t.Errorf("by scancel: %s: %s\n%s", j.Outcome, j.Detail, q.tail(&j))
		}
	}
	testkit.Eventually(t, "Slurm's queue is empty", func() bool { return s.Must(t, "squeue", "--noheader") == "" })
}

// TestKillSlurmctld: jobs are submitted while slurmctld is killed again and again,
// and berth restarted. Each job runs exactly once.
func TestKillSlurmctld(t *testing.T) {
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Nodes: 2, GPUs: 4, CPUs: 8})
	q := newRealQueue(t, s)
	ran := filepath.Join(q.dir, "ran")
	testkit.Must(t, os.Mkdir(ran, 0o755))
	chance := rand.New(rand.NewPCG(7, 7))
	var ids []string
	for round := range 4 {
		ids = append(ids, q.submit(10, func(i int, j *job.Job) {
			j.Spec.GPUs, j.Spec.CPUs = i%2, 1+i%2
			j.Spec.Shell = fmt.Sprintf("echo x >>%s/%s; sleep 0.%d", ran, j.ID, i)
		})...)
		// Somewhere between the first sbatch and the last end.
		some := ids[len(ids)-1-chance.IntN(10)]
		testkit.Eventually(t, "one is on its way", func() bool { j := q.job(some); return j.Handover.Batch != "" })
		s.KillController(t)
		if round%2 == 1 {
			q.stop()
			q.start()
		}
		s.StartController(t)
	}
	// A job that Slurm was starting when its controller was killed may be held by it.
	testkit.Within(t, 4*testkit.Patience, "all have ended", func() bool {
		for _, held := range strings.Fields(s.Must(t, "squeue", "--noheader", "--states=PENDING", "--format=%i:%r")) {
			if id, why, _ := strings.Cut(held, ":"); why == "launch" { // "launch failed requeued held"
				s.Must(t, "scontrol", "release", id)
			}
		}
		return !slices.ContainsFunc(ids, func(id string) bool { j := q.job(id); return !j.State.Terminal() })
	})
	for _, id := range ids {
		j := q.over(id)
		out, _ := os.ReadFile(filepath.Join(ran, id))
		if j.Outcome != job.OK || string(out) != "x\n" {
			t.Errorf("job %s ended as %s (%s) and ran as %q\n%s", id, j.Outcome, j.Detail, out, q.tail(&j))
		}
	}
}
