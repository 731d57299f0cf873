package engine

import (
	"errors"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/engine/waiting"
	"berth/internal/sched"
	"berth/internal/sched/predict"
)

func limit(d time.Duration) func(*job.Spec) { return func(s *job.Spec) { s.TimeLimit = d } }

// pendingOf is a job as the plan sees it.
func (r *rig) pendingOf(id string) sched.Pending {
	r.t.Helper()
	p, queued := r.e.turn.line.Queue.Get(id)
	if !queued {
		r.t.Fatalf("job %s is not in the queue", id)
	}
	return p
}

func TestSinceWhenAJobWaits(t *testing.T) {
	const hour = time.Hour
	for _, test := range []struct {
		name string
		play func(r *rig) // what becomes of job 2 within the hour
		want time.Duration
	}{
		{"since it was submitted", func(r *rig) { r.submit(spec()); r.pass(hour) }, 0},
		{"since its time came", func(r *rig) {
			r.submit(spec())
			r.at().queue.Begin("2", r.now.Add(20*time.Minute))
			r.pass(hour)
		}, 20 * time.Minute},
		{"since it was released", func(r *rig) {
			r.submit(spec())
			r.at().queue.Hold("2", "ann")
			r.pass(10 * time.Minute)
			r.at().queue.Unhold("2", "ann")
			r.pass(50 * time.Minute)
		}, 10 * time.Minute},
		{"since the last ended that it waited for", func(r *rig) {
			r.submit(spec(after("3", job.AfterAny), after("4", job.AfterAny)), spec(gpus(0)), spec(gpus(0)))
			r.pass(10 * time.Minute)
			r.end("3", keep.Record{}, false)
			r.pass(10 * time.Minute)
			r.end("4", keep.Record{}, false)
			r.pass(40 * time.Minute)
		}, 20*time.Minute + 10*time.Millisecond},
		{"since it came back", func(r *rig) {
			r.end("1", keep.Record{}, false)
			r.submit(spec(retries(1)))
			r.pass(30 * time.Minute)
			r.submit(spec(priority(3)))
			r.hear(run.Ended, "2", keep.Record{ExitCode: 1}, true)
			r.pass(30 * time.Minute)
		}, 30*time.Minute + 10*time.Millisecond},
		{"as before, when its start came to nothing", func(r *rig) {
			r.end("1", keep.Record{}, false)
			r.submit(spec())
			r.submit(spec(priority(3)))
			r.now = r.now.Add(30 * time.Minute)
			r.hear(run.NeverRan, "2", keep.Record{}, false)
			r.pass(30 * time.Minute)
		}, 10 * time.Millisecond},
	} {
		r := newRig(t, 1)
		r.submit(spec())
		test.play(r)
		if got := r.pendingOf("2").Since.Sub(start0); got != test.want {
			t.Errorf("%s: %v after the beginning, want %v", test.name, got, test.want)
		}
		submitted := r.pendingOf("2").Submitted
		if row := r.row("2").SubmittedAt; !submitted.Equal(row) || row.IsZero() {
			t.Errorf("%s: submitted %v, the plan sees %v", test.name, row, submitted)
		}
		rules := r.e.turn.cfg.Rules
		rules.MarginMiB++
		r.at().set.Rules(rules, settings.Limits{})
		if got := r.pendingOf("2").Since.Sub(start0); got != test.want {
			t.Errorf("%s: under other rules %v, want %v", test.name, got, test.want)
		}
		r.again()
		if got := r.pendingOf("2").Since.Sub(start0); got != test.want {
			t.Errorf("%s: after a restart %v, want %v", test.name, got, test.want)
		}
		if got := r.pendingOf("2").Submitted; !got.Equal(submitted) {
			t.Errorf("%s: after a restart submitted %v, want %v", test.name, got, submitted)
		}
	}
}

func TestHowARunningJobStands(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec())
	r.pass(time.Hour)
	r.submit(spec(priority(3), limit(2*time.Hour), gives, warned(time.Minute)))
	r.pass(time.Hour)
	r.end("1", keep.Record{}, false)
	r.pass(time.Minute)
	want := sched.Allocation{
		User: "ann", Priority: 3, Seq: 2, Submitted: start0.Add(time.Hour), Started: start0.Add(2*time.Hour + 10*time.Millisecond),
		Waited: time.Hour + 10*time.Millisecond, Limit: 2*time.Hour + 10*time.Second, Preempt: sched.Preempt{Mode: sched.Requeue, StopTime: time.Minute + 10*time.Second},
	}
	held := func() sched.Allocation { return r.at().explain.State().Allocations[0] }
	got := held()
	want.Run = got.Run // which the book answers for
	if got.User != want.User || got.Priority != want.Priority || got.Seq != want.Seq || !got.Submitted.Equal(want.Submitted) || !got.Started.Equal(want.Started) ||
		got.Waited != want.Waited || got.Limit != want.Limit || got.Preempt != want.Preempt || got.BeingPreempted || got.Run.High == 0 || got.Run.High > got.Limit {
		t.Errorf("the plan sees\n%+v, want\n%+v", got, want)
	}
	r.at().requests.Cancel("2", "asked")
	r.step()
	if got := held(); got.Preempt.Mode != "" || got.BeingPreempted || got.Run.Left(r.now.Sub(got.Started), got.Limit).High != 10*time.Second {
		t.Errorf("told to end, the plan sees %+v", got)
	}
}

