package engine

import (
	"berth/internal/job"
	"berth/internal/predict"
	"berth/internal/sched"
)

// maxPast is how many of the jobs that are over an engine learns from when it
// begins: what they say of others fades quickly with their age, and nobody
// should have to wait for it.
const maxPast = 4096

// Recall takes in how the newest jobs ended before this engine was there, the
// oldest of them first. It comes before Restore. Without it berth guesses worse
// and does all else as well.
func (t *Turn) Recall(newest func(most int) ([]*job.Job, error)) {
	over, err := newest(maxPast)
	if err != nil {
		t.cfg.Log.Warn("how earlier jobs ended is not known; less can be expected of others", "err", err)
	}
	for _, j := range over {
		if p, ok := past(j); ok {
			t.book.Add(p)
		}
	}
}

// past is what a job that is over says of others. A run that somebody ended
// says nothing of how long it takes, nor does one that never was, and nobody
// plans with jobs that hold no card.
func past(j *job.Job) (predict.Past, bool) {
	switch {
	case j.Spec.GPUs == 0 || j.Spec.Adopt != nil || j.StartedAt.IsZero() || j.EndedAt.Before(j.StartedAt):
		return predict.Past{}, false
	case j.Outcome == job.WasCancelled || j.Outcome == job.Lost || j.Outcome == job.Launch:
		return predict.Past{}, false
	}
	_, peak := highest(j.PeakMiB)
	if j.Outcome != job.OK && j.Outcome != job.OOM {
		peak = 0 // it may not have reached it
	}
	return predict.Past{
		User: j.User, Command: j.Spec.Command(), GPUs: j.Spec.GPUs,
		Ran: j.EndedAt.Sub(j.StartedAt), PeakMiB: peak, OK: j.Outcome == job.OK,
	}, true
}

// ask is a job as the book knows jobs.
func (t *Turn) ask(j *job.Job) predict.Ask {
	return predict.Ask{
		User: j.User, Command: j.Spec.Command(), Key: t.inLine[j.ID].kind, GPUs: j.Spec.GPUs, Limit: j.Spec.TimeLimit,
	}
}

// span is how long a job is expected to run. Nobody plans with jobs that hold
// no card.
func (t *Turn) span(j *job.Job) sched.Span {
	if j.Spec.GPUs == 0 {
		return sched.Span{}
	}
	g := t.book.Duration(t.ask(j))
	return sched.Span{Low: g.Low, Mid: g.Mid, High: g.High}
}

// Guess is how long a job that is not over is expected to run and what memory
// it is expected to need, with what that rests on.
func (t *Turn) Guess(id string) (predict.Guess, predict.Memory, bool) {
	j, live := t.jobs[id]
	if !live {
		return predict.Guess{}, predict.Memory{}, false
	}
	memory, _ := t.book.VRAM(t.ask(j))
	return t.book.Duration(t.ask(j)), memory, true
}
