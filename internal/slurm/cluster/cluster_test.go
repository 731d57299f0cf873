package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/store"
	"berth/internal/sched"
	"berth/internal/tests/testkit"
)

// queue is an engine with its store, and a cluster beside it.
type queue struct {
	t      *testing.T
	dir    string
	fake   *fakeSlurm
	do     func(ctx context.Context, request any) (any, error) // nil: by this process
	vars   []string
	name   string // "q1" unless changed
	pace   pace
	store  *store.Store
	engine *engine.Engine
	events []job.Event
	mu     sync.Mutex
	stop   func()
}

func newQueue(t *testing.T, fake *fakeSlurm) *queue {
	t.Helper()
	t.Setenv("BERTH_LEDGER_DIR", t.TempDir())
	q := &queue{t: t, dir: t.TempDir(), fake: fake, do: fake.do, pace: pace{
		look: 5 * time.Millisecond, queue: 10 * time.Millisecond, troubled: 10 * time.Millisecond, stop: 30 * time.Millisecond,
		patience: 2 * time.Second, stuck: 200 * time.Millisecond, fence: 20 * time.Millisecond, full: 20 * time.Millisecond, gather: time.Millisecond,
	}}
	q.start()
	t.Cleanup(func() { q.stop() })
	return q
}

// start opens the store as the next berth would.
func (q *queue) start() {
	t := q.t
	s, err := store.Open(filepath.Join(q.dir, "store"))
	testkit.Must(t, err)
	last, err := s.LastSeq()
	testkit.Must(t, err)
	runner, err := run.Open(run.Options{KeepDir: filepath.Join(q.dir, "keep"), Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	box, err := gpu.OpenSim(filepath.Join(q.dir, "sim"), 1, 1000)
	testkit.Must(t, err)
	ledger, err := gpu.OpenLedger("", "test")
	testkit.Must(t, err)
	log, err := os.OpenFile(filepath.Join(q.dir, "berth.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	testkit.Must(t, err)
	launcher := launch.Launcher{JobsDir: filepath.Join(q.dir, "jobs"), Dir: "/"}
	logger := slog.New(slog.NewTextHandler(log, nil))
	var c *Cluster
	var made sync.WaitGroup
	made.Add(1)
	e := engine.New(engine.Config{
		Settings: settings.Settings{Rules: sched.DefaultRules(), Submissions: true, User: "ann", Poll: 50 * time.Millisecond, Log: logger},
		Order:    launcher.Order, LogPath: launcher.LogPath,
		Away: func() { made.Wait(); c.Wake() },
		Publish: func(events []job.Event) {
			q.mu.Lock()
			q.events = append(q.events, events...)
			q.mu.Unlock()
		},
	}, s, runner, box, ledger, run.NewAttribution(), last)
	var live []*job.Job
	testkit.Must(t, s.EachLive(func(j *job.Job) error { live = append(live, j); return nil }))
	e.Outside(time.Now(), func(t *engine.Turn) { t.Recovery().Restore(live, []run.Found{}) })
	c = New(Setup{
		Engine: e, Log: logger, Queue: cmp.Or(q.name, "q1"), Config: func() Config {
			return Config{Directory: filepath.Join(q.dir, "shared"), Program: filepath.Join(programs, "berth")}
		},
		User:    func(context.Context, *job.Job) (site.User, error) { return site.User{Home: q.dir}, nil },
		Environ: func(*job.Job) ([]string, error) { return []string{"A=b"}, nil }, LogPath: launcher.LogPath, Vars: q.vars,
	})
	if q.do != nil {
		c.As = q.as
	}
	c.pace = q.pace
	made.Done()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = e.Run(ctx, runner.Events(), nil) })
	all.Go(func() { c.Run(ctx) })
	q.store, q.engine = s, e
	q.stop = func() {
		cancel()
		all.Wait()
		testkit.Must(t, runner.Close(), ledger.Close(), box.Close(), s.Close(), log.Close())
	}
}

// as carries out a request as the process of a user would.
func (q *queue) as(ctx context.Context, _ int, input []byte) ([]byte, error) {
	m, err := decode(bytes.NewReader(input))
	testkit.Must(q.t, err)
	var a answer[any]
	a.Reply, err = q.do(ctx, m.Request)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		a.Error = err.Error()
	}
	return json.Marshal(a)
}

// submit queues jobs for Slurm and returns their ids.
func (q *queue) submit(n int, change func(i int, j *job.Job)) (ids []string) {
	q.t.Helper()
	err := q.engine.Change(context.Background(), func(t *engine.Turn) {
		jobs := make([]*job.Job, n)
		for i := range jobs {
			spec := job.Defaults()
			spec.Shell, spec.To = "true", job.ToSlurm
			jobs[i] = &job.Job{Spec: spec, User: "ann"}
		}
		t.Queue().Number(jobs)
		for i, j := range jobs {
			if change != nil {
				change(i, j)
			}
			ids = append(ids, j.ID)
		}
		t.Requests().Accept(journal.Batch{Jobs: jobs, Done: func(err error) { testkit.Must(q.t, err) }})
	})
	testkit.Must(q.t, err)
	return ids
}

// job is a job as the engine or the store has it.
func (q *queue) job(id string) job.Job {
	q.t.Helper()
	var found *job.Job
	err := q.engine.Do(context.Background(), func(t *engine.Turn) {
		if j, ok := t.Jobs().Find(id); ok {
			found = j.Clone()
		}
	})
	testkit.Must(q.t, err)
	if found == nil {
		j, err := q.store.Job(id)
		testkit.Must(q.t, err)
		found = j
	}
	return *found
}

func (q *queue) why(id string) (text string) {
	testkit.Must(q.t, q.engine.Do(context.Background(), func(t *engine.Turn) { text = t.Explain().Gate(id) }))
	return text
}

func (q *queue) act(f func(t *engine.Turn)) {
	testkit.Must(q.t, q.engine.Change(context.Background(), f))
}

// await waits for a job's state, while the cluster goes on.
func (q *queue) await(id string, states ...job.State) job.Job {
	q.t.Helper()
	var j job.Job
	testkit.Eventually(q.t, fmt.Sprintf("job %s is %v", id, states), func() bool {
		q.fake.tick()
		j = q.job(id)
		for _, state := range states {
			if j.State == state {
				return true
			}
		}
		return false
	})
	return j
}

func TestAJobRunsOnTheCluster(t *testing.T) {
	q := newQueue(t, newFake(t, 1))
	id := q.submit(1, nil)[0]
	j := q.await(id, job.Finished)
	if j.Outcome != job.OK || j.Handover.Slurm != "101" || j.Handover.Node != "n1" || j.PeakMiB[0] != 77 || j.Attempt.Number != 1 || !strings.HasSuffix(j.Log, "/0.log") {
		t.Errorf("it ended as %+v", j)
	}
	testkit.Eventually(t, "orders, which may have secrets, are removed", func() bool {
		left, _ := filepath.Glob(filepath.Join(q.dir, "shared", "*", "q1", "*", "orders"))
		return len(left) == 0
	})
}

// TestAlikeJobsAreOneArray: a thousand jobs cost one sbatch, and others go apart.
func TestAlikeJobsAreOneArray(t *testing.T) {
	q := newQueue(t, newFake(t, 1))
	ids := q.submit(300, func(i int, j *job.Job) {
		if i%100 == 7 {
			j.Spec.CPUs = 2
		}
	})
	for _, id := range ids {
		q.await(id, job.Finished)
	}
	if q.fake.calls != 2 {
		t.Errorf("sbatch was called %d times", q.fake.calls)
	}
}

// TestNothingIsLostAndNothingRunsTwice: whatever the cluster does, and with berth
// itself restarted in between, each job runs once.
func TestNothingIsLostAndNothingRunsTwice(t *testing.T) {
	for _, seed := range seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			fake := newFake(t, seed)
			fake.wild = true
			q := newQueue(t, fake)
			var ids []string
			for round := range 8 {
				ids = append(ids, q.submit(5, func(i int, j *job.Job) { j.Spec.CPUs = 1 + (round+i)%2 })...)
				for range 30 {
					fake.tick()
					q.act(func(*engine.Turn) {}) // the engine has had a round
				}
				if round%3 == 2 {
					q.stop()
					q.start()
				}
			}
			fake.mu.Lock()
			fake.wild, fake.down = false, false
			fake.mu.Unlock()
			for _, id := range ids {
				if j := q.await(id, job.Finished, job.Failed, job.Cancelled); j.Outcome != job.OK {
					t.Errorf("job %s: %s: %s", id, j.Outcome, j.Detail)
				}
				if fake.ran[id] != 1 {
					t.Errorf("job %s ran %d times", id, fake.ran[id])
				}
			}
		})
	}
}

