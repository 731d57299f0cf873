package engine

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/engine/waiting"
	"berth/internal/queue/store"
	"berth/internal/sched"
)

// accept stages a request and returns where its answer will stand.
func (r *rig) accept(user string, specs ...job.Spec) (jobs []*job.Job, answer *error) {
	answer = new(error)
	*answer = errUnanswered
	for _, s := range specs {
		jobs = append(jobs, &job.Job{User: user, Spec: s})
	}
	r.at().queue.Number(jobs)
	for _, j := range jobs {
		j.Rank = j.Seq
	}
	r.at().requests.Accept(journal.Batch{Jobs: jobs, Blobs: map[string][]byte{"env": []byte("A=1")}, Done: func(err error) { *answer = err }})
	return jobs, answer
}

var errUnanswered = errors.New("not answered yet")

// noRoomForNew is a disk with room for changes, but none for new jobs.
func noRoomForNew(r *rig) func(store.Tx) error {
	return func(tx store.Tx) error {
		for _, j := range tx.Put {
			if r.rows[j.ID] == nil {
				return errDisk
			}
		}
		return nil
	}
}

func TestAJobIsAcceptedWhenItIsOnDiskAndNotBefore(t *testing.T) {
	r := newRig(t, 1)
	_, answer := r.accept("ann", spec(), spec())
	if !errors.Is(*answer, errUnanswered) {
		t.Error("answered before the commit")
	}
	if live := r.at().line.Roster.Has("1"); live || r.at().line.Roster.Owned("ann") != 2 || r.at().line.Roster.Size() != 2 {
		t.Errorf("staged: live %v, owned %d, size %d", live, r.at().line.Roster.Owned("ann"), r.at().line.Roster.Size())
	}
	r.step()
	if *answer != nil {
		t.Errorf("answer: %v", *answer)
	}
	r.wantTold("queued 1", "queued 2")
	if string(r.blobs["env"]) != "A=1" || r.at().line.Roster.Owned("ann") != 2 || r.at().line.Roster.Size() != 2 {
		t.Errorf("blobs %q, owned %d, size %d", r.blobs, r.at().line.Roster.Owned("ann"), r.at().line.Roster.Size())
	}
	r.step() // the loop does this at once where jobs were let in
	r.wantRow("1", job.Running, "")
}

func TestNewJobsThatDoNotFitOnTheDiskAreRefusedAndTheRestIsWritten(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec())
	r.hear(run.Ended, "1", keep.Record{ExitCode: 3}, false)
	r.refuse = noRoomForNew(r)
	_, answer := r.accept("ann", spec())
	r.did = nil
	r.step()
	if !errors.Is(*answer, store.ErrFull) {
		t.Errorf("answer: %v", *answer)
	}
	r.wantRow("1", job.Failed, "exit:3")
	if live := r.at().line.Roster.Has("2"); live || r.at().line.Roster.Size() != 0 || r.at().line.Roster.Owned("ann") != 0 {
		t.Errorf("what was refused is live: %v, size %d, owned %d", live, r.at().line.Roster.Size(), r.at().line.Roster.Owned("ann"))
	}
	if r.at().explain.Blocked() != "" {
		t.Errorf("blocked: %q", r.at().explain.Blocked())
	}
}

func TestARefusalWithNothingElseToWriteLeavesNoTrouble(t *testing.T) {
	r := newRig(t, 1)
	r.refuse = noRoomForNew(r)
	_, answer := r.accept("ann", spec())
	r.step()
	if !errors.Is(*answer, store.ErrFull) || r.at().explain.Blocked() != "" || !r.at().Written() {
		t.Errorf("answer %v, blocked %q, written %v", *answer, r.at().explain.Blocked(), r.at().Written())
	}
	r.refuse = nil
	_, answer = r.accept("ann", spec())
	r.step()
	r.step()
	if *answer != nil {
		t.Errorf("answer: %v", *answer)
	}
	r.wantRow("2", job.Running, "")
}

func TestWhoWaitsForACommitHearsHowItWent(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec())
	for _, want := range []error{store.ErrFull, nil} {
		r.commitErr = nil
		if want != nil {
			r.commitErr = errDisk
		}
		r.at().queue.Hold("2", "ann")
		got := errUnanswered
		r.e.turn.changes.Then(func(err error) { got = err })
		_ = r.e.Step(r.now)
		if !errors.Is(got, want) || want == nil && got != nil {
			t.Errorf("told %v, want %v", got, want)
		}
	}
	if !r.row("2").Held {
		t.Error("what could not be written at first was forgotten")
	}
}

