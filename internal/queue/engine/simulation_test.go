package engine

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/settings"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "replay one seed of the simulation")
	seedCount = flag.Int("seeds", 2000, "how many seeds to simulate, unless BERTH_SEEDS says it")
)

// worlds is how many to simulate.
func worlds() int {
	n := *seedCount
	if v, err := strconv.Atoi(os.Getenv("BERTH_SEEDS")); err == nil {
		n = v
	}
	if testing.Short() {
		n = min(n, 200)
	}
	return n
}

// TestSimulation runs the engine in a world where berth may be killed between
// any two steps, supervisors die, the disk fills, the cards cannot be read, fail
// and get well again, external come and go, and jobs leave memory behind.
// In the storm nothing bad may happen; in the calm after it everything ends.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		if err := simulate(*seedFlag); err != nil {
			t.Fatalf("seed %d: %v", *seedFlag, err)
		}
		return
	}
	for seed := uint64(1); seed <= uint64(worlds()); seed++ {
		if err := simulate(seed); err != nil {
			t.Fatalf("%v\nreplay: go test ./internal/queue/engine -run TestSimulation -seed %d", err, seed)
		}
	}
}

// simulate plays one seed to its end.
func simulate(seed uint64) error {
	w := newWorld(seed, 1+int(seed%3))
	return w.play()
}

// play is the storm and the calm.
func (w *world) play() error {
	jobs := 3 + w.rng.IntN(12)
	var submitted []*job.Job
	for i := range jobs {
		submitted = append(submitted, w.randomJob(i))
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
	// What is over on disk may not be acknowledged yet: berth was killed, or
	// the disk was full. A berth that lives for a moment mends that.
	w.storm = false
	for range 50 {
		e = w.round(e)
	}
	return w.audit()
}

func (w *world) randomJob(i int) *job.Job {
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
		for alt := range 1 + w.rng.IntN(2) {
			on := []job.Condition{job.AfterOK, job.AfterAny, job.AfterFail, job.AfterStart}[w.rng.IntN(4)]
			d := job.Dependency{Job: strconv.Itoa(1 + w.rng.IntN(i)), On: on, Alt: alt}
			if on == job.AfterStart {
				d.DelayS = w.rng.Int64N(3)
			}
			spec.After = append(spec.After, d)
		}
	}
	if w.rng.IntN(4) == 0 {
		// One command, run several times, whose need is learnt from the first.
		spec.Shell, spec.VRAMMiB, spec.VRAMAuto = "auto", 0, true
	}
	if w.pace > 1 {
		spec.Priority = w.rng.IntN(3)
		spec.Grace = time.Duration(w.rng.IntN(3)) * time.Second
		if w.rng.IntN(4) > 0 {
			spec.Preemptible = []job.Preemptible{job.PreemptByRequeue, job.PreemptByRequeue, job.PreemptByPark, job.PreemptByEither}[w.rng.IntN(4)]
		}
		if w.rng.IntN(4) == 0 {
			spec.TimeLimit, spec.OnTimeout = time.Duration(1+w.rng.IntN(60))*time.Second, job.TimeoutPark
		}
		if w.rng.IntN(2) == 0 {
			spec.WarnSignal, spec.WarnBefore = "USR1", time.Duration(w.rng.IntN(60))*time.Second
		}
	}
	return &job.Job{Spec: spec, Rank: int64(i)}
}

// boot starts an engine over what is on disk, as a new berth would.
func (w *world) boot(fresh []*job.Job) *Engine {
	for _, k := range w.sortedKeeps() {
		if k.alive && k.order == nil {
			k.alive = false // it reads end-of-file and exits
		}
	}
	w.inbox, w.stopping = nil, false
	w.boots++
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
		Settings: settings.Settings{
			Rules: w.rules(), Devices: w.devices(), Xids: w.kernelLog(), Poll: time.Second, Tolerance: 0.1, User: "ann",
			Parking: settings.Parking{MemoryMiB: w.total, FreeMiB: freeMiB(1 << 20), Longest: 15 * time.Second},
		},
		Order:   w.order,
		LogPath: func(j *job.Job) string { return j.ID },
	}, w, w, nil, w, w, last)
	meta := func(key string) (string, error) { return w.people.meta[key], nil }
	if err := errors.Join(e.at(w.now).recovery.Pauses(meta), e.at(w.now).recovery.Health(meta)); err != nil {
		w.wrong("%v", err)
	}
	e.at(w.now).recovery.Restore(live, w.scan())
	if fresh != nil {
		e.at(w.now).queue.Number(fresh)
		e.at(w.now).queue.Submit(fresh)
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
		case k.before && (k.started == nil || (k.order == nil && k.ended == nil)):
			// Nothing is known of it: its last words may be lost.
			f.Kind = run.FoundLost
			if row := w.rowUnder(k.token); row != nil {
				w.outOfLuck[row.ID] = true
			}
			w.report(run.Event{Kind: run.Lost, Token: k.token, Record: keep.Record{BootID: "an earlier boot"}})
		case k.started == nil || (k.order == nil && k.ended == nil):
			f.Kind = run.FoundEmpty
		case k.ended != nil:
			f.Kind, f.Record, f.OOM = run.FoundEnded, *k.ended, k.oom
		case k.alive:
			f.Kind = run.FoundRunning
			w.reportParking(k, "", 0)
		default:
			f.Kind = run.FoundLost
			if k.running != nil {
				w.hunt(k)
			} else {
				started := *k.started
				w.report(run.Event{Kind: run.Lost, Token: k.token, Job: started.Job, Attempt: started.Attempt, Record: started})
			}
		}
		if k.started != nil && f.Kind != run.FoundEmpty && (k.order != nil || k.ended != nil) {
			f.Job, f.Attempt = k.started.Job, k.started.Attempt
		}
		found = append(found, f)
	}
	return found
}