// TestAnOutageLosesNothing: while slurmctld is down, jobs wait here and give that as
// the reason. When it answers, they are handed over.
func TestAnOutageLosesNothing(t *testing.T) {
	fake := newFake(t, 1)
	fake.down = true
	q := newQueue(t, fake)
	id := q.submit(1, nil)[0]
	testkit.Eventually(t, "the reason says so", func() bool { return strings.Contains(q.why(id), "cannot be reached") })
	q.act(func(t *engine.Turn) { t.Requests().CancelBy(id, "ann", 0) })
	testkit.Eventually(t, "it can be cancelled meanwhile", func() bool { return q.job(id).State == job.Cancelled })
	other := q.submit(1, nil)[0]
	fake.mu.Lock()
	fake.down = false
	fake.mu.Unlock()
	if j := q.await(other, job.Finished); j.Outcome != job.OK || fake.ran[other] != 1 || fake.ran[id] != 0 {
		t.Errorf("after the outage: %+v, ran %v", j, fake.ran)
	}
}

// TestCancelHoldEditInSlurmsQueue: a job that waits in Slurm's queue is still the
// user's to change.
func TestCancelHoldEditInSlurmsQueue(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	ids := q.submit(3, nil)
	waits := func(id string) bool { return strings.Contains(q.why(id), "in Slurm's queue as") }
	testkit.Eventually(t, "all are there", func() bool { return waits(ids[0]) && waits(ids[1]) && waits(ids[2]) })
	q.act(func(t *engine.Turn) {
		t.Requests().CancelBy(ids[0], "ann", 0)
		t.Queue().Hold(ids[1], "ann")
		spec := job.Defaults()
		spec.Shell, spec.To, spec.CPUs = "false", job.ToSlurm, 3
		t.Queue().Edit(ids[2], spec, 3)
	})
	testkit.Eventually(t, "one is cancelled", func() bool { return q.job(ids[0]).State == job.Cancelled })
	testkit.Eventually(t, "one is held in Slurm", func() bool { return strings.Contains(q.why(ids[1]), "JobHeldUser") })
	if j := q.job(ids[0]); fake.ran[ids[0]] != 0 || j.Detail != "cancelled by ann" {
		t.Errorf("cancelled: %+v", j)
	}
	j := q.await(ids[2], job.Finished)
	if j.Spec.CPUs != 3 || j.Spec.Shell != "false" || fake.ran[ids[2]] != 1 {
		t.Errorf("changed: %+v, ran %d times", j, fake.ran[ids[2]])
	}
	if fake.ran[ids[1]] != 0 {
		t.Error("a held job ran")
	}
	q.act(func(t *engine.Turn) { t.Queue().Unhold(ids[1], "ann") })
	q.await(ids[1], job.Finished)
}

