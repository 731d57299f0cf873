package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/queue/fair"
)

// TestWhyTellsTheStory of jobs on a real engine: who holds the cards, who goes
// first, what is expected and what that rests on.
func TestWhyTellsTheStory(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	busy := l.one(sh(line, "gpus", "2", "timeout", "1h"))
	l.untilState(busy, job.Running)
	low := l.one(sh("true", "gpus", "2", "timeout", "30m"))
	high := l.one(sh("true", "gpus", "2", "timeout", "20m", "priority", "5"))
	held := l.one(sh("x", "hold", "yes"))

	why := l.why(low)
	b, e := why.Behind, why.Expected
	switch {
	case b == nil || b.ID != high || b.First != "priority" || b.Priority != 5:
		t.Errorf("it waits behind %+v", b)
	case e == nil || e.Running != 1 || e.InFront != 1 || e.Limit != 2 || e.Unknown != 0 || e.Mid.IsZero() || e.High.IsZero():
		t.Errorf("it is expected %+v", e)
	case e.High.Sub(e.Now).Minutes() < 75 || e.High.Sub(e.Now).Minutes() > 80.5:
		t.Errorf("its last expected start is %s after now, want an hour, twenty minutes and two grace periods", e.High.Sub(e.Now))
	case why.Kind != "gpus" || why.Needs != "2 idle GPUs" || why.Since.IsZero() || why.Position != 2 || why.NoStart != "":
		t.Errorf("the story is %+v", why)
	case len(why.Cards) != 2 || why.Cards[0].Fits || why.Cards[0].Obstacle != "taken" || len(why.Cards[0].Runs) != 1 || why.Cards[0].Runs[0].ID != busy || why.Cards[0].Runs[0].By != "limit":
		t.Errorf("the cards are %+v", why.Cards)
	}
	if why = l.why(high); why.Behind != nil || why.Expected == nil || why.Position != 1 {
		t.Errorf("the first: %+v", why)
	}
	if why = l.why(held); why.NoStart != "gate" || why.Expected != nil || why.Behind != nil || !strings.Contains(why.Text, "held") {
		t.Errorf("held: %+v", why)
	}
	if why = l.why(busy); why.Expected == nil || why.Expected.High.Sub(why.Expected.Now).Minutes() > 60 || why.Expected.Limit != 1 {
		t.Errorf("it runs: %+v", why.Expected)
	}
	guess := l.job(low).ExpectedRun
	if guess == nil || guess.HighS != 1810 || guess.Source != "limit" || guess.Runs != 0 {
		t.Errorf("expected to run %+v", guess)
	}
	if l.job(low).ExpectedVRAM != nil {
		t.Error("memory is expected of a command that never ran")
	}

	open()
	l.end(low)
	l.end(high)
	if why = l.why(low); why.Expected != nil || why.ExpectedRun != nil || why.Text != "finished successfully" {
		t.Errorf("over: %+v", why)
	}
	again := l.one(sh("true", "gpus", "2", "hold", "yes"))
	if guess = l.job(again).ExpectedRun; guess == nil || guess.Source != "command" || guess.Runs != 2 {
		t.Errorf("after two runs of it: %+v", guess)
	}
}

// TestOneStoryAtATime: of a long queue a story takes a while, and whoever asks
// for many does not stand in front of everybody else.
func TestOneStoryAtATime(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.d.svc.gate = fair.NewGate(1, 1) // as on a machine with two cores
	line, open := l.gate("gate")
	busy := l.one(sh(line, "gpus", "2"))
	l.untilState(busy, job.Running)
	waits := l.one(sh("true", "gpus", "2"))
	leave, err := l.d.svc.gate.Enter(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if why := l.why(busy); why.State != "running" { // it needs no turn, and nor does anything else
		t.Errorf("it runs: %+v", why)
	}
	soon, cancel := context.WithTimeout(l.ctx, 200*time.Millisecond)
	defer cancel()
	if why, err := l.d.jobs.Why(soon, api.Caller{Admin: true}, waits); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a story was told out of turn: %+v, %v", why, err)
	}
	leave()
	if why := l.why(waits); why.Position != 1 {
		t.Errorf("it waits: %+v", why)
	}
	open()
}

func (l *lab) why(id string) api.Why {
	l.t.Helper()
	why, err := api.Call(l.ctx, l.Client, api.GetWhy, api.JobID{ID: id})
	if err != nil {
		l.t.Fatal(err)
	}
	return why
}

// TestWhatIsGuessedOfACommandIsItsOwners: when a job starts is everybody's
// business; what its command did before is not.
func TestWhatIsGuessedOfACommandIsItsOwners(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t, with(func(c *config.Config) { c.Limits = config.Limits{} }))
	ann, bob := l.as("daemon"), l.as("nobody")
	line, _ := l.gate("gate")
	busy := ann.submit(sh(line, "gpus", "2", "timeout", "1h"))[0]
	l.untilState(busy, job.Running)
	waits := ann.submit(sh("true", "gpus", "2", "timeout", "1h"))[0]
	for _, row := range []struct {
		who  person
		sees bool
	}{{ann, true}, {bob, false}, {l.as("root"), true}} {
		why, err := row.who.d.jobs.Why(l.ctx, row.who.Caller, waits)
		if err != nil || why.Expected == nil || why.ExpectedRun != nil != row.sees {
			t.Errorf("%s is told %+v, %v", row.who.Name, why, err)
		}
		detail, err := row.who.d.jobs.Job(l.ctx, row.who.Caller, waits)
		if err != nil || detail.ExpectedRun != nil != row.sees {
			t.Errorf("%s is shown %+v, %v", row.who.Name, detail.ExpectedRun, err)
		}
	}
}

// TestRunsWithOtherArgumentsAreAGuess: short trials say little about the long run
// that follows them, which may take until its time limit.
func TestRunsWithOtherArgumentsAreAGuess(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, seconds := range []string{"0.1", "0.2", "0.1"} {
		l.finished(l.one(sh("sleep "+seconds, "gpus", "2")))
	}
	long := l.one(sh("sleep 3000", "gpus", "2", "timeout", "4h"))
	l.untilState(long, job.Running)
	next := l.one(sh("true", "gpus", "2"))
	limit := time.Now().Add(3 * time.Hour)
	why := l.why(next)
	if e := why.Expected; e == nil || e.Guessed != 1 || e.History != 0 || e.High.Before(limit) {
		t.Errorf("the next one is expected %+v", e)
	}
	if e := l.why(long).Expected; e == nil || e.Guessed != 1 || e.High.Before(limit) {
		t.Errorf("it is expected to end %+v", e)
	}
	if run := l.job(long).ExpectedRun; run == nil || run.Source != "program" || run.HighS < time.Until(limit).Seconds() || run.MidS > 60 {
		t.Errorf("it is expected to run for %+v", run)
	}
}
