package daemon

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"berth/internal/api"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/running"
	"berth/internal/text/problem"
)

// Strays lists the supervisors that the store does not know.
func (h *adoptions) Strays(ctx context.Context, c api.Caller) ([]api.Stray, error) {
	var found []running.Stray
	if err := h.svc.Do(ctx, func(t *engine.Turn) { found = t.Recovery().Strays() }); err != nil {
		return nil, err
	}
	strays := make([]api.Stray, 0, len(found))
	for _, s := range found {
		if h.mayTouchStray(c, &s) {
			strays = append(strays, h.strayView(&s))
		}
	}
	return strays, nil
}

func (h *adoptions) strayView(s *running.Stray) api.Stray {
	r := s.Found.Record
	v := api.Stray{
		Token: s.Found.Token, Job: s.Found.Job, Attempt: s.Found.Attempt, State: string(s.State), GPUs: []int{},
		PID: s.PID, StartedAt: r.StartedAt, Log: r.Log, Adoptable: s.Job != nil,
	}
	if h.svc.places.Shared {
		v.User = h.svc.people.Name(r.UID)
	}
	if j := s.Job; j != nil {
		v.User, v.Name, v.Command, v.Log = j.User, j.Name(), j.Spec.Command(), cmp.Or(j.Log, v.Log)
		v.GPUs = append(v.GPUs, j.Grant.GPUs...)
	}
	return v
}

// mayTouchStray is mayTouch for a stray. One without a copy of its job is only
// for administrators: its record names no user on a private daemon, and root's
// jobs on a shared one.
func (h *adoptions) mayTouchStray(c api.Caller, s *running.Stray) bool {
	if s.Job == nil {
		return c.Admin || !h.svc.places.Shared
	}
	return mayTouch(c, s.Job)
}

// AdoptStrays takes the jobs of strays back into the queue.
func (h *adoptions) AdoptStrays(ctx context.Context, c api.Caller, r api.AdoptStraysRequest) ([]api.AdoptedStray, error) {
	var results []api.AdoptedStray
	var jobs, denied []string
	var unsaved error
	err := h.svc.Change(ctx, func(t *engine.Turn) {
		if t.Stopping() {
			return
		}
		all := t.Recovery().Strays()
		wanted := r.Tokens
		if len(wanted) == 0 {
			for _, s := range all {
				if h.mayTouchStray(c, &s) {
					wanted = append(wanted, s.Found.Token)
				}
			}
		}
		slices.Sort(wanted)
		for _, token := range slices.Compact(wanted) {
			result := api.AdoptedStray{Token: token}
			at := slices.IndexFunc(all, func(s running.Stray) bool { return s.Found.Token == token })
			if at >= 0 && !h.mayTouchStray(c, &all[at]) {
				denied = append(denied, all[at].Found.Job)
				at = -1 // it exists only for its owner
			}
			if at < 0 {
				result.Problem = "there is no stray " + token
			} else if err := t.Recovery().AdoptStray(token, func(err error) { unsaved = errors.Join(unsaved, err) }); err != nil {
				result.Problem = err.Error()
			} else {
				result.Job = all[at].Found.Job
				jobs = append(jobs, result.Job)
			}
			results = append(results, result)
		}
	})
	if err == nil {
		err = notWritten(unsaved)
	}
	h.svc.Note(c, "adopt strays", jobs, "", err)
	if len(denied) > 0 {
		h.svc.Note(c, "adopt strays", denied, "", problem.Newf(problem.Forbidden, "", "not the caller's"))
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}