func TestHowLongAJobHadWaited(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec())
	r.submit(spec())
	r.at().queue.Begin("2", r.now.Add(20*time.Minute))
	r.pass(time.Hour)
	r.end("1", keep.Record{}, false)
	r.at().queue.Begin("2", time.Time{}) // what a running job was not to begin before is past
	r.again(run.Found{Kind: run.FoundRunning, Token: r.row("2").Keep, Job: "2", Attempt: 1})
	if h := r.at().explain.State().Allocations; len(h) != 1 || h[0].Waited != 40*time.Minute+10*time.Millisecond {
		t.Errorf("the plan sees %+v", h)
	}
}

func TestWhatRanBeforeIsExpectedAgain(t *testing.T) {
	r := newRig(t, 1)
	long := command("python train.py --seed 1")
	r.submit(spec(long), spec(command("python train.py --seed 2")))
	if p := r.pendingOf("2"); p.Run != (sched.Estimate{}) {
		t.Errorf("nothing is known, and it is expected to run for %+v", p.Run)
	}
	r.pass(time.Hour)
	r.end("1", keep.Record{Elapsed: time.Hour}, false)
	r.submit(spec(command("python train.py --seed 3")))
	for _, id := range []string{"2", "3"} {
		g, _, live := r.at().explain.Estimate(id)
		if !live || g.Source != predict.FromProgram || g.Samples != 1 || g.Mid < 50*time.Minute || g.Mid > 70*time.Minute {
			t.Errorf("job %s: %v %+v", id, live, g)
		}
	}
	if _, _, live := r.at().explain.Estimate("1"); live {
		t.Error("a job that is over is expected to run")
	}
	if p := r.pendingOf("3"); p.Run.Mid < 50*time.Minute {
		t.Errorf("queued after the first run it is expected to run for %+v", p.Run)
	}
	if h := r.at().explain.State().Allocations[0]; h.Run.Mid < 50*time.Minute {
		t.Errorf("running it is expected to run for %+v", h.Run)
	}
}

func TestThoseInTheQueueHearOfAFirstRun(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(command("python train.py 1")), spec(command("sleep")), spec(command("python train.py 3")), spec(command("python other.py")))
	r.pass(time.Hour)
	r.end("1", keep.Record{Elapsed: time.Hour}, false)
	if p := r.pendingOf("3"); p.Run.Mid < 50*time.Minute || !p.Since.Equal(start0) {
		t.Errorf("one like it is expected to run for %+v, waiting since %v", p.Run, p.Since)
	}
	if p := r.pendingOf("4"); p.Run != (sched.Estimate{}) {
		t.Errorf("another was told too: %+v", p.Run)
	}
	r.end("2", keep.Record{Elapsed: time.Second}, false)
	r.end("3", keep.Record{Elapsed: time.Hour}, false)
	r.end("4", keep.Record{Elapsed: time.Second}, false)
	if e := r.e; len(e.turn.line.InLine)+len(e.turn.line.Expect.Alike)+len(e.turn.line.Expect.Learnt)+len(e.turn.line.Expect.Autos) != 0 {
		t.Errorf("with an empty queue there is %v %v %v %v", e.turn.line.InLine, e.turn.line.Expect.Alike, e.turn.line.Expect.Learnt, e.turn.line.Expect.Autos)
	}
}

func TestALongQueueIsNotGoneThroughAtOnce(t *testing.T) {
	r := newRig(t, 1)
	specs := []job.Spec{}
	for range 2*waiting.ReviewAtOnce + 10 {
		specs = append(specs, spec(command("python train.py")))
	}
	r.submit(specs...)
	r.pass(time.Hour)
	known := func() (n int) {
		for id := range r.e.turn.line.InLine {
			if r.pendingOf(id).Run.Mid > 0 {
				n++
			}
		}
		return n
	}
	r.hear(run.Ended, "1", keep.Record{Elapsed: time.Hour}, false)
	if n := known(); n != waiting.ReviewAtOnce {
		t.Errorf("at once %d of the queue are gone through", n)
	}
	if wait := r.at().observer.wait(true); wait > time.Millisecond {
		t.Errorf("with more to do the loop sleeps for %v", wait)
	}
	for range 2 {
		r.pass(time.Second)
	}
	if n := known(); n != len(specs)-2 || r.e.turn.line.Expect.Review != nil {
		t.Errorf("in the end %d of %d are", n, len(specs))
	}
}

