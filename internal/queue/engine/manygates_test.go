package engine

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/waiting"
)

// TestAlarmsRingInOrder: whatever is set, moved and taken away, the first is
// the earliest that is left.
func TestAlarmsRingInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, model := waiting.NewAlarms(), map[string]time.Time{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			id := strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "id"))
			if rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				at := start0.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "at")) * time.Second)
				a.Set(id, at)
				model[id] = at
			} else {
				a.Remove(id)
				delete(model, id)
			}
			next, ok := a.First()
			if ok != (len(model) > 0) {
				t.Fatalf("there are %d, and first says %v", len(model), ok)
			}
			for id, at := range model {
				if at.Before(next.At) {
					t.Fatalf("%s rings at %s, the first at %s", id, at, next.At)
				}
			}
			if ok && !model[next.Id].Equal(next.At) {
				t.Fatalf("%s rings at %s, not at %s", next.Id, model[next.Id], next.At)
			}
			if len(a.Heap) > 2*len(a.At)+64 {
				t.Fatalf("%d entries for %d alarms", len(a.Heap), len(a.At))
			}
		}
	})
}

// TestRoundsDoNotGrowWithWhatWaits: rounds with a hundred thousand jobs behind
// gates cost about what they cost with none.
func TestRoundsDoNotGrowWithWhatWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	few, many := idleRounds(t, 100), idleRounds(t, 100_000)
	t.Logf("ten rounds take %s with a hundred jobs, %s with a thousand times as many", few, many)
	if many > 20*few {
		t.Errorf("a thousand times as many jobs make ten rounds take %s, not %s", many, few)
	}
}

// idleRounds is the least time that ten rounds took in which nothing was to be
// done with so many jobs behind gates. The machine may be busy with something
// else, but not every time.
func idleRounds(t *testing.T, waiting int) time.Duration {
	r := newRig(t, 1)
	later := r.now.Add(24 * time.Hour)
	jobs := make([]*job.Job, waiting)
	for i := range jobs {
		jobs[i] = &job.Job{Spec: spec()}
		if i%2 == 0 {
			jobs[i].Held = true
		} else {
			jobs[i].NotBefore = later
		}
	}
	r.at().queue.Number(jobs)
	r.at().queue.Submit(jobs)
	r.step()
	least := time.Hour
	for range 100 {
		begun := time.Now()
		for range 10 {
			r.step()
			r.at().observer.wait(false)
		}
		least = min(least, time.Since(begun))
	}
	return least
}

// TestAJobMayWaitForAWholeArray: as its tasks end one by one, none of those
// that ended before is looked up again.
func TestAJobMayWaitForAWholeArray(t *testing.T) {
	r := newRig(t, 1)
	const tasks = 300
	specs := make([]job.Spec, tasks)
	last := spec(cpu)
	for i := range specs {
		specs[i] = spec(cpu)
		after(strconv.Itoa(i+1), job.AfterAny)(&last)
	}
	r.submit(append(specs, last)...)
	r.pass(time.Second) // a round starts so many
	waiting := strconv.Itoa(tasks + 1)
	r.asked = 0
	for i := range tasks {
		r.wantRow(waiting, job.Queued, "")
		r.end(strconv.Itoa(i+1), keep.Record{ExitCode: i % 2}, false)
	}
	r.wantRow(waiting, job.Running, "")
	if r.asked > tasks {
		t.Errorf("the store was asked %d times", r.asked)
	}
	if len(r.e.turn.line.Gates.Dependents)+len(r.e.turn.line.Gates.Waiting) > 0 {
		t.Error("something still waits")
	}
}

func TestALongChainThatBreaksIsWorkedOff(t *testing.T) {
	r := newRig(t, 1)
	const length = 20_000
	specs := []job.Spec{spec()}
	for i := 1; i < length; i++ {
		specs = append(specs, spec(after(strconv.Itoa(i), job.AfterOK)))
	}
	r.submit(specs...)
	r.end("1", keep.Record{ExitCode: 1}, false)
	r.wantRow("2", job.Cancelled, job.Depends)
	r.wantRow(strconv.Itoa(length), job.Cancelled, job.Depends)
}

func TestWhatNoLongerWaitsIsForgotten(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec(after("1", job.AfterOK)), spec(func(s *job.Spec) { s.VRAMAuto, s.GPUs = true, 2 }))
	r.submit(spec(func(s *job.Spec) { s.VRAMAuto = true }))
	for _, id := range []string{"2", "4"} {
		r.at().requests.Cancel(id, "asked")
	}
	r.step()
	if len(r.e.turn.line.Gates.Dependents) > 0 || len(r.e.turn.line.Expect.Autos) > 0 {
		t.Errorf("dependents %v, autos %v", r.e.turn.line.Gates.Dependents, r.e.turn.line.Expect.Autos)
	}
}

func TestAStoreThatCannotBeReadBreaksNoCondition(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec())
	r.end("1", keep.Record{}, false)
	r.readErr = errors.New("disk I/O error")
	r.submit(spec(after("1", job.AfterOK)))
	r.wantRow("2", job.Queued, "")
	r.readErr = nil
	r.pass(notNowDelay)
	r.pass(time.Second)
	r.wantRow("2", job.Running, "")
}

func TestAConditionThatHeldOnceOutlivesTheJobItWasAbout(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec(after("1", job.AfterOK), retries(1), onFail))
	r.end("1", keep.Record{}, false)
	r.wantRow("2", job.Running, "")
	delete(r.rows, "1") // forgotten: it ended long ago
	r.end("2", keep.Record{ExitCode: 1}, false)
	r.pass(time.Minute)
	r.wantRow("2", job.Running, "")
}
