package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/queue/access"
	"berth/internal/queue/people"
	"berth/internal/text/problem"
)

// tokenUserTTL is how old what is known about a user may be for a token, which
// outlives its user.
const tokenUserTTL = 2 * time.Second

// Identify says who the caller is: the kernel, a token or a session vouches for
// the identity.
func (h *door) Identify(ctx context.Context, p api.Peer) (api.Caller, error) {
	if p.Secret == "" && p.Proof.Session == "" {
		c, err := h.admit(ctx, p.UID, "", people.FreshFor)
		c.PID, c.Way = p.PID, p.Way
		return c, err
	}
	now := time.Now()
	var entry access.TokenEntry
	var ok bool
	err := problem.Newf(problem.Forbidden, "create one with: berth token create", "the token is unknown or has expired")
	if p.Secret != "" {
		entry, ok = h.tokens.Check(p.Secret, now)
	} else {
		entry, ok = h.tokens.Prove(p.Proof, p.Way.Listener, now)
		err = problem.Newf(problem.Forbidden, "open another with: berth web", "the session is unknown or has ended")
	}
	if !ok {
		h.svc.Note(api.Caller{UID: -1, Token: "none", Way: p.Way}, "token use", nil, "", err)
		return api.Caller{}, err
	}
	c, refused := h.admit(ctx, entry.UID, entry.User, tokenUserTTL)
	c.Token, c.Way = entry.ID, p.Way
	if refused == nil && entry.Session && h.svc.places.Shared {
		refused = h.mayLogIn(c, p.Way.Trusted(), false) // it may have become an administrator's
	}
	if refused != nil {
		h.svc.Note(api.Caller{UID: entry.UID, Name: entry.User, Token: entry.ID, Way: p.Way}, "token use", nil, "", refused)
		return api.Caller{}, refused
	}
	c.Over = h.tokens.Note(entry.ID, p.Way.From, now)
	return c, nil
}

// admit is a user as the caller of a request. The user must exist; while users
// cannot be looked up, no one is admitted. was is the user's name when a token
// or a login was made; empty: the kernel names the user. What is known of the user
// may be that old.
func (h *door) admit(ctx context.Context, uid int, was string, maxAge time.Duration) (api.Caller, error) {
	if !h.svc.places.Shared && uid != h.svc.people.UID && uid != 0 {
		return api.Caller{}, problem.Newf(problem.Forbidden, "start your own with: berth submit", "this is another user's private daemon")
	}
	ctx, cancel := context.WithTimeout(ctx, people.LookupTime)
	defer cancel()
	user, err := h.svc.people.Users.Within(ctx, uid, maxAge)
	switch {
	case err != nil && !h.svc.places.Shared:
		// As in a container without a passwd entry. The kernel's answer is
		// enough for the daemon's own user.
		user = site.User{Name: h.svc.people.Name(uid), UID: uid}
	case errors.Is(err, site.ErrUnknownUser):
		return api.Caller{}, problem.Newf(problem.Forbidden, "", "there is no user with uid %d", uid)
	case err != nil:
		h.svc.queue.Log.Error("look up user", "uid", uid, "err", err)
		return api.Caller{}, problem.Newf(problem.Unable, "ask the administrator to check the user database (getent passwd)", "your user name cannot be looked up at the moment")
	}
	c := api.Caller{UID: uid, Name: user.Name}
	if was != "" && h.svc.places.Shared && user.Name != was {
		return c, problem.Newf(problem.Forbidden, "create one with: berth token create", "the token is no longer valid: %v", people.Successor(uid, was, user.Name))
	}
	c.Admin = uid == 0 || !h.svc.places.Shared || h.isAdmin(user)
	return c, nil
}

func (h *door) isAdmin(user site.User) bool {
	group := h.svc.Config().AdminGroup
	if group == "" {
		return false
	}
	in, err := h.svc.people.Users.InGroup(user, group)
	if err != nil {
		h.svc.queue.Log.Error("look up group", "group", group, "err", err)
		return false
	}
	return in
}

// mayLogIn refuses the page to root and administrators where its server proves
// nothing. While no daemon listens there, any user of the machine can take a
// plain port, and a page from that user could act with their permissions. On a
// private daemon root can accept that (plain): in most containers there is nobody
// else.
func (h *door) mayLogIn(c api.Caller, trusted, plain bool) error {
	switch {
	case trusted:
	case h.svc.places.Shared && c.Admin:
		return problem.Newf(problem.Forbidden, "ask for tls_cert and tls_key in [http] of the config, or listen = \"unix:…\" behind a proxy with TLS",
			"%s is root or an administrator, who may log in to the page only over TLS", c.Name)
	case !h.svc.places.Shared && c.UID == 0 && !plain:
		return problem.Newf(problem.Forbidden, "where nobody else uses the machine: berth web --plain-http", "root may log in to the page only over TLS")
	}
	return nil
}

// Taken is called when another process listens on the daemon's address. Open
// pages talk to that process now, so whatever they could tell it must be
// worthless. A server without the certificate can pass for nobody.
func (h *door) Taken(ctx context.Context, address string, encrypted bool) {
	what := fmt.Sprintf("berth's address %s is taken %s, so the page is not served", address, h.svc.people.ListenerOwner(address))
	if !encrypted {
		what += "; every browser was logged out, because its page may have talked to that process"
		if err := h.tokens.EndSessions(func(string) bool { return true }); err != nil {
			h.svc.queue.Log.Error("end sessions", "err", err)
		}
	}
	h.svc.audit.Record(access.Entry{Time: time.Now(), UID: h.svc.people.UID, User: h.svc.people.Name(h.svc.people.UID), PID: os.Getpid(), Via: "daemon", Action: "port taken", Detail: address, Result: what})
	h.messages.Alert(ctx, what)
}
