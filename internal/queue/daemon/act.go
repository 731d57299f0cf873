package daemon

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/judge"
	"berth/internal/queue/engine/waiting"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// turns cuts jobs into those handled in one turn each.
func turns(found []job.Job) iter.Seq[[]job.Job] {
	return func(yield func([]job.Job) bool) {
		for len(found) > 0 {
			n, bytes := 0, 0
			for n < len(found) && n < actJobs && (n == 0 || bytes+found[n].Spec.TextBytes() <= actBytes) {
				bytes += found[n].Spec.TextBytes()
				n++
			}
			if !yield(found[:n]) {
				return
			}
			found = found[n:]
		}
	}
}

// actions changes jobs.
type actions struct {
	svc     *service
	find    *finder
	jobs    *jobs
	submits *submissions
	cards   *cards
}

// Act does one of the actions to jobs.
func (h *actions) Act(ctx context.Context, c api.Caller, r api.ActRequest) (api.ActReply, error) {
	if !slices.Contains(api.Actions(), r.Action) {
		return api.ActReply{}, problem.Newf(problem.Invalid, "", "action: expected %s, found %.40q", text.Or(api.Actions()), r.Action)
	}
	if r.Until != nil && (r.Action != api.ActPark || !r.Until.After(time.Now())) {
		return api.ActReply{}, problem.Newf(problem.Invalid, "", "until: expected a time in the future, with park")
	}
	if r.Changes != nil && r.Action != api.ActRequeue {
		return api.ActReply{}, problem.Newf(problem.Invalid, "", "changes: expected only with requeue, found with %s", r.Action)
	}
	cfg := h.svc.Config()
	if err := cmp.Or(cfg.CheckGrace(r.GraceS), cfg.CheckParked(r.Until)); err != nil {
		return api.ActReply{}, err
	}
	ch, err := h.find.choose(ctx, c, r.Select)
	if err != nil {
		return api.ActReply{}, err
	}
	if !ch.narrow {
		return api.ActReply{}, problem.Newf(problem.Invalid, "name jobs by id, or give all", "no job is selected")
	}
	// Jobs that have ended are included only if they are named by id, file or state.
	over := r.Action == api.ActRequeue && (ch.named() || ch.batch != "" || slices.ContainsFunc(ch.states, job.State.Terminal))
	found, missing, err := h.find.resolve(ctx, &ch, over)
	if err != nil {
		return api.ActReply{}, err
	}
	if r.Action == api.ActPark {
		if err := h.cards.measureAgain(ctx); err != nil {
			return api.ActReply{}, err
		}
	}
	a := action{h: h, caller: c, request: &r, cfg: cfg, exact: ch.ids, chosen: make(map[string]bool, len(found)), left: map[string]int{}}
	for i := range found {
		a.chosen[found[i].ID] = true
	}
	for some := range turns(found) {
		a.again, a.text, a.begins = nil, 0, map[string]time.Time{}
		err = h.svc.Change(ctx, func(t *engine.Turn) {
			for i := range some {
				a.one(t, &some[i])
			}
			t.Queue().Again(a.again)
			for id, at := range a.begins {
				t.Queue().Begin(id, at)
			}
		})
		h.submits.twins.add(a.again)
		if err != nil {
			break
		}
	}
	for _, one := range h.find.notMeant(ctx, &ch, missing) {
		a.refuse(one.id, one.state, one.why)
	}
	h.svc.Note(c, r.Action, a.done, "", err)
	if len(a.denied) > 0 {
		h.svc.Note(c, r.Action, a.denied, "", problem.Newf(problem.Forbidden, "", "not the caller's"))
	}
	return api.ActReply{Jobs: a.acted, Left: a.left}, err
}

// action is a request in progress.
type action struct {
	h       *actions
	caller  api.Caller
	request *api.ActRequest
	cfg     *config.Config
	exact   map[string]bool // jobs whose own id or name was given: each gets an answer
	chosen  map[string]bool // all jobs of the request
	left    map[string]int  // how many others had nothing to do, by state
	acted   []api.Acted
	done    []string
	denied  []string
	again   []*job.Job
	text    int                  // the bytes of their text
	begins  map[string]time.Time // of those, which do not start at once
}