// round advances the world a little and gives the engine a turn. It returns
// the engine that lives afterwards.
func (w *world) round(e *Engine) (survivor *Engine) {
	w.now = w.now.Add(time.Duration(1+w.rng.IntN(400)) * time.Millisecond * w.pace)
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
	if w.chance(150) {
		w.powerCut()
		return w.reboot()
	}
	if e == nil {
		return w.boot(w.resubmit())
	}
	for _, ev := range w.take() {
		e.at(w.now).observer.absorb(ev)
	}
	w.ask(e)
	if !w.storm {
		w.settleAll(e)
	}
	if e.at(w.now).observer.needsSample() {
		s, err := w.sample()
		e.at(w.now).observer.observe(s, err)
	}
	if w.chance(100) {
		panic(crash{})
	}
	if w.chance(100) {
		w.stopping = true
		e.at(w.now).requests.Interrupt(w.rng.IntN(2) == 0)
	}
	_ = e.Step(w.now)
	if _, running := e.at(w.now).explain.Live(); w.stopping && running == 0 {
		return nil // it exits; the next one takes over
	}
	return e
}

func (w *world) rowUnder(token string) *job.Job {
	for _, row := range w.rows {
		if (row.State == job.Running || row.State == job.Parked) && row.Keep == token {
			return row
		}
	}
	return nil
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
		again = append(again, w.randomJob(i))
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
			text += fmt.Sprintf("job %s %s attempt %d keep %s; ", id, row.State, row.Attempt.Number, row.Keep)
		}
	}
	return text
}

// audit holds what is on disk against what really ran.
func (w *world) audit() error {
	if err := w.auditPromises(); err != nil {
		return err
	}
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
		if err := w.auditJob(row, last, runs); err != nil {
			return fmt.Errorf("job %s (%d runs): %w", id, runs, err)
		}
	}
	for _, k := range w.sortedKeeps() {
		if k.order != nil && !k.removed {
			return fmt.Errorf("supervisor %s of job %s was never acknowledged", k.token, k.order.Job)
		}
	}
	return nil
}

// auditJob holds one row against the last time its command really ran.
func (w *world) auditJob(row *job.Job, last *execution, runs int) error {
	byItself := last != nil && last.ended && last.stopped == ""
	truth := false
	switch row.Outcome {
	case job.OK:
		truth = byItself && last.code == 0
	case job.OOM:
		truth = byItself && last.oom && row.RetriesUsed == row.Spec.Retries
	case job.Lost:
		truth = w.outOfLuck[row.ID] || (last != nil && last.lost && !(last.cut && row.Spec.Requeue) && !w.toldToLeave(last))
	case job.WasCancelled:
		truth = true
	case job.Resume:
		truth = last != nil && last.stopped == keep.StopBroken && !row.Spec.Requeue
	case job.Infeasible:
		truth = runs == 0 && row.Spec.GPUs > w.cards
	case job.Depends:
		truth = runs == 0 && w.broken(row)
	default:
		code, ok := row.Outcome.ExitCode()
		truth = ok && byItself && !last.oom && last.code == code
	}
	if !truth {
		return fmt.Errorf("reported %s (%s), but its last run was %+v", row.Outcome, row.Detail, last)
	}
	if last != nil && last.cut && !row.Spec.Requeue && row.Outcome != job.Lost && row.Outcome != job.WasCancelled {
		return fmt.Errorf("the machine went down under it, but it is %s", row.Outcome)
	}
	if runs > row.Attempt.Number {
		return fmt.Errorf("%d runs for %d attempts", runs, row.Attempt.Number)
	}
	return nil
}

// broken: no alternative of the job can hold any more.
func (w *world) broken(row *job.Job) bool {
	return len(row.Spec.After) > 0 && !slices.ContainsFunc(row.Spec.After, func(d job.Dependency) bool {
		return cameTrue(d.On, w.rows[d.Job].Outcome) // each is an alternative
	})
}
