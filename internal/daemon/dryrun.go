package daemon

import (
	"context"
	"fmt"
	"time"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/problem"
)

// maxTrials bounds the decisions that one dry run asks for.
const maxTrials = 1000

// try says what would become of the jobs. Each kind is asked for in a turn of
// its own: a decision over a long queue takes a moment, and others have
// requests too.
func (s *submission) try(ctx context.Context) (api.SubmitReply, error) {
	var reply api.SubmitReply
	// A queued job would have the cards read again before it is placed.
	if err := s.d.lookAgain(ctx, (*engine.Turn).Ready, lookTime); err != nil {
		return reply, err
	}
	trials := map[string]engine.Trial{}
	for i := range s.items {
		it := &s.items[i]
		key := fmt.Sprint(requestKey(&it.asked.Spec), it.asked.Spec.Priority)
		trial, known := trials[key]
		if !known {
			if len(trials) == maxTrials {
				return api.SubmitReply{}, problem.Newf(problem.TooMuch, "try fewer at a time", "more than %d different kinds of job in a dry run", maxTrials)
			}
			var full *problem.Problem
			err := s.d.do(ctx, func(t *engine.Turn) {
				full = s.d.room(t, s.cfg, s.caller, s.caller.Name, len(s.jobs))
				trial = t.Try(s.caller.Name, it.asked.Spec)
			})
			if err != nil {
				return api.SubmitReply{}, err
			}
			if full != nil {
				return api.SubmitReply{}, full
			}
			trials[key] = trial
		}
		reply.Jobs = append(reply.Jobs, s.foretell(it, trial))
	}
	return reply, nil
}

// foretell puts a trial into an answer.
func (s *submission) foretell(it *item, trial engine.Trial) api.Submitted {
	spec := &it.asked.Spec
	what, reason := "waits", trial.Waits
	var cards []int
	switch {
	case trial.Infeasible != "":
		what, reason = "infeasible", trial.Infeasible
	case it.asked.Hold:
		reason = "held until someone releases it"
	case it.asked.NotBefore.After(s.now):
		reason = "not before " + it.asked.NotBefore.Local().Format(time.DateTime)
	case len(spec.After) > 0:
		reason = fmt.Sprintf("waits for job %s to end (%s)", spec.After[0].Job, spec.After[0].On)
	case trial.Starts:
		what, reason, cards = "starts", "", trial.GPUs
	}
	answer := api.Submitted{Name: spec.Name, State: what, Reason: reason, GPUIDs: cards, Notes: it.notes}
	if it.asked.Array != nil {
		answer.Tasks = it.to - it.from
	}
	return answer
}
