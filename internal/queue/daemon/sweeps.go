package daemon

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/job/sweep"
	"berth/internal/text/problem"
)

// sweeps adds trials to sweeps, and tells their results.
type sweeps struct {
	svc     *service
	find    *finder
	jobs    *jobs
	submits *submissions
	logs    *logs
	picked  picked
}

// trials are the jobs of a sweep: what differs between them.
type trials struct {
	of     job.Trial // what they have in common
	made   []job.Template
	params [][]job.Param
}

// readSweep makes the trials of a spec, and gives it the words of the first.
func (s *submission) readSweep(asked *jobfile.Asked, r *api.Sweep) (*trials, error) {
	invalid := func(err error) error {
		return problem.Newf(problem.Invalid, "berth help howto/sweep has examples", "sweep: %v", err)
	}
	switch {
	case asked.Array != nil:
		return nil, invalid(fmt.Errorf("expected no array: each trial is a task"))
	case s.request.Batch != nil:
		return nil, invalid(fmt.Errorf("expected no sweep in a jobs file: write [sweep NAME=VALUE,...] there"))
	}
	if _, err := sweep.ParseMetrics(r.Metrics); err != nil {
		return nil, problem.Newf(problem.Invalid, "", "metric: %v", err)
	}
	params, err := sweep.Trials(r.Axes, s.cfg.MaxArray)
	if err != nil {
		return nil, invalid(err)
	}
	spec := &asked.Spec
	template := &job.Template{Shell: spec.Shell, Argv: spec.Argv, Name: spec.Name, Base: s.request.Dir, Dir: spec.Dir, Output: spec.Output, Env: spec.Env}
	t := &trials{of: job.Trial{Sweep: spec.Name, Metrics: r.Metrics, Template: template}, params: params}
	if err := t.make(sweep.Names(r.Axes)); err != nil {
		return nil, invalid(err)
	}
	asked.Array = &jobfile.Array{Indices: make([]int, len(params)), Limit: spec.ArrayLimit, Step: 1}
	for i := range params {
		asked.Array.Indices[i] = i
	}
	t.put(spec, 0)
	return t, nil
}

// make expands the template.
func (t *trials) make(names []string) error {
	maker, err := sweep.NewMaker(t.of.Template, names)
	if err != nil {
		return err
	}
	size := 0
	for _, params := range t.params {
		made, err := maker.Make(params)
		if err != nil {
			return err
		}
		made.Texts(func(text *string) { size += len(*text) })
		if size > maxRequestBytes {
			return fmt.Errorf("expected at most %d MiB of commands, found more: put the common parts into a script", maxRequestBytes>>20)
		}
		t.made = append(t.made, made)
	}
	return nil
}

// put gives a spec the words of a trial.
func (t *trials) put(spec *job.Spec, i int) {
	made := &t.made[i]
	spec.Shell, spec.Argv, spec.Name, spec.Dir, spec.Output, spec.Env = made.Shell, made.Argv, made.Name, made.Dir, made.Output, made.Env
	spec.Trial = t.of
	spec.Trial.Params = t.params[i]
}

// specOf is the spec of a trial, checked like that of any job.
func (s *submission) specOf(t *trials, shared *job.Spec, i int) (job.Spec, error) {
	spec := *shared
	t.put(&spec, i)
	at := func(err error) error {
		return at("trial "+wordsOf(t.params[i]), err)
	}
	if err := setCommand(&spec, api.Command{Shell: spec.Shell, Argv: spec.Argv}); err != nil {
		return spec, at(err)
	}
	if spec.Name != "" {
		if err := jobfile.CheckPair(jobfile.Pair{Key: "name", Value: spec.Name}, s.now); err != nil {
			return spec, at(problem.Wrap(problem.Invalid, "", err))
		}
	}
	setPlaces(&spec, s.request.Dir)
	if err := checkWords(&spec); err != nil {
		return spec, at(err)
	}
	if err := jobfile.CheckInject(&spec); err != nil {
		return spec, at(problem.Wrap(problem.Invalid, "", err))
	}
	return spec, nil
}