func (a *action) refuse(id string, state job.State, why string) {
	a.acted = append(a.acted, api.Acted{ID: id, State: string(state), What: why})
}

// skip says why nothing is done to a job, if it was named by itself. Releasing an
// array or all jobs means the held ones: the others are no error.
func (a *action) skip(id string, state job.State, why string) {
	if a.exact[id] {
		a.refuse(id, state, why)
		return
	}
	a.left[cmp.Or(string(state), "ended")]++
}

// one acts on a job as the engine has it now.
func (a *action) one(t *engine.Turn, seen *job.Job) {
	j := t.Jobs().Get(seen.ID)
	live := j != nil
	if !live {
		j = seen
		if written, pending := t.Jobs().Find(seen.ID); pending {
			j = written // its end is not on disk yet
		} else if !seen.State.Terminal() {
			a.skip(seen.ID, "", "it has just ended")
			return
		}
	}
	if !mayTouch(a.caller, j) {
		a.denied = append(a.denied, j.ID)
		a.refuse(j.ID, j.State, "it belongs to "+j.User)
		return
	}
	what, ok := a.apply(t, j, live)
	if !ok {
		if a.request.Action == api.ActPark && j.State == job.Running || a.request.Action == api.ActRequeue && !live {
			a.refuse(j.ID, j.State, what)
		} else {
			a.skip(j.ID, j.State, what)
		}
		return
	}
	a.done = append(a.done, j.ID)
	a.acted = append(a.acted, api.Acted{ID: j.ID, Done: true, State: string(a.stateNow(t, j, live)), What: what})
}

// stateNow is a job's state after it was acted on.
func (a *action) stateNow(t *engine.Turn, j *job.Job, live bool) job.State {
	if now, found := t.Jobs().Find(j.ID); found && live {
		return now.State
	}
	return job.Queued // only requeue acts on jobs that have ended
}

// apply carries out the action, or says why not.
func (a *action) apply(t *engine.Turn, j *job.Job, live bool) (what string, ok bool) {
	by := a.caller.Name
	grace := j.Spec.Grace
	if g := a.request.GraceS; g != nil {
		grace = time.Duration(max(0, *g) * float64(time.Second))
	}
	over := fmt.Sprintf("it has ended (%s)", j.Outcome)
	switch a.request.Action {
	case api.ActCancel:
		if !live {
			return over, false
		}
		was := j.State
		t.Requests().CancelBy(j.ID, by, grace)
		if j.Spec.Adopt != nil {
			return "cancelled: " + judge.GoesOn(j), true
		}
		if was == job.Queued && !j.HandedOver() {
			return "cancelled", true
		}
		return "stopping", true
	}
	if j.Spec.Adopt != nil {
		return notRun(j), false
	}
	switch a.request.Action {
	case api.ActHold:
		return a.held(live && t.Queue().Hold(j.ID, by), j, live, "held", "already held")
	case api.ActRelease:
		return a.held(live && t.Queue().Unhold(j.ID, by), j, live, "released", "not held")
	case api.ActPark:
		return a.park(t, j, live)
	case api.ActUnpark:
		switch {
		case live && t.Parking().Unpark(j.ID, by):
			return "comes back as soon as its GPUs have room", true
		case live && j.State == job.Parked:
			return "it waits for its GPUs already", false
		}
		return "it is not parked", false
	case api.ActSaved:
		if why := t.Requests().Saved(j.ID); why != "" {
			return why, false
		}
		return "noted that it saved its work", true
	}
	return a.requeue(t, j, live, grace)
}

func (a *action) park(t *engine.Turn, j *job.Job, live bool) (string, bool) {
	if !live {
		return fmt.Sprintf("it has ended (%s)", j.Outcome), false
	}
	var until time.Time
	if u := a.request.Until; u != nil {
		until = *u
	}
	was := j.State
	if why := t.Parking().Park(j.ID, a.caller.Name, until); why != "" {
		return "cannot be parked: " + why, false
	}
	what := "is being parked"
	if was == job.Parked {
		what = "stays parked"
	}
	if longest := a.cfg.ParkedTime; longest > 0 && a.request.Until == nil {
		what += fmt.Sprintf("; it comes back by itself after %s at most (limits.parked_time)", text.Brief(longest))
	}
	return what, true
}