func TestAJobThatCannotStartJustNowGoesBackAndIsTriedAgain(t *testing.T) {
	now := true
	r := newRig(t, 1, func(c *Config) {
		order := c.Order
		c.Order = func(j *job.Job, card launch.CardOf) (keep.Order, error) {
			if now {
				return keep.Order{}, errors.Join(errors.New("who ann is cannot be looked up"), ErrNotNow)
			}
			return order(j, card)
		}
	})
	r.submit(spec())
	r.step()
	row := r.row("1")
	if row.State != job.Queued || row.Attempt.Number != 0 || row.Log != "" || len(row.Grant.GPUs) != 0 || row.Keep != "" {
		t.Errorf("it is %s, attempt %d, log %q, on %v under %q", row.State, row.Attempt.Number, row.Log, row.Grant.GPUs, row.Keep)
	}
	if why := r.at().explain.Why("1"); !strings.Contains(why, "not before") || !strings.Contains(why, "cannot be looked up") {
		t.Errorf("why: %q", why)
	}
	r.pass(notNowDelay / 2)
	if row := r.row("1"); row.Attempt.Number != 0 || row.State != job.Queued {
		t.Errorf("tried again too soon: %s, attempt %d", row.State, row.Attempt.Number)
	}
	now = false
	r.pass(notNowDelay)
	r.pass(time.Second)
	if row := r.row("1"); row.State != job.Running || row.Attempt.Number != 1 {
		t.Errorf("it is %s, attempt %d, though it could start by now", row.State, row.Attempt.Number)
	}
	if len(r.idle) > 1 {
		t.Errorf("supervisors %v were given back more than once", r.idle)
	}
}

func TestRequeue(t *testing.T) {
	tests := []struct {
		name string
		do   func(*rig)
		want job.State
	}{
		{"ended as asked, it runs again", func(r *rig) { r.end("1", keep.Record{Signal: 15, Stop: "requeue"}, false) }, job.Running},
		{"so does one that finishes before the order reaches it", func(r *rig) { r.end("1", keep.Record{}, false) }, job.Running},
		{"and one that fails by itself", func(r *rig) { r.end("1", keep.Record{ExitCode: 1}, false) }, job.Running},
		{"one whose supervisor is lost", func(r *rig) { r.hear(run.Lost, "1", keep.Record{}, false); r.pass(time.Second) }, job.Running},
		{"one whose supervisor never ran it", func(r *rig) { r.hear(run.NeverRan, "1", keep.Record{}, false); r.pass(time.Second) }, job.Running},
		{"given up meanwhile, it does not", func(r *rig) {
			r.at().requests.CancelBy("1", "bob", 0)
			r.step()
			r.end("1", keep.Record{Signal: 15, Stop: "requeue"}, false)
		}, job.Cancelled},
		{"nor where the supervisor is lost", func(r *rig) {
			r.at().requests.CancelBy("1", "bob", 0)
			r.step()
			r.hear(run.Lost, "1", keep.Record{}, false)
			r.pass(time.Second)
		}, job.Cancelled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := runOne(t)
			if !r.at().requests.Requeue("1", "ann", time.Second) {
				t.Fatal("refused")
			}
			r.step()
			if row := r.row("1"); row.Stop != job.StopRequeue {
				t.Errorf("on disk it is stopped for %q", row.Stop)
			}
			test.do(r)
			row := r.row("1")
			if row.State != test.want {
				t.Fatalf("it is %s (%s), want %s", row.State, row.Detail, test.want)
			}
			if row.State == job.Cancelled && !strings.Contains(row.Detail, "bob") {
				t.Errorf("detail: %q", row.Detail)
			}
			if row.State == job.Running && row.Stop != job.NoStop {
				t.Errorf("the new attempt is stopped for %q", row.Stop)
			}
		})
	}
}

func TestARequeueOutlivesBerth(t *testing.T) {
	r := runOne(t)
	r.at().requests.Requeue("1", "ann", time.Second)
	r.step()
	r.did = nil
	r.again(foundOne(run.FoundRunning, keep.Record{}))
	r.step()
	if !slices.ContainsFunc(r.did, func(act string) bool { return strings.HasPrefix(act, "stop t1 requeue") }) {
		t.Errorf("the next berth did %q", r.did)
	}
	r.end("1", keep.Record{Signal: 15, Stop: "requeue"}, false)
	r.wantRow("1", job.Running, "")
}

func TestAJobThatIsGivenUpCannotBeRequeued(t *testing.T) {
	r := runOne(t)
	r.at().requests.CancelBy("1", "ann", 0)
	if r.at().requests.Requeue("1", "ann", 0) {
		t.Error("it is said to run again")
	}
	r.step()
	r.end("1", keep.Record{Signal: 15, Stop: "cancel"}, false)
	r.wantRow("1", job.Cancelled, job.WasCancelled)
}

