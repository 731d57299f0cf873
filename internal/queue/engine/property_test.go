package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

// TestNothingIsActedOnBeforeItIsOnDisk does anything in any order. The rig
// objects to every go, stop and acknowledgement that the disk does not back;
// here the rest is held together after each round.
func TestNothingIsActedOnBeforeItIsOnDisk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(&failer{TB: t, rt: rt}, rapid.IntRange(1, 3).Draw(rt, "cards"))
		m := &machine{r: r, rt: rt}
		rt.Repeat(map[string]func(*rapid.T){
			"submit": func(rt *rapid.T) { m.submit() },
			"end":    func(rt *rapid.T) { m.end() },
			"cancel": func(rt *rapid.T) { r.at().requests.Cancel(m.anyID(), "asked") },
			"drop":   func(rt *rapid.T) { r.at().queue.Withdraw(m.anyID()) },
			"hold":   func(rt *rapid.T) { r.at().queue.Hold(m.anyID(), "ann") },
			"let go": func(rt *rapid.T) { r.at().queue.Unhold(m.anyID(), "ann") },
			"again":  func(rt *rapid.T) { r.at().requests.Requeue(m.anyID(), "ann", 0) },
			"pause":  func(rt *rapid.T) { r.at().health.Pause(0, rapid.Bool().Draw(rt, "paused"), "root") },
			"accept": func(rt *rapid.T) { r.accept("ann", m.spec()) },
			"rules": func(rt *rapid.T) {
				rules := r.e.turn.cfg.Rules
				rules.JobsPerGPU = rapid.IntRange(0, 3).Draw(rt, "jobs per card")
				r.at().set.Rules(rules, r.e.turn.cfg.Limits)
			},
			"edit": func(rt *rapid.T) {
				r.at().queue.Edit(m.anyID(), m.spec(), int64(rapid.IntRange(0, 20).Draw(rt, "rank")))
			},
			"disk":   func(rt *rapid.T) { r.commitErr = either(rt, errDisk) },
			"ledger": func(rt *rapid.T) { r.bookErr = either(rt, errOther) },
			"lock":   func(rt *rapid.T) { r.lockErr = either(rt, errOther) },
			"keeps":  func(rt *rapid.T) { r.leaseErr = either(rt, errOther) },
			"blind":  func(rt *rapid.T) { r.at().observer.observe(gpu.Sample{}, errors.New("no answer")) },
			"kill":   func(rt *rapid.T) { m.kill() },
			"stop":   func(rt *rapid.T) { r.at().requests.Interrupt(rapid.Bool().Draw(rt, "at once")) },
			"time": func(rt *rapid.T) {
				r.now = r.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond)
			},
			"look": func(rt *rapid.T) { r.look() },
			"":     func(rt *rapid.T) { _ = r.e.Step(r.now); m.check() },
		})
	})
}

// failer sends the rig's objections to rapid, so that it can shrink them.
type failer struct {
	testing.TB
	rt *rapid.T
}

func (f *failer) Errorf(format string, args ...any) { f.rt.Fatalf(format, args...) }
func (f *failer) Fatalf(format string, args ...any) { f.rt.Fatalf(format, args...) }

func either(rt *rapid.T, err error) error {
	if rapid.Bool().Draw(rt, "fails") {
		return err
	}
	return nil
}

type machine struct {
	r  *rig
	rt *rapid.T
	n  int
}

func (m *machine) anyID() string { return fmt.Sprint(rapid.IntRange(1, m.n+1).Draw(m.rt, "job")) }

func (m *machine) spec() job.Spec {
	s := spec(vram(int64(rapid.IntRange(0, 3).Draw(m.rt, "8000 MiB"))*8000), retries(rapid.IntRange(0, 2).Draw(m.rt, "retries")))
	s.GPUs = rapid.IntRange(0, 2).Draw(m.rt, "gpus")
	if s.GPUs == 0 {
		s.VRAMMiB = 0
	}
	s.Priority = rapid.IntRange(0, 1).Draw(m.rt, "priority")
	if rapid.IntRange(0, 3).Draw(m.rt, "after") == 0 && m.n > 0 {
		s.After = []job.Dependency{{Job: m.anyID(), On: rapid.SampledFrom([]job.Condition{job.AfterOK, job.AfterAny, job.AfterFail, job.AfterStart}).Draw(m.rt, "on")}}
	}
	return s
}

func (m *machine) submit() {
	m.n++
	jobs := []*job.Job{{Spec: m.spec(), Rank: int64(m.n)}}
	if len(jobs[0].Spec.After) > 0 && jobs[0].Spec.After[0].Job == fmt.Sprint(m.n+1) {
		jobs[0].Spec.After = nil // nothing waits for what is not there yet
	}
	m.r.at().queue.Number(jobs)
	m.r.e.at(m.r.now).queue.Submit(jobs)
}

// end lets one of the commands that run end somehow.
func (m *machine) end() {
	tokens := slices.Sorted(maps.Keys(m.r.orders))
	if len(tokens) == 0 {
		return
	}
	token := rapid.SampledFrom(tokens).Draw(m.rt, "token")
	o := m.r.orders[token]
	ev := run.Event{Token: token, Job: o.Job, Attempt: o.Attempt, Record: keep.Record{BootID: keep.BootID()}}
	ev.Kind = rapid.SampledFrom([]run.EventKind{run.Started, run.Ended, run.Ended, run.Lost, run.NeverRan}).Draw(m.rt, "kind")
	if ev.Kind == run.Ended {
		ev.Record.ExitCode = rapid.IntRange(0, 1).Draw(m.rt, "code")
		ev.OOM = ev.Record.ExitCode > 0 && rapid.Bool().Draw(m.rt, "oom")
		ev.Record.Stop = rapid.SampledFrom([]string{"", "", "timeout"}).Draw(m.rt, "stop")
	}
	m.r.e.at(m.r.now).observer.absorb(ev)
}

// kill is kill -9 of berth. Supervisors with an order are found at work.
func (m *machine) kill() {
	var found []run.Found
	for _, token := range slices.Sorted(maps.Keys(m.r.orders)) {
		o := m.r.orders[token]
		found = append(found, run.Found{Kind: run.FoundRunning, Token: token, Job: o.Job, Attempt: o.Attempt})
	}
	m.r.again(found...)
}

// check holds memory, disk and ledger against one another.
func (m *machine) check() {
	r := m.r
	settled := r.at().Written()
	for id, row := range r.rows {
		j := r.at().line.Roster.Get(id)
		live := j != nil
		if settled && live == row.State.Terminal() {
			m.rt.Fatalf("job %s is %s on disk, but live in memory: %v", id, row.State, live)
		}
		if settled && live && (j.State != row.State || j.Keep != row.Keep || j.Attempt.Number != row.Attempt.Number || j.VRAMMiB != row.VRAMMiB) {
			m.rt.Fatalf("job %s in memory %+v, on disk %+v", id, j, row)
		}
	}
	held := map[int]int64{}
	for _, running := range r.at().attempts.List() {
		for _, card := range running.Job.Grant.GPUs {
			held[card] += running.Job.Grant.BudgetMiB
			if held[card] > 24576 {
				m.rt.Fatalf("gpu%d is given away twice: %d MiB", card, held[card])
			}
		}
	}
	queued, running := r.at().explain.Live()
	if len(r.at().explain.Next(1000)) != queued || len(r.at().attempts.List()) != running {
		m.rt.Fatalf("%d queued and %d running, but %d and %d are listed", queued, running, len(r.at().explain.Next(1000)), len(r.at().attempts.List()))
	}
}