func (a *action) held(done bool, j *job.Job, live bool, what, otherwise string) (string, bool) {
	switch {
	case done:
		return what, true
	case !live:
		return fmt.Sprintf("it has ended (%s)", j.Outcome), false
	case j.State != job.Queued:
		return "it is " + string(j.State), false
	}
	return "it is " + otherwise, false
}

func (a *action) requeue(t *engine.Turn, j *job.Job, live bool, grace time.Duration) (string, bool) {
	switch {
	case !live:
		if full := room(t, a.cfg, a.caller, j.User, len(a.again)+1); full != nil {
			return full.What, false
		}
		if j.TextGone {
			return "its text is no longer kept (retention.history_text), so it cannot run again", false
		}
		again := j.Clone()
		again.Rank, again.Held = t.Queue().TakeRank(), false
		a.bound(&again.Spec)
		if ch := a.request.Changes; ch != nil {
			if why := a.change(t, again, ch); why != "" {
				return why, false
			}
		}
		if why := a.never(t, again); why != "" {
			return why + "; requeue both in one command, or copy it with berth submit --like", false
		}
		text := a.text + waiting.TextOf([]*job.Job{again})
		if full := roomFor(t, a.cfg, j.User, text, again.Environ); full != nil {
			return full.What, false
		}
		a.text = text
		a.again = append(a.again, again)
		return "requeued", true
	case a.request.Changes != nil:
		return "it is " + string(j.State) + ", and only a job that has ended is changed and queued again", false
	case t.Requests().Requeue(j.ID, a.caller.Name, grace):
		return "stopping; will run again", true
	case j.Stop == job.StopCancel:
		return "it is being cancelled", false
	}
	return "it is " + string(j.State), false
}

// never says why a job would be cancelled again at once. Jobs that it depends on
// may be requeued with it.
func (a *action) never(t *engine.Turn, j *job.Job) string {
	if slices.ContainsFunc(j.Spec.After, func(d job.Dependency) bool { return a.chosen[d.Job] }) {
		return ""
	}
	return t.Queue().Never(j)
}

// change gives a job that has ended what it is to have when it runs again, or
// says why not.
func (a *action) change(t *engine.Turn, j *job.Job, ch *api.EditRequest) (why string) {
	if !mayBe(a.caller, j) && !onlyPlans(ch) {
		return "it belongs to " + j.User
	}
	asked, _, err := a.h.edited(t, a.caller, j, ch)
	if err != nil {
		return err.Error()
	}
	if j.Spec.VRAMMiB != asked.Spec.VRAMMiB || j.Spec.VRAMAuto != asked.Spec.VRAMAuto {
		j.VRAMMiB = asked.Spec.VRAMMiB
	}
	j.Spec = asked.Spec
	if !asked.NotBefore.IsZero() {
		a.begins[j.ID] = asked.NotBefore
	}
	return ""
}

// bound holds a job that runs again to the limits of today: it may have been
// accepted under others.
func (a *action) bound(spec *job.Spec) {
	t := terms{caller: a.caller, cfg: a.cfg}
	t.boundTime(spec)
	if t.checkPriority(spec.Priority) != nil {
		spec.Priority = a.cfg.MaxPriority
	}
}

// Edit changes a queued job, or all queued tasks of an array.
func (h *actions) Edit(ctx context.Context, c api.Caller, r api.EditRequest) (api.Detail, error) {
	found, err := h.find.findTasks(ctx, c, r.ID)
	if err != nil {
		return api.Detail{}, err
	}
	first := &found[0]
	if !mayTouch(c, first) || !mayBe(c, first) && !onlyPlans(&r) {
		h.svc.Note(c, "edit", []string{first.ID}, "", notYours(c, first))
		return api.Detail{}, notYours(c, first)
	}
	e := editing{h: h, caller: c, request: &r, whole: len(found) > 1}
	if err := e.check(first); err != nil {
		return api.Detail{}, err
	}
	if e.whole { // none of them is changed if one cannot be
		err = e.each(ctx, found, h.svc.Do, e.try)
	}
	if err == nil {
		err = e.each(ctx, found, h.svc.Change, e.one)
	}
	if err == nil && len(e.changed) == 0 {
		err = problem.Newf(problem.Refused, "berth requeue changes jobs that have ended, and runs them again", "no task of array %s is queued", first.Array())
	}
	h.submits.twins.add(e.changed)
	ids := []string{first.ID}
	if e.whole {
		ids = nil
		for _, j := range e.changed {
			ids = append(ids, j.ID)
		}
	}
	h.svc.Note(c, "edit", ids, "", err)
	if err != nil {
		return api.Detail{}, err
	}
	word := first.ID
	if e.whole {
		word = first.Array()
	}
	detail, err := h.jobs.Job(ctx, c, word)
	detail.Notes = e.notes
	if e.whole {
		detail.Changed = len(e.changed)
	}
	return detail, err
}

