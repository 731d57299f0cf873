package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"berth/internal/api"
	"berth/internal/job/jobfile"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/waiting"
	"berth/internal/text/problem"
)

// maxGroupLimit is more jobs than can run at a time.
const maxGroupLimit = 1_000_000

// groups shows groups of jobs, and limits and pauses them.
type groups struct{ svc *service }

// whose is the user that a caller asks about; empty: everyone.
func whose(c api.Caller, user string) string {
	if user == everyone {
		return ""
	}
	return cmp.Or(user, c.Name)
}

// Groups lists groups. Everybody may see their names, as those of jobs.
func (h *groups) Groups(ctx context.Context, c api.Caller, q api.GroupQuery) ([]api.Group, error) {
	user := whose(c, q.User)
	var groups []api.Group
	err := h.svc.Do(ctx, func(t *engine.Turn) {
		for _, g := range t.Groups().List(user) {
			groups = append(groups, groupView(g))
		}
	})
	return groups, err
}

func groupView(g waiting.Group) api.Group {
	v := api.Group{Name: g.Name, User: g.User, Running: len(g.Running), Queued: g.Queued, Paused: g.PausedBy != "", PausedBy: g.PausedBy}
	if g.Limit > 0 {
		v.Limit = &g.Limit
	}
	return v
}

// SetGroup limits, pauses or resumes a group.
func (h *groups) SetGroup(ctx context.Context, c api.Caller, r api.GroupRequest) (api.Group, error) {
	g := api.Group{Name: r.Name}
	what, err := h.setGroup(ctx, c, &g, r)
	h.svc.Note(c, "group set", nil, fmt.Sprintf("%.80s of %.80s: %s", r.Name, g.User, what), err)
	return g, err
}

func (h *groups) setGroup(ctx context.Context, c api.Caller, g *api.Group, r api.GroupRequest) (what string, err error) {
	if g.User, err = h.whoseGroup(c, r.User); err != nil {
		return "", err
	}
	if err := checkGroup(g.Name); err != nil {
		return "", err
	}
	limit, err := groupLimit(r.Limit)
	if err != nil {
		return "", err
	}
	var refusal error
	err = h.svc.Change(ctx, func(t *engine.Turn) {
		if r.Limit != "" {
			what += "limit " + string(r.Limit) + " "
			refusal = t.Groups().Limit(g.User, g.Name, limit)
		}
		if r.Paused != nil && refusal == nil {
			what += "paused " + strconv.FormatBool(*r.Paused)
			refusal = t.Groups().Pause(g.User, g.Name, *r.Paused, c.Name)
		}
		for _, of := range t.Groups().List(g.User) {
			if of.Name == g.Name {
				*g = groupView(of)
			}
		}
	})
	if errors.Is(refusal, waiting.ErrTooManyGroups) {
		refusal = problem.Newf(problem.TooMuch, "remove some with berth group remove; berth group list shows them",
			"%s has %d limited or paused groups already, which is the most allowed", g.User, waiting.MaxGroups)
	}
	if err == nil {
		err = refusal
	}
	return what, err
}

// RemoveGroup lifts the limit and the pause of a group.
func (h *groups) RemoveGroup(ctx context.Context, c api.Caller, q api.GroupRemoval) (api.None, error) {
	name := q.Name
	user, err := h.whoseGroup(c, q.User)
	if err == nil {
		err = checkGroup(name)
	}
	if err == nil {
		known := false
		err = h.svc.Change(ctx, func(t *engine.Turn) {
			for _, g := range t.Groups().List(user) {
				known = known || g.Name == name
			}
			t.Groups().Remove(user, name)
		})
		if err == nil && !known {
			err = problem.Newf(problem.NotFound, "berth group list shows them", "%s has no group %s", user, name)
		}
	}
	h.svc.Note(c, "group remove", nil, fmt.Sprintf("%.80s of %.80s", name, user), err)
	return api.None{}, err
}

// whoseGroup is the user whose group is meant. Only an administrator may change
// another user's: a paused group keeps its user's jobs from starting.
func (h *groups) whoseGroup(c api.Caller, user string) (string, error) {
	if user == "" || user == c.Name {
		return c.Name, nil
	}
	return user, h.svc.administers(c, "can change another user's groups")
}

func checkGroup(name string) error {
	if _, err := jobfile.ParseGroup(name); err != nil {
		return problem.Newf(problem.Invalid, "", "the name of a group: %v", err)
	}
	return nil
}

// groupLimit reads a limit; 0 means that there is no limit.
func groupLimit(word api.Text) (int, error) {
	if word == "" || word == "none" {
		return 0, nil
	}
	n, err := strconv.Atoi(string(word))
	switch {
	case err != nil || n < 0 || n > maxGroupLimit:
		return 0, problem.Newf(problem.Invalid, "", "limit: expected a number from 1, or none, found %.40q", word)
	case n == 0:
		return 0, problem.Newf(problem.Invalid, "to start none of its jobs, use berth group pause; for no limit, --limit none", "limit: expected a number from 1, or none, found 0")
	}
	return n, nil
}
