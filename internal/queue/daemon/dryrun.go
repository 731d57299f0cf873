package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/job/reason"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/slurm"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// maxTrials bounds the decisions of one dry run.
const maxTrials = 1000

// try says what would happen to the jobs. The engine copies its queue once, and
// the decisions are made outside its goroutine.
func (s *submission) try(ctx context.Context) (api.SubmitReply, error) {
	var reply api.SubmitReply
	kinds := map[tryKey]int{}
	var specs []job.Spec
	for i := range s.items {
		spec := s.items[i].spec
		key := tryKeyOf(spec)
		if _, known := kinds[key]; known {
			continue
		}
		if len(specs) == maxTrials {
			return reply, problem.Newf(problem.TooMuch, "try fewer at a time", "a dry run takes at most %d different kinds of job", maxTrials)
		}
		kinds[key] = len(specs)
		specs = append(specs, *spec)
	}
	// The cards would be read again before a queued job is placed, so read them
	// here too.
	if err := s.h.cards.lookAgain(ctx, (*engine.Turn).Ready, lookTime); err != nil {
		return reply, err
	}
	ctx, leave := s.h.svc.gate.Begin(ctx)
	defer leave()
	if err := fair.Spend(ctx, fair.Long); err != nil {
		return reply, err
	}
	var full *problem.Problem
	var rehearsal *engine.Rehearsal
	var refused error
	err := s.h.svc.Do(ctx, func(t *engine.Turn) {
		full = room(t, s.cfg, s.caller, s.caller.Name, len(s.jobs))
		refused = s.awaitNamesakes(t)
		s.noteAuto(t)
		rehearsal = t.Explain().Rehearse(s.caller.Name, specs...)
	})
	if err = cmp.Or(err, refused); err != nil {
		return reply, err
	}
	if full != nil {
		return reply, full
	}
	trials := make([]engine.Trial, len(specs))
	for i := range trials {
		if err := fair.Spend(ctx, 1); err != nil {
			return reply, err
		}
		trials[i] = rehearsal.Try(i)
	}
	var which, at []int // the lines of a file that only wait for room are tried together
	var names []string
	outcomes := make([]engine.Trial, len(s.items))
	for i := range s.items {
		kind := kinds[tryKeyOf(s.items[i].spec)]
		if outcomes[i] = trials[kind]; s.lines != nil && outcomes[i].Infeasible == "" && s.gate(&s.items[i]) == "" {
			which, at, names = append(which, kind), append(at, i), append(names, s.lines.called(i))
		}
	}
	if len(which) > 0 {
		if err := fair.Spend(ctx, 1); err != nil {
			return reply, err
		}
		for k, trial := range rehearsal.Together(which, names) {
			outcomes[at[k]] = trial
		}
	}
	for i := range s.items {
		reply.Jobs = append(reply.Jobs, s.foretell(&s.items[i], outcomes[i]))
	}
	return reply, nil
}

// tryKey is equal for jobs that would be treated alike.
type tryKey struct {
	request  requestKey
	priority int
	group    string
	command  string // only where it decides what the job declares
}

func tryKeyOf(spec *job.Spec) tryKey {
	key := tryKey{request: requestKeyOf(spec), priority: spec.Priority, group: spec.Group}
	if spec.VRAMAuto {
		key.command = spec.Command()
	}
	return key
}

// foretell adds the outcome of a trial to the reply.
func (s *submission) foretell(it *item, trial engine.Trial) api.Submitted {
	spec := it.spec
	what, reason, gate := "waits", trial.Waits, s.gate(it)
	var cards []int
	switch {
	case trial.Infeasible != "" && spec.To == job.ToLocal:
		what, reason = "infeasible", trial.Infeasible
	case gate != "":
		reason = gate
	case trial.Starts:
		what, reason, cards = "starts", "", trial.GPUs
	}
	answer := api.Submitted{Name: spec.Name, State: what, Reason: reason, GPUIDs: cards, Request: requestWords(spec), Notes: it.notes}
	if it.tasks != nil {
		answer.Tasks = it.to - it.from
	}
	if spec.Trial.Sweep != "" {
		answer.Name = spec.Trial.Sweep
	}
	if len(spec.Trial.Params) > 0 {
		if answer.Trials = trialWords(s.jobs[it.from:it.to]); spec.Name == "" {
			for i := range answer.Trials {
				answer.Trials[i].Name = "" // it has no id to be named by
			}
		}
	}
	return answer
}

// gate is what a job waits for before it is looked at; empty: nothing.
func (s *submission) gate(it *item) string {
	after := s.jobs[it.from].Spec.After
	switch {
	case it.hold:
		return "held until released"
	case it.notBefore.After(s.now):
		return "not before " + it.notBefore.Local().Format(time.DateTime)
	case len(after) > 0:
		return fmt.Sprintf("waits for job %s to %s", after[0].Job, after[0].Words())
	case len(it.siblings) > 0:
		other := &s.items[it.siblings[0].item]
		name := "another job of this file"
		if other.spec.Name != "" {
			name = "job " + other.spec.Name
		}
		return fmt.Sprintf("waits for %s to %s", name, it.siblings[0].Words())
	case it.spec.To == job.ToSlurm:
		return handedOver(it.spec, s.cfg)
	}
	return ""
}

// inRequest are the settings that reason.Request has words for.
var inRequest = []string{"type", "ids", "allow", "exclusive", "cpus", "mem", "on_timeout"}

// requestWords is a request as berth understood it: "1 GPU with 10240 MiB, time
// limit 5m, retries 2".
func requestWords(s *job.Spec) string {
	words := reason.Request{GPUs: s.GPUs, VRAMMiB: s.VRAMMiB, Share: s.Share, Exclusive: s.Exclusive, Type: s.Type, IDs: s.IDs, Allow: s.Allow, CPUs: s.CPUs, MemMiB: s.MemMiB}.Words()
	if s.TimeLimit > 0 {
		words += ", time limit " + text.Brief(s.TimeLimit)
		if s.OnTimeout != job.TimeoutKill {
			words += fmt.Sprintf(" (then %s)", s.OnTimeout)
		}
	}
	if s.Priority != 0 {
		words += fmt.Sprintf(", priority %d", s.Priority)
	}
	set := jobfile.Settings(s)
	if s.Grace == job.Defaults().Grace {
		delete(set, "grace")
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(inRequest, key) {
			words += ", " + key + " " + set[key]
		}
	}
	return words
}

// handedOver says how a job would be handed over.
func handedOver(spec *job.Spec, cfg *config.Config) string {
	options, err := slurm.Translate(spec, spec.VRAMMiB, cfg.Slurm.Slurm)
	if err != nil {
		return err.Error() // it was accepted a moment ago, under another config
	}
	return "it would be handed over to Slurm: sbatch " + job.QuoteArgv(options)
}
