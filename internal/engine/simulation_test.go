package engine

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/run"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "replay one seed of the simulation")
	seedCount = flag.Int("seeds", 2000, "how many seeds to simulate")
)

// TestSimulation runs the engine in a world where berth may be killed between
// any two steps, supervisors die, the disk fills and the cards cannot be read.
// In the storm nothing bad may happen; in the calm after it everything ends.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		if err := simulate(*seedFlag); err != nil {
			t.Fatalf("seed %d: %v", *seedFlag, err)
		}
		return
	}
	n := *seedCount
	if v, err := strconv.Atoi(os.Getenv("BERTH_SEEDS")); err == nil {
		n = v
	}
	if testing.Short() {
		n = min(n, 200)
	}
	for seed := uint64(1); seed <= uint64(n); seed++ {
		if err := simulate(seed); err != nil {
			t.Fatalf("%v\nreplay: go test ./internal/engine -run TestSimulation -seed %d", err, seed)
		}
	}
}

// simulate plays one seed to its end.
func simulate(seed uint64) error {
	w := newWorld(seed, 1+int(seed%3))
	jobs := 3 + w.rng.IntN(12)
	var submitted []*job.Job
	for i := range jobs {
		submitted = append(submitted, w.randomJob(i, jobs))
	}
	e := w.boot(submitted)
	for round := 0; ; round++ {
		if round == 400 {
			w.storm = false
		}
		if round > 20000 {
			return fmt.Errorf("not everything ended: %s", w.unfinished())
		}
		e = w.round(e)
		if len(w.wrongs) > 0 {
			return fmt.Errorf("%s", w.wrongs[0])
		}
		if e != nil && w.allOver() {
			break
		}
	}
	return w.audit()
}

func (w *world) randomJob(i, jobs int) *job.Job {
	spec := job.Defaults()
	spec.Shell = fmt.Sprintf("job %d", i)
	if w.rng.IntN(3) > 0 {
		spec.VRAMMiB = int64(1+w.rng.IntN(20)) * 1000
	}
	if w.rng.IntN(4) == 0 {
		spec.GPUs = 1 + w.rng.IntN(2)
	}
	spec.Retries = w.rng.IntN(3)
	spec.Requeue = w.rng.IntN(2) == 0
	if w.rng.IntN(4) == 0 {
		spec.RetryOn = job.RetryFail
	}
	if i > 0 && w.rng.IntN(5) == 0 {
		spec.After = []job.Dependency{{Job: strconv.Itoa(1 + w.rng.IntN(i)), On: job.AfterAny}}
	}
	_ = jobs
	return &job.Job{Spec: spec, Rank: int64(i)}
}

// boot starts an engine over what is on disk, as a new berth would.
func (w *world) boot(fresh []*job.Job) *Engine {
	for _, k := range w.sortedKeeps() {
		if k.alive && k.order == nil {
			k.alive = false // it reads end-of-file and exits
		}
	}
	w.inbox = nil
	var last int64
	var live []*job.Job
	for _, row := range w.rows {
		last = max(last, row.Seq)
		if !row.State.Terminal() {
			live = append(live, row.Clone())
		}
	}
	slices.SortFunc(live, func(a, b *job.Job) int { return int(a.Seq - b.Seq) })
	e := New(Config{
		Rules: w.rules(), Poll: time.Second, Tolerance: 0.1, User: "ann",
		Order:   func(j *job.Job) keep.Order { return keep.Order{Job: j.ID, Attempt: j.Attempt} },
		LogPath: func(j *job.Job) string { return j.ID },
	}, w, w, nil, w, w, last)
	e.Restore(w.now, live, w.scan())
	if fresh != nil {
		e.Number(fresh)
		e.Submit(w.now, fresh)
	}
	return e
}

// scan is what a new berth finds of the supervisors.
func (w *world) scan() []run.Found {
	var found []run.Found
	for _, k := range w.sortedKeeps() {
		if k.removed {
			continue
		}
		f := run.Found{Token: k.token}
		switch {
		case k.started == nil || (k.order == nil && k.ended == nil):
			f.Kind = run.FoundEmpty
		case k.ended != nil:
			f.Kind, f.Record, f.OOM = run.FoundEnded, *k.ended, k.oom
		case k.alive:
			f.Kind = run.FoundRunning
		default:
			f.Kind = run.FoundLost
			if k.running != nil {
				w.hunt(k)
			} else {
				started := *k.started
				w.report(run.Event{Kind: run.Lost, Token: k.token, Job: started.Job, Attempt: started.Attempt, Record: started})
			}
		}
		if k.started != nil && f.Kind != run.FoundEmpty {
			f.Job, f.Attempt = k.started.Job, k.started.Attempt
		}
		found = append(found, f)
	}
	return found
}