func TestARequeuedJobKeepsItsPlace(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Submissions = true })
	r.accept("ann", spec(), spec())
	r.step()
	r.step()
	r.at().requests.Requeue("1", "ann", 0)
	r.end("1", keep.Record{Signal: 15, Stop: "requeue"}, false)
	r.wantRow("1", job.Running, "")
	r.wantRow("2", job.Queued, "")
}

func TestHold(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec())
	if r.at().queue.Hold("1", "ann") {
		t.Error("a running job was held")
	}
	if !r.at().queue.Hold("2", "ann") || r.at().queue.Hold("2", "ann") || r.at().queue.Unhold("9", "ann") {
		t.Error("a queued job is held once, and one that never was not released")
	}
	r.end("1", keep.Record{}, false)
	r.wantRow("2", job.Queued, "")
	if why := r.at().explain.Why("2"); !strings.Contains(why, "held") {
		t.Errorf("why: %q", why)
	}
	r.again()
	r.pass(time.Second)
	r.wantRow("2", job.Queued, "")
	if !r.at().queue.Unhold("2", "ann") || r.at().queue.Unhold("2", "ann") {
		t.Error("it is released once")
	}
	r.pass(time.Second)
	r.wantRow("2", job.Running, "")
}

func TestAPauseOutlivesBerthAndTouchesNothingThatRuns(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec())
	if r.at().health.Pause(7, true, "root") {
		t.Error("a card that does not exist was paused")
	}
	r.at().health.Pause(0, true, "root")
	r.at().health.Pause(1, true, "root")
	r.submit(spec())
	r.wantRow("1", job.Running, "")
	r.wantRow("2", job.Queued, "")
	if why := r.at().explain.Why("2"); !strings.Contains(why, "paused") {
		t.Errorf("why: %q", why)
	}
	r.again(foundOne(run.FoundRunning, keep.Record{}))
	if err := r.at().recovery.Pauses(func(key string) (string, error) { return r.meta[key], nil }); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Second)
	r.wantRow("2", job.Queued, "")
	if by := r.at().cards.Book.PausedBy("GPU-1"); by != "root" {
		t.Errorf("paused by %q", by)
	}
	r.at().health.Pause(1, false, "root")
	r.pass(time.Second)
	r.wantRow("2", job.Running, "")
	if r.meta[cards.PausedKey] != `{"GPU-0":"root"}` {
		t.Errorf("on disk: %s", r.meta[cards.PausedKey])
	}
}

func fairShare(c *Config) { c.Rules.Fair, c.HalfLife, c.Submissions = true, time.Hour, true }

func TestUsersTakeTurnsAndWhatTheyHadIsKept(t *testing.T) {
	r := newRig(t, 1, fairShare)
	r.accept("ann", spec(), spec(), spec())
	r.step()
	r.step()
	r.accept("bob", spec())
	r.step()
	r.pass(10 * time.Minute)
	r.end("1", keep.Record{}, false)
	r.wantRow("4", job.Running, "") // ann had the card, so bob comes before her older jobs
	if wait := r.at().observer.wait(true); wait > waiting.UsageDelay {
		t.Errorf("the loop would sleep %s and leave what users had in memory", wait)
	}
	r.pass(waiting.UsageDelay)
	if !strings.Contains(r.meta[waiting.UsageKey], `"ann":`) {
		t.Fatalf("on disk: %q", r.meta[waiting.UsageKey])
	}
	before := r.e.turn.line.Usage.Seconds["ann"]
	r.boot(nil, nil, fairShare)
	if err := r.at().recovery.Usage(func(key string) (string, error) { return r.meta[key], nil }); err != nil {
		t.Fatal(err)
	}
	if got := r.e.turn.line.Usage.Seconds["ann"]; got != before || got < 500 {
		t.Errorf("ann had %.0f s, the next berth says %.0f", before, got)
	}
	if got := r.e.turn.line.Usage.Decayed(r.e.turn.line.Usage.At.Add(time.Hour), time.Hour)["ann"]; got < before*0.49 || got > before*0.51 {
		t.Errorf("an hour later it counts %.0f of %.0f", got, before)
	}
}

func TestALastRoundWritesDownWhatWasPutOff(t *testing.T) {
	r := newRig(t, 1, fairShare)
	r.accept("ann", spec())
	r.step()
	r.step()
	r.pass(time.Minute)
	r.end("1", keep.Record{}, false)
	r.e.saveLast()
	if !strings.Contains(r.meta[waiting.UsageKey], `"ann":`) {
		t.Errorf("on disk: %q", r.meta[waiting.UsageKey])
	}
}

