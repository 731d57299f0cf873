package daemon

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/waiting"
	"berth/internal/queue/fair"
	"berth/internal/sched"
	"berth/internal/sched/predict"
	"berth/internal/text"
)

// Why is what a job waits for, or how it ended; of an array, its first waiting
// task.
func (h *jobs) Why(ctx context.Context, c api.Caller, id string) (api.Why, error) {
	found, err := h.find.findTasks(ctx, c, id)
	switch {
	case err != nil:
		return api.Why{}, err
	case len(found) > 1:
		return h.whyArray(ctx, c, found)
	}
	return h.why(ctx, c, &found[0])
}

func (h *jobs) why(ctx context.Context, c api.Caller, j *job.Job) (api.Why, error) {
	why := api.Why{Story: reason.Story{ID: j.ID}, State: string(j.State)}
	if j.State == job.Queued {
		// In a long queue a story takes the engine some time.
		var leave func()
		ctx, leave = h.svc.gate.Begin(ctx)
		defer leave()
		if err := fair.Spend(ctx, fair.Long); err != nil {
			return api.Why{}, err
		}
	}
	hindrance, borrowed := "", map[string]string{}
	var preview *sched.Preview
	err := h.svc.Do(ctx, func(t *engine.Turn) {
		var g estimates
		if !j.State.Terminal() {
			g = estimate(t, j.ID)
		}
		switch j.State {
		case job.Queued:
			preview = whyQueued(t, &why)
		case job.Parked:
			why.Text = t.Explain().Why(j.ID)
		case job.Running:
			why.Expected = g.end(t.Now, j)
			t.Explain().Borrowed(borrowed)
			if h.svc.maySee(c, j) {
				hindrance = cmp.Or(t.Running().Hindrance(j.ID), t.Running().Uses.EndsForOveruse(j.ID))
			}
		default: // it has ended
		}
		why.Queued, _ = t.Explain().Live()
		if h.svc.maySee(c, j) {
			why.ExpectedRun, why.ExpectedVRAM = g.run, g.vram
			if g.guessed() && j.Spec.VRAMAuto && j.State == job.Queued && j.Attempt.Number == 0 && j.VRAMMiB > 0 {
				why.Notes = append(why.Notes, autoGuess(j.VRAMMiB, g.vram.Runs))
			}
		}
		if blocked := t.Explain().Blocked(); blocked != "" {
			why.Notes = append(why.Notes, blocked)
		}
	})
	if preview != nil {
		queued := why.Queued // jobs behind a gate too
		if h.svc.maySee(c, j) {
			why.Notes = append(why.Notes, h.svc.optIn(preview, j)...)
		}
		if story := preview.Stories()[0]; story.ID != "" {
			story.WasPreempted(j.PreemptedFor)
			why.Story, why.Queued = story, queued
		}
	}
	switch {
	case err != nil:
		return api.Why{}, err
	case j.State == job.Running:
		why.Text = fmt.Sprintf("running on %s since %s", cardsText(j), j.StartedAt.Local().Format(time.DateTime))
		if why.PreemptedFor = j.PreemptedFor; j.PreemptedFor != "" {
			why.Text += ", being " + reason.Preempted(j.PreemptedFor)
		}
		if words := borrowed[j.ID]; words != "" {
			why.Text += "; " + words
		}
		switch j.Parking.Phase {
		case job.ParkOut:
			why.Text += ", being parked"
		case job.ParkBack:
			why.Text += ", coming back from being parked"
		}
		if cannot := h.svc.cannotPark(); cannot != "" && j.Spec.Preemptible == job.PreemptByPark {
			why.Text += "; it cannot be parked: " + cannot
		} else if j.Parking.Refused != "" {
			why.Text += "; " + j.Parking.Refused
		}
		if hindrance != "" {
			why.Text += "; " + hindrance
		}
	case j.State == job.Parked:
		why.Text = parkedText(j, why.Text)
	case j.State.Terminal():
		detail := ""
		if v := h.svc.view(c, j, nil); v.Reason != nil {
			detail = *v.Reason
		}
		why.Text = j.Outcome.Ending(detail)
	case why.Text == "":
		why.Text = "about to start"
	}
	return why, nil
}

// parkedText says that a job is parked, and what it waits for.
func parkedText(j *job.Job, waits string) string {
	text := fmt.Sprintf("parked since %s, with %.1f GiB in the host's memory", j.Parking.Since.Local().Format(time.DateTime), float64(j.Parking.HostMiB())/1024)
	if waits != "" {
		text += "; " + waits
	}
	return text
}

// whyQueued says what keeps a queued job from its turn, or returns what its story is
// told from, so that the engine goes on meanwhile. It runs in the engine's goroutine.
func whyQueued(t *engine.Turn, why *api.Why) *sched.Preview {
	if text := t.Explain().Gate(why.ID); text != "" {
		why.Text, why.NoStart = text, reason.NoneGate
		return nil
	}
	if t.Stopping() {
		why.Text = t.Explain().Why(why.ID)
		return nil
	}
	return sched.NewPreview(t.Explain().State(), []string{why.ID})
}

// estimates are the estimates for a job, or nil.
type estimates struct {
	run  *api.RunGuess
	vram *api.VRAMGuess
}

// estimate asks the engine, in whose goroutine it runs.
func estimate(t *engine.Turn, id string) estimates {
	var g estimates
	run, vram, _ := t.Explain().Estimate(id)
	if run.Mid > 0 {
		g.run = &api.RunGuess{
			LowS: run.Low.Seconds(), MidS: run.Mid.Seconds(), HighS: run.High.Seconds(),
			Source: string(run.Source), Runs: run.Samples, Longer: run.Longer,
		}
	}
	if vram.HighMiB > 0 {
		g.vram = &api.VRAMGuess{
			LowMiB: vram.LowMiB, MidMiB: vram.MidMiB, HighMiB: vram.HighMiB,
			Source: string(vram.Source), Runs: vram.Samples,
		}
	}
	return g
}

// guessed reports that the memory is a guess from runs with other arguments.
func (g *estimates) guessed() bool {
	return g.vram != nil && g.vram.Source == string(predict.FromProgram)
}

// span is the estimated duration.
func (g *estimates) span() (s sched.Estimate) {
	if g.run != nil {
		s.Guess = (predict.Estimate{Source: predict.Source(g.run.Source)}).Guess()
		s.Low, s.Mid, s.High = text.OfSeconds(g.run.LowS), text.OfSeconds(g.run.MidS), text.OfSeconds(g.run.HighS)
	}
	return s
}

// end is when a running job is expected to end; nil without an estimate.
func (g *estimates) end(now time.Time, j *job.Job) *reason.Forecast {
	if j.StartedAt.IsZero() {
		return nil
	}
	left := g.span().Left(j.Worked(now), waiting.LongestRun(&j.Spec))
	if left.High <= 0 {
		return nil
	}
	e := &reason.Forecast{Now: now, Low: now.Add(left.Low), Mid: now.Add(left.Mid), High: now.Add(left.High)}
	e.Running = 1
	switch {
	case g.run == nil || g.run.Runs == 0:
		e.Limit = 1
	case g.span().Guess:
		e.Guessed = 1
	default:
		e.History = 1
	}
	return e
}