// wordsOf is "lr=1e-3 seed=0".
func wordsOf(params []job.Param) string {
	words := make([]string, len(params))
	for i, p := range params {
		words[i] = p.Name + "=" + p.Value
	}
	return fmt.Sprintf("%.200s", strings.Join(words, " "))
}

// trialWords is what trials run.
func trialWords(jobs []*job.Job) (words []api.TrialWords) {
	for _, j := range jobs {
		words = append(words, api.TrialWords{ID: j.ID, Name: j.Name(), Command: j.Spec.Command(), Params: j.Spec.Trial.Params})
	}
	return words
}

// AddTrials adds trials to a sweep.
func (h *sweeps) AddTrials(ctx context.Context, c api.Caller, r api.MoreTrials) (api.AddedTrials, error) {
	turn, _ := h.submits.batches.LoadOrStore(c.UID, &sync.Mutex{})
	turn.(*sync.Mutex).Lock() // two requests must not both find a trial new
	defer turn.(*sync.Mutex).Unlock()
	have, err := h.find.findTasks(ctx, c, r.ID)
	if err != nil {
		return api.AddedTrials{}, err
	}
	last := &have[len(have)-1]
	switch {
	case !mayBe(c, last):
		return api.AddedTrials{}, notYours(c, last)
	case last.Spec.Trial.Template == nil:
		return api.AddedTrials{}, problem.Newf(problem.Refused, "berth sweep list shows sweeps", "%s is no sweep", r.ID)
	case last.TextGone:
		return api.AddedTrials{}, problem.Newf(problem.Refused, "submit it again", "the text of sweep %s is no longer kept (retention.history_text)", last.Array())
	}
	known, next := make([][]job.Param, len(have)), 0
	for i := range have {
		_, index, _ := strings.Cut(have[i].ID, "_")
		n, _ := strconv.Atoi(index)
		known[i], next = have[i].Spec.Trial.Params, max(next, n+1)
	}
	s := submission{h: h.submits, caller: c, request: &api.SubmitRequest{Dir: last.Spec.Trial.Template.Base, DryRun: r.DryRun}, cfg: h.svc.Config(), now: time.Now()}
	t := &trials{of: last.Spec.Trial}
	if t.params, err = sweep.More(known, r.Axes, s.cfg.MaxArray-len(have)); err == nil && len(t.params) > 0 {
		var names []string
		for _, p := range t.params[0] {
			names = append(names, p.Name)
		}
		err = t.make(names)
	}
	if err != nil {
		return api.AddedTrials{}, problem.Newf(problem.Invalid, "berth sweep show "+last.Array()+" shows its parameters", "sweep: %v", err)
	}
	reply := api.AddedTrials{ID: last.Array(), Trials: []api.TrialWords{}}
	if len(t.params) == 0 {
		return reply, nil
	}
	t.of.Late = true
	asked := jobfile.Asked{Spec: last.Spec, Array: &jobfile.Array{Limit: last.Spec.ArrayLimit, Step: 1}}
	asked.Spec.After = nil // it has started
	for i := range t.params {
		spec, err := s.specOf(t, &asked.Spec, i)
		if err != nil {
			return api.AddedTrials{}, err
		}
		asked.Array.Indices = append(asked.Array.Indices, next+i)
		s.jobs = append(s.jobs, &job.Job{User: last.User, UID: last.UID, Spec: spec, Environ: last.Environ, Umask: last.Umask})
	}
	s.items = []item{{spec: &s.jobs[0].Spec, tasks: asked.Array, to: len(s.jobs), array: last.Array()}}
	if r.DryRun {
		_, err := s.try(ctx)
		reply.Trials = slices.Concat(reply.Trials, trialWords(s.jobs))
		for i := range reply.Trials {
			reply.Trials[i].ID = ""
		}
		return reply, err
	}
	if _, err = s.accept(ctx); err == nil {
		reply.Trials = trialWords(s.jobs)
	}
	ids := make([]string, len(s.jobs))
	for i, j := range s.jobs {
		ids[i] = j.ID
	}
	h.svc.Note(c, "submit", ids, "", err)
	return reply, err
}