// TestARunningJobIsStoppedBySlurm: its wrapper's record decides.
func TestARunningJobIsStoppedBySlurm(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	ids := q.submit(2, nil)
	for _, id := range ids {
		testkit.Eventually(t, "it runs", func() bool {
			fake.mu.Lock()
			for _, j := range fake.queue {
				if j.entry.State == "PENDING" {
					fake.start(j)
				}
			}
			fake.mu.Unlock()
			return q.job(id).State == job.Running
		})
	}
	q.act(func(t *engine.Turn) {
		t.Requests().CancelBy(ids[0], "ann", 0)
		t.Requests().Requeue(ids[1], "ann", 0)
	})
	testkit.Eventually(t, "one is cancelled", func() bool { return q.job(ids[0]).State == job.Cancelled })
	if j := q.await(ids[1], job.Finished); fake.ran[ids[1]] != 2 || j.Attempt.Number != 2 {
		t.Errorf("requeued: %+v, ran %d times", j, fake.ran[ids[1]])
	}
}

func TestARefusalEndsTheJob(t *testing.T) {
	fake := newFake(t, 1)
	fake.refuse = "Invalid account or account/partition combination specified"
	q := newQueue(t, fake)
	for _, id := range q.submit(3, nil) {
		if j := q.await(id, job.Failed); j.Outcome != job.Launch || !strings.Contains(j.Detail, "Invalid account") {
			t.Errorf("job %s: %s: %s", id, j.Outcome, j.Detail)
		}
	}
}