func TestWhatIsRecalled(t *testing.T) {
	ran := func(outcome job.Outcome, change ...func(*job.Spec)) *job.Job {
		return &job.Job{
			User: "ann", Spec: spec(change...), State: outcome.State(), Outcome: outcome, Attempt: job.Attempt{PeakMiB: map[int]int64{0: 4000, 1: 5000}, StartedAt: start0, EndedAt: start0.Add(time.Hour)},
		}
	}
	for _, test := range []struct {
		name    string
		job     *job.Job
		samples int
		peak    int64
	}{
		{"one that ended well", ran(job.OK), 1, 5000},
		{"one that failed", ran(job.Exited(1)), 0, 0},
		{"one that reached its time limit", ran(job.Timeout), 0, 0},
		{"one that ran out of memory does not tell how much is enough", ran(job.OOM), 0, 0},
		{"one that was cancelled would have taken longer", ran(job.WasCancelled), 0, 0},
		{"one that was lost too", ran(job.Lost), 0, 0},
		{"one that never began", ran(job.Launch), 0, 0},
		{"one without a card", ran(job.OK, gpus(0)), 0, 0},
	} {
		r := newRig(t, 1)
		r.at().recovery.Recall(func(most int) ([]*job.Job, error) {
			if most != waiting.MaxPast {
				t.Errorf("%d are asked for", most)
			}
			return []*job.Job{test.job}, nil
		})
		r.submit(spec())
		g, m, _ := r.at().explain.Estimate("1")
		if g.Samples != test.samples || m.HighMiB != test.peak {
			t.Errorf("%s: %+v %+v", test.name, g, m)
		}
	}
	r := newRig(t, 1)
	r.at().recovery.Recall(func(int) ([]*job.Job, error) { return nil, errors.New("a broken disk") })
	r.submit(spec())
	r.wantRow("1", job.Running, "")
}

// TestJobsWithoutACard are estimated from runs of the same command alone, and say
// nothing about jobs with one.
func TestJobsWithoutACard(t *testing.T) {
	sleep := func(n string) job.Spec { return spec(gpus(0), command("sleep "+n)) }
	r := newRig(t, 1, func(c *Config) { c.Host.CPUs = 1 })
	r.submit(sleep("9"), sleep("9"), sleep("20"), spec(command("sleep 9")))
	r.pass(9 * time.Second)
	r.hear(run.Ended, "1", keep.Record{Elapsed: 9 * time.Second}, false)
	for id, want := range map[string]predict.Source{"2": predict.FromCommand, "3": predict.FromNothing, "4": predict.FromNothing} {
		g, _, _ := r.at().explain.Estimate(id)
		run := r.e.turn.line.Span(r.e.turn.line.Roster.Get(id))
		if g.Source != want || (run != sched.Estimate{}) != (want == predict.FromCommand) {
			t.Errorf("job %s: %+v, %+v; want it from %s", id, g, run, want)
		}
	}
}

func TestVRAMAutoOfACommandWithOtherNumbers(t *testing.T) {
	auto := func(s *job.Spec) { s.VRAMAuto = true }
	r := newRig(t, 2)
	r.peaks["python train.py --seed 3"] = 3000
	r.submit(spec(auto, command("python train.py --seed 1")), spec(auto, command("python train.py --seed 2")))
	if r.row("1").Grant.Alone != true || r.row("2").Grant.Alone != true {
		t.Error("the first runs are not alone")
	}
	r.submit(spec(auto, command("python train.py --seed 7")), spec(auto, command("python other.py --seed 7")))
	r.uses("1", 0, 4000)
	r.pass(time.Second)
	r.clear(0)
	r.end("1", keep.Record{}, false)
	r.submit(spec(auto, command("python train.py --seed 3")), spec(auto, command("python train.py --seed 1")))
	seven, third, first := r.row("3").VRAMMiB, r.row("5").VRAMMiB, r.row("6").VRAMMiB
	if third != 3300 {
		t.Errorf("measured itself, it declares %d MiB", third)
	}
	if seven <= 4400 {
		t.Errorf("one like it declares %d MiB: other numbers may need more than the one that was measured", seven)
	}
	if first != 4400 {
		t.Errorf("the very same command declares %d MiB", first)
	}
	if other := r.row("4").VRAMMiB; other != 0 {
		t.Errorf("another command declares %d MiB", other)
	}
}