// round advances the world a little and gives the engine a turn. It returns
// the engine that lives afterwards.
func (w *world) round(e *Engine) (survivor *Engine) {
	w.now = w.now.Add(time.Duration(1+w.rng.IntN(400)) * time.Millisecond)
	w.happen()
	if w.chance(40) {
		for _, k := range w.sortedKeeps() {
			if k.alive && w.rng.IntN(3) == 0 {
				w.killKeep(k)
			}
		}
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			survivor = w.reboot()
		}
	}()
	if e == nil {
		return w.boot(w.resubmit())
	}
	for _, ev := range w.take() {
		e.Absorb(w.now, ev)
	}
	if w.chance(50) {
		e.Cancel(w.now, strconv.Itoa(1+w.rng.IntN(12)), "a person asked")
	}
	if e.NeedsSample(w.now) {
		s, err := w.sample()
		e.Observe(w.now, s, err)
	}
	if w.chance(100) {
		panic(crash{})
	}
	_ = e.Step(w.now)
	return e
}

// reboot tries to start a new berth, which may be killed at once as well.
func (w *world) reboot() (e *Engine) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			e = nil
		}
	}()
	return w.boot(w.resubmit())
}

// resubmit: nothing was acknowledged before the first commit, so the jobs of
// a berth that died before it are submitted again, as the jobs file would.
func (w *world) resubmit() []*job.Job {
	if len(w.rows) > 0 || w.steps > 0 {
		w.steps++
		return nil
	}
	var again []*job.Job
	for i := range 5 {
		again = append(again, w.randomJob(i, 5))
	}
	return again
}

func (w *world) take() []run.Event {
	events := w.inbox
	w.inbox = nil
	return events
}

// happen lets everything come to pass whose time has come, in order.
func (w *world) happen() {
	for {
		slices.SortStableFunc(w.later, func(a, b delayed) int { return a.at.Compare(b.at) })
		if len(w.later) == 0 || w.later[0].at.After(w.now) {
			return
		}
		first := w.later[0]
		w.later = w.later[1:]
		first.do()
	}
}

func (w *world) allOver() bool {
	if len(w.rows) == 0 {
		return false
	}
	for _, row := range w.rows {
		if !row.State.Terminal() {
			return false
		}
	}
	return true
}

func (w *world) unfinished() string {
	var text string
	for id, row := range w.rows {
		if !row.State.Terminal() {
			text += fmt.Sprintf("job %s %s attempt %d keep %s; ", id, row.State, row.Attempt, row.Keep)
		}
	}
	return text
}

// audit holds what is on disk against what really ran.
func (w *world) audit() error {
	for id, row := range w.rows {
		var last *execution
		runs := 0
		for _, x := range w.history {
			if x.job == id {
				last = x
				runs++
			}
			if x.alive {
				return fmt.Errorf("job %s still runs, though all is over", x.job)
			}
		}
		if err := auditJob(row, last, runs); err != nil {
			return fmt.Errorf("job %s (%d runs): %w", id, runs, err)
		}
	}
	return nil
}

func auditJob(row *job.Job, last *execution, runs int) error {
	switch row.Outcome {
	case job.OK:
		if last == nil || !last.ended || last.code != 0 || last.stopped != "" {
			return fmt.Errorf("reported ok, but its last run was %+v", last)
		}
	case job.Lost:
		if last == nil || !last.lost {
			return fmt.Errorf("reported lost, but its last run was %+v", last)
		}
	case job.OOM:
		if last == nil || !last.oom {
			return fmt.Errorf("reported oom, but its last run was %+v", last)
		}
	case job.WasCancelled, job.Infeasible, job.Depends:
	default:
		code, ok := row.Outcome.ExitCode()
		if !ok || last == nil || last.code != code {
			return fmt.Errorf("reported %s, but its last run was %+v", row.Outcome, last)
		}
	}
	if runs > row.Attempt {
		return fmt.Errorf("%d runs for %d attempts", runs, row.Attempt)
	}
	return nil
}