// editing is an edit in progress.
type editing struct {
	h       *actions
	caller  api.Caller
	request *api.EditRequest
	whole   bool // of an array: tasks that are not queued are left alone
	refusal error
	more    int // text that the tasks get, so far
	notes   []string
	changed []*job.Job
}

// each visits jobs in turns, until one is refused.
func (e *editing) each(ctx context.Context, jobs []job.Job, in func(context.Context, func(*engine.Turn)) error, visit func(*engine.Turn, *job.Job)) error {
	for some := range turns(jobs) {
		err := in(ctx, func(t *engine.Turn) {
			for i := range some {
				if e.refusal == nil {
					visit(t, &some[i])
				}
			}
		})
		if err = cmp.Or(err, e.refusal); err != nil {
			return err
		}
	}
	return nil
}

// try refuses what a task of an array cannot be changed to.
func (e *editing) try(t *engine.Turn, seen *job.Job) {
	live := t.Jobs().Get(seen.ID)
	if live == nil || live.State != job.Queued {
		return
	}
	asked, _, err := e.h.edited(t, e.caller, live, e.request)
	if err != nil {
		e.refusal = err
		return
	}
	e.more += asked.Spec.TextBytes() - live.Spec.TextBytes()
	if full := roomFor(t, e.h.svc.Config(), live.User, e.more, ""); full != nil {
		e.refusal = full
	}
}

// check refuses what does not go with one job, or with several.
func (e *editing) check(j *job.Job) error {
	command := e.request.Set.Command.Shell != "" || len(e.request.Set.Command.Argv) > 0
	switch {
	case e.whole && command && len(j.Spec.Trial.Params) > 0:
		return problem.Newf(problem.Refused, "cancel it and submit another, or edit one trial, such as "+j.ID, "the trials of sweep %s have commands of their own", j.Array())
	case !e.whole && slices.Contains(changedKeys(e.request), "max"):
		hint := "for several jobs, use a group: berth group set NAME --limit N"
		if array := j.Array(); array != "" {
			hint = "berth edit " + array + " changes the array"
		}
		return problem.Newf(problem.Invalid, hint, "max: expected an array, found job %s", j.ID)
	}
	return nil
}

// one changes a job as the engine has it now.
func (e *editing) one(t *engine.Turn, seen *job.Job) {
	live := t.Jobs().Get(seen.ID)
	if live := cmp.Or(live, seen); live.Spec.Adopt != nil {
		e.refusal = problem.Newf(problem.Refused, "cancel it and adopt the process again", "job %s: %s", seen.ID, notRun(live))
		return
	}
	if live == nil || live.State != job.Queued {
		if !e.whole {
			e.refusal = problem.Newf(problem.Refused, "only a queued job can be changed; berth requeue also changes one that has ended, and runs it again", "job %s is %s", seen.ID, state(live, seen))
		}
		return
	}
	notes, err := e.h.edit(t, e.caller, live, e.request)
	if err != nil {
		e.refusal = err
		return
	}
	for _, note := range notes {
		if !slices.Contains(e.notes, note) {
			e.notes = append(e.notes, note)
		}
	}
	now := t.Running().Copy(live)
	e.changed = append(e.changed, &now)
}

func state(live, seen *job.Job) job.State {
	if live != nil {
		return live.State
	}
	return seen.State
}

// notRun says why an adopted process can only be cancelled.
func notRun(j *job.Job) string {
	return fmt.Sprintf("it represents process %d, which berth did not start and only accounts for", j.Spec.Adopt.PID)
}