// What a program used with other arguments is only a guess: it gives way to what
// the command itself used, while the job still waits.
func TestVRAMAutoPrefersTheSameArguments(t *testing.T) {
	auto := func(s *job.Spec) { s.VRAMAuto = true }
	small, large := command("train.py --batch 8"), command("train.py --batch 64")
	r := newRig(t, 1)
	r.submit(spec(auto, large))
	r.submit(spec(auto, small), spec(auto, small))
	r.uses("1", 0, 9000)
	r.pass(time.Second)
	r.clear(0)
	r.end("1", keep.Record{}, false)
	mib, from := r.at().explain.Auto("ann", &r.row("3").Spec)
	if mib != 19800 || from.Source != predict.FromProgram || from.Samples != 1 {
		t.Errorf("a job with other arguments would declare %d MiB, from %+v", mib, from)
	}
	if got := r.row("3").VRAMMiB; got != mib {
		t.Errorf("it declares %d MiB", got)
	}
	r.uses("2", 0, 3000)
	r.pass(time.Second)
	r.clear(0)
	r.end("2", keep.Record{}, false)
	if got := r.row("3").VRAMMiB; got != 3300 {
		t.Errorf("once the same command used 3000 MiB it declares %d MiB", got)
	}
	if _, m, _ := r.at().explain.Estimate("3"); m.Source != predict.FromCommand || m.HighMiB != 3000 {
		t.Errorf("its memory is estimated as %+v", m)
	}
}

func TestTheEstimateOfARunningJobIsLongerThanItRan(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(command("train.py")))
	r.pass(time.Second)
	r.end("1", keep.Record{Elapsed: time.Second}, false)
	r.submit(spec(command("train.py")), spec(command("train.py"), func(s *job.Spec) { s.TimeLimit = time.Hour }))
	r.pass(8 * time.Second)
	if g, _, _ := r.at().explain.Estimate("2"); g.Low < 8*time.Second || g.High <= g.Low || g.Source != predict.FromCommand {
		t.Errorf("after 8 s: %+v", g)
	}
	r.pass(time.Minute)
	if g, _, _ := r.at().explain.Estimate("2"); g.Source != predict.FromNothing || g.High != 0 {
		t.Errorf("nothing took more than a minute: %+v", g)
	}
	r.end("2", keep.Record{}, false)
	r.pass(20 * time.Minute)
	if g, _, _ := r.at().explain.Estimate("3"); g.Source != predict.FromLimit || g.Low < 20*time.Minute || g.High > time.Hour+10*time.Second {
		t.Errorf("the limit is all that is known: %+v", g)
	}
	r.submit(spec(gpus(0)))
	if g, _, _ := r.at().explain.Estimate("4"); g.Source != predict.FromNothing {
		t.Errorf("a job without a GPU is expected to be like those with one: %+v", g)
	}
}

func TestTimeAloneMovesThePlan(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(gives, vram(20000)))
	r.pass(time.Second)
	r.submit(spec(priority(1), vram(20000)))
	at := r.at().round.decideAt()
	if !at.After(r.now) {
		t.Fatalf("the plan is to be looked at again at %v", at)
	}
	if wait := r.at().observer.wait(true); wait > at.Sub(r.now) {
		t.Errorf("the loop sleeps for %v", wait)
	}
	r.now = at.Add(-time.Millisecond)
	r.look()
	r.step()
	r.wantRow("1", job.Running, "")
	if r.row("1").Leaving() {
		t.Error("it leaves too early")
	}
	r.now = at
	r.step() // without a look at the cards, which would decide anyway
	if !r.row("1").Leaving() {
		t.Error("nobody looked again when it was time")
	}
	r.at().requests.Interrupt(false)
	if !r.at().round.decideAt().IsZero() {
		t.Error("an engine that stops has something to decide")
	}
}

// A job that was passed over for too long goes before every priority, with or
// without fair share. All who tell of the order have to agree on that.
func TestAnOverdueJobsPositionIsTheSameForShowForWhyAndOnTheBoard(t *testing.T) {
	for _, fair := range []bool{false, true} {
		r := newRig(t, 1, func(c *Config) { c.Rules.Fair, c.Rules.MaxBypass, c.HalfLife = fair, time.Hour, time.Hour })
		r.submit(spec())
		r.submit(spec())
		r.pass(time.Second)
		r.pass(2 * time.Hour)
		r.submit(spec(priority(5)))
		story, queued := sched.Tell(r.at().explain.State(), "2")
		if !queued || story.Position != 1 {
			t.Fatalf("fair share %v: why says position %d (queued: %v), want 1", fair, story.Position, queued)
		}
		if got := r.at().explain.Position("2"); got != story.Position {
			t.Errorf("fair share %v: show says position %d, why says %d", fair, got, story.Position)
		}
		if next := r.at().explain.Next(1); len(next) != 1 || next[0].ID != "2" {
			t.Errorf("fair share %v: the board begins with %v, want job 2", fair, next)
		}
	}
}