func TestRetire(t *testing.T) {
	r := newRig(t, 1)
	_, _ = r.accept("ann", spec())
	if r.at().Retire() {
		t.Error("it went with a job on its way in")
	}
	r.step()
	r.step()
	if r.at().Retire() {
		t.Error("it went with a job running")
	}
	r.end("1", keep.Record{}, false)
	if !r.at().Retire() || !r.at().Stopping() {
		t.Error("it stays with nothing to do")
	}
}

func TestNewRulesApplyToWhatIsQueued(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(vram(4000)), spec(vram(4000)), spec(vram(4000)))
	r.submit(spec())
	rules := r.e.turn.cfg.Rules
	rules.JobsPerGPU = 4
	r.at().set.Rules(rules, settings.Limits{Default: sched.Limit{Jobs: 4}})
	r.pass(time.Second)
	r.wantRow("4", job.Running, "")
	if share := r.row("4").Grant.Share; share != 0.25 {
		t.Errorf("the queued job was given the share %v", share)
	}
	r.submit(spec(vram(1000)))
	r.at().set.Rules(rules, settings.Limits{Default: sched.Limit{Jobs: 3}})
	r.pass(time.Second)
	if why := r.at().explain.Why("5"); !strings.Contains(why, "3") {
		t.Errorf("why: %q", why)
	}
}

func TestWalksOfTheRoster(t *testing.T) {
	r := newRig(t, 1)
	r.accept("ann", spec(), spec(), spec(), spec())
	r.step()
	for _, id := range []string{"2", "3"} {
		j := r.e.turn.line.Roster.Get(id)
		r.e.turn.line.Roster.Forget(j)
		j.ID = "2_" + string('4'+id[0]-'2') // an array whose number is 2
		r.e.turn.line.Roster.Know(j)
	}
	var back, tasks []string
	r.at().line.Roster.EachBack(4, func(j *job.Job) bool { back = append(back, j.ID); return len(back) < 2 })
	r.at().line.Roster.EachTask("2", func(j *job.Job) { tasks = append(tasks, j.ID) })
	r.at().line.Roster.EachTask("1", func(j *job.Job) { t.Errorf("job %s is no task of 1", j.ID) })
	if want := []string{"2_5", "2_4"}; !slices.Equal(back, want) {
		t.Errorf("back from 4: %v, want %v", back, want)
	}
	if want := []string{"2_4", "2_5"}; !slices.Equal(tasks, want) {
		t.Errorf("tasks of 2: %v, want %v", tasks, want)
	}
}

func TestManyShortJobsCountAsMuchAsALongOne(t *testing.T) {
	r := newRig(t, 1, fairShare)
	for range 50 {
		jobs, _ := r.accept("ann", spec())
		r.step()
		r.pass(100 * time.Millisecond)
		r.end(jobs[0].ID, keep.Record{Elapsed: 100 * time.Millisecond}, false)
	}
	if got := r.e.turn.line.Usage.Seconds["ann"]; got < 4 {
		t.Errorf("fifty short jobs count %.3f s", got)
	}
}

// TestAnArrivalShowsTheJobAsItWas, whatever happens to it later: the event may have the
// job itself.
func TestAnArrivalShowsTheJobAsItWas(t *testing.T) {
	r := newRig(t, 1)
	r.peaks["tune"] = 5000 // so that the second job's declaration is not on disk when it is told
	jobs, _ := r.accept("ann", spec(), spec(auto, command("tune")), spec(after("1", job.AfterFail)), spec())
	r.step()
	var arrived, asTold []*job.Job
	for _, ev := range r.told {
		if ev.Kind == job.EventQueued {
			arrived, asTold = append(arrived, ev.Job), append(asTold, ev.Job.Clone())
		}
	}
	if len(arrived) != len(jobs) {
		t.Fatalf("%d of %d jobs were told", len(arrived), len(jobs))
	}
	for _, id := range []string{"2", "4"} {
		r.at().queue.Edit(id, spec(vram(100)), 50)
	}
	r.step()
	r.end("1", keep.Record{}, false)
	r.at().requests.Cancel("4", "cancelled")
	r.step()
	r.wantRow("3", job.Depends.State(), job.Depends)
	for i, j := range arrived {
		if j.State != job.Queued || !reflect.DeepEqual(j, asTold[i]) {
			t.Errorf("job %s was told as %+v, and is %+v now", j.ID, asTold[i], j)
		}
	}
}