// TestWordsOfARestartAreNoRefusal: no list of what sbatch may say while slurmctld
// restarts is complete.
func TestWordsOfARestartAreNoRefusal(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	fake.restart("Unexpected error number 1234")
	ids := q.submit(3, nil)
	calls := func() int {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		return fake.calls
	}
	testkit.Eventually(t, "sbatch fails", func() bool { return calls() > 0 })
	before := calls()
	testkit.Never(t, 20*q.pace.queue, "sbatch is called before Slurm answers", func() bool { return calls() != before })
	fake.restart("")
	for _, id := range ids {
		if j := q.await(id, job.Finished); fake.ran[id] != 1 {
			t.Errorf("job %s ran %d times: %+v", id, fake.ran[id], j)
		}
	}
}

// TestDependenciesStayHere: a job is handed over when those it waits for have ended,
// wherever they run.
func TestDependenciesStayHere(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	ids := q.submit(3, func(i int, j *job.Job) {
		if i > 0 {
			j.Spec.After = []job.Dependency{{Job: "1", On: job.AfterOK}}
		}
		if i == 2 {
			j.Spec.After[0].On = job.AfterFail
		}
	})
	if why := q.why(ids[1]); !strings.Contains(why, "waits for job 1") {
		t.Errorf("it waits for: %s", why)
	}
	q.await(ids[1], job.Finished)
	if j := q.await(ids[2], job.Cancelled); j.Outcome != job.Depends || fake.ran[ids[2]] != 0 {
		t.Errorf("the third: %+v", j)
	}
}

// TestAnArraysLimitIsSlurms: the tasks of a limited array are one Slurm array.
func TestAnArraysLimitIsSlurms(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	ids := q.submit(6, func(i int, j *job.Job) {
		j.ID = fmt.Sprintf("1_%d", i)
		j.Spec.ArrayLimit = 2
	})
	for _, id := range ids {
		q.await(id, job.Finished)
	}
	if fake.calls != 1 {
		t.Errorf("sbatch was called %d times", fake.calls)
	}
}

// programs is where berth's own programs were built.
var programs string

func TestMain(m *testing.M) {
	testkit.Parallel(6)
	os.Exit(testkit.RunWith(m, func(dir string) { programs = dir }, "cmd/berth", "cmd/berth-keep"))
}

// seeds are those of the storms: a few, or as many as BERTH_STORMS says.
func seeds() []uint64 {
	n := 6
	if asked, err := strconv.Atoi(os.Getenv("BERTH_STORMS")); err == nil {
		n = asked
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(i)
	}
	return list
}

// TestKilledBeforeSbatch: what was recorded and never reached Slurm is handed over
// again by the next berth.
func TestKilledBeforeSbatch(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	fake.dead.Store(true) // nothing reaches Slurm
	id := q.submit(1, nil)[0]
	testkit.Eventually(t, "it is recorded", func() bool { j := q.job(id); return j.Handover.Batch != "" })
	recorded := q.job(id)
	q.stop()
	fake.dead.Store(false)
	testkit.Must(t, os.RemoveAll(recorded.Handover.Dir))
	q.start()
	if j := q.await(id, job.Finished); j.Handover.Batch == recorded.Handover.Batch || fake.ran[id] != 1 {
		t.Errorf("handed over again as %+v, ran %d times", j.Handover, fake.ran[id])
	}
}

// TestAReleaseIsNotForgotten: a berth that was stopped between the release and telling
// Slurm tells it when it is back.
func TestAReleaseIsNotForgotten(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	id := q.submit(1, nil)[0]
	testkit.Eventually(t, "it is in Slurm's queue", func() bool { return q.job(id).Handover.Slurm != "" })
	q.act(func(t *engine.Turn) { t.Queue().Hold(id, "ann") })
	testkit.Eventually(t, "it is held there", func() bool { return strings.Contains(q.why(id), "JobHeldUser") })
	fake.mu.Lock()
	fake.down = true // Slurm does not hear of the release
	fake.mu.Unlock()
	q.act(func(t *engine.Turn) { t.Queue().Unhold(id, "ann") })
	q.stop()
	fake.mu.Lock()
	fake.down = false
	fake.mu.Unlock()
	q.start()
	q.await(id, job.Finished)
}
