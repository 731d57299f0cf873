package api

import (
	"context"
	"net/http"
	"net/url"

	"berth/internal/text/problem"
)

func groupOperations() []route {
	name := param{name: "name", in: "path", kind: "string", example: "io", about: "the name of the group"}
	return []route{
		{method: get, path: "/v1/groups", handle: (*exchange).getGroups, doc: doc{
			id: "groups", tag: "groups", summary: "List groups",
			about:  "Groups that are limited or paused or have unfinished jobs, by name: the caller's own, unless user says otherwise.",
			params: []param{{name: "user", in: "query", kind: "string", about: "whose groups; *: every user's"}},
			reply:  []Group{exampleGroup}, kinds: []problem.Kind{problem.Invalid},
		}},
		{method: post, path: "/v1/groups/{name}", handle: (*exchange).postGroup, body: true, doc: doc{
			id: "set-group", tag: "groups", summary: "Limit, pause or resume a group",
			about:  "Running jobs go on. A limit of 0 is refused: pause the group instead.",
			params: []param{name}, request: GroupRequest{Limit: "2"}, reply: exampleGroup, kinds: []problem.Kind{problem.Invalid, problem.Forbidden, problem.TooMuch},
		}},
		{method: remove, path: "/v1/groups/{name}", handle: (*exchange).deleteGroup, doc: doc{
			id: "remove-group", tag: "groups", summary: "Remove a group",
			about:  "Lifts its limit and its pause. Its jobs keep the name.",
			params: []param{name, {name: "user", in: "query", kind: "string", about: "whose group; only administrators may name another user"}},
			status: http.StatusNoContent, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
		}},
	}
}

func (x *exchange) getGroups() error {
	p, err := x.params()
	if err != nil {
		return err
	}
	q := GroupQuery{User: p.text("user")}
	if err := p.done(); err != nil {
		return err
	}
	groups, err := x.backend.Groups(x.r.Context(), x.caller, q)
	return x.reply(list(groups), err)
}

func (x *exchange) postGroup() error {
	var r GroupRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	return x.reply(x.backend.SetGroup(x.r.Context(), x.caller, x.r.PathValue("name"), r))
}

func (x *exchange) deleteGroup() error {
	p, err := x.params()
	if err != nil {
		return err
	}
	user := p.text("user")
	if err := p.done(); err != nil {
		return err
	}
	if err := x.backend.RemoveGroup(x.r.Context(), x.caller, user, x.r.PathValue("name")); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// Groups lists groups by name.
func (c *Client) Groups(ctx context.Context, q GroupQuery) ([]Group, error) {
	v := url.Values{}
	putText(v, "user", q.User)
	return call[[]Group](ctx, c, http.MethodGet, "/v1/groups", v, nil)
}

// SetGroup limits, pauses or resumes a group.
func (c *Client) SetGroup(ctx context.Context, name string, r GroupRequest) (Group, error) {
	return call[Group](ctx, c, http.MethodPost, "/v1/groups/"+url.PathEscape(name), nil, r)
}

// RemoveGroup lifts the limit and the pause of a group; an empty user is the
// caller.
func (c *Client) RemoveGroup(ctx context.Context, user, name string) error {
	v := url.Values{}
	putText(v, "user", user)
	_, err := c.ask(ctx, http.MethodDelete, "/v1/groups/"+url.PathEscape(name), v, nil)
	return err
}
