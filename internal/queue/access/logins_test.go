package access

import (
	"errors"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func isForbidden(err error) bool {
	p, ok := errors.AsType[*problem.Problem](err)
	return ok && p.Kind == problem.Forbidden
}

func TestALoginOpensOneSessionAndNotAnExpiredOne(t *testing.T) {
	t.Parallel()
	l := &Logins{}
	secret, expires, err := l.Create("ann", 1000, false, tokenTime)
	testkit.Must(t, err)
	if one, ok := l.Take(secret, tokenTime); !ok || one.User != "ann" || one.UID != 1000 {
		t.Errorf("taken: %+v %v", one, ok)
	}
	if _, ok := l.Take(secret, tokenTime); ok {
		t.Error("it was good twice")
	}
	secret, _, err = l.Create("ann", 1000, false, tokenTime)
	testkit.Must(t, err)
	if _, ok := l.Take(secret, expires); ok {
		t.Error("it was good after it had expired")
	}
	if _, ok := l.Take("login_guess", tokenTime); ok {
		t.Error("a guess was good")
	}
}

func TestManyLoginsOfOneUserPushOutOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	l := &Logins{}
	bobs, _, err := l.Create("bob", 1001, false, tokenTime)
	testkit.Must(t, err)
	first, _, err := l.Create("ann", 1000, false, tokenTime)
	testkit.Must(t, err)
	for range loginsPerUser {
		_, _, err := l.Create("ann", 1000, false, tokenTime)
		testkit.Must(t, err)
	}
	if _, ok := l.Take(first, tokenTime); ok {
		t.Error("the oldest stayed")
	}
	if _, ok := l.Take(bobs, tokenTime); !ok {
		t.Error("another user's login was pushed out")
	}
}

// sessionAt opens a session of a page at a listener, and returns what proves a
// request.
func sessionAt(t *testing.T, of *Tokens, parent TokenEntry, listener string) (api.Token, func(*Tokens, string) bool) {
	t.Helper()
	page := testkit.NewPage(t)
	session, err := of.Open(parent, page.Key(), listener, tokenTime)
	testkit.Must(t, err)
	return session, func(in *Tokens, at string) bool {
		_, ok := in.Prove(api.Proof{Session: session.ID, Signed: []byte("a request"), Signature: page.Sign("a request")}, at, tokenTime)
		return ok
	}
}

var annsLogin = TokenEntry{User: "ann", UID: 1000}

func TestASessionEndsWithItsTokenAndNotAfterIt(t *testing.T) {
	t.Parallel()
	disk := &tokenStore{}
	all := disk.open(t)
	token := createToken(t, all, "ann", 1000, day)
	parent, ok := all.Check(token.Secret, tokenTime)
	if !ok {
		t.Fatal("the token is not good")
	}
	session, proves := sessionAt(t, all, parent, "here")
	if !session.Expires.Equal(token.Expires) || session.Secret != "" {
		t.Errorf("the session lasts until %v, its token until %v; its secret is %q", session.Expires, token.Expires, session.Secret)
	}
	own, ownProves := sessionAt(t, all, annsLogin, "here")
	if want := tokenTime.Add(7 * day); !own.Expires.Equal(want) {
		t.Errorf("a session from a login lasts until %v, want %v", own.Expires, want)
	}
	again := disk.open(t) // as after a restart
	if !proves(again, "here") || !again.IsSession(session.ID) || again.IsSession(token.ID) {
		t.Error("the session did not survive a restart")
	}
	if proves(again, "there") || proves(again, "") {
		t.Error("the session is good at another listener")
	}
	forged := api.Proof{Session: session.ID, Signed: []byte("a request"), Signature: testkit.NewPage(t).Sign("a request")}
	if _, ok := again.Prove(forged, "here", tokenTime); ok {
		t.Error("another key is good for the session")
	}
	testkit.Must(t, again.Revoke(token.ID, 1000, false))
	if proves(again, "here") {
		t.Error("the session outlived its token")
	}
	if !ownProves(again, "here") {
		t.Error("a session of a login ended with a token")
	}
	if _, err := again.Open(parent, "", "here", tokenTime); !isForbidden(err) {
		t.Errorf("a revoked token opens a session: %v", err)
	}
}

// TestSessionsEndWithTheirListener, also on a full disk, and tokens do not.
func TestSessionsEndWithTheirListener(t *testing.T) {
	t.Parallel()
	disk := &tokenStore{}
	all := disk.open(t)
	token := createToken(t, all, "ann", 1000, day)
	_, before := sessionAt(t, all, annsLogin, "before")
	_, now := sessionAt(t, all, annsLogin, "now")
	disk.full = true
	if err := all.EndSessions(func(listener string) bool { return listener != "now" }); problem.KindOf(err) != problem.Unable {
		t.Errorf("on a full disk: %v", err)
	}
	for _, full := range []bool{true, false} {
		if disk.full = full; !full {
			testkit.Must(t, all.EndSessions(func(listener string) bool { return listener != "now" }))
			all = disk.open(t)
		}
		if before(all, "before") || !now(all, "now") {
			t.Errorf("disk full %v: the wrong session ended", full)
		}
		if _, ok := all.Check(token.Secret, tokenTime); !ok {
			t.Errorf("disk full %v: a token ended", full)
		}
	}
	// One that a berth before this one made had a secret, and no listener.
	all.replace([]TokenEntry{{ID: "old", UID: 1000, User: "ann", Hash: hashOf("berth_old_x"), Expires: tokenTime.Add(day), Session: true}})
	if _, ok := all.Check("berth_old_x", tokenTime); ok {
		t.Error("the secret of a session is good")
	}
	testkit.Must(t, all.EndSessions(func(listener string) bool { return listener != "now" }))
	if left := all.List(0, true, tokenTime); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestRevokingAllEndsOnesOwn(t *testing.T) {
	t.Parallel()
	all := (&tokenStore{}).open(t)
	anns, bobs := createToken(t, all, "ann", 1000, day), createToken(t, all, "bob", 1001, day)
	_, proves := sessionAt(t, all, annsLogin, "here")
	if ids, err := all.RevokeAll("ann", 1000); err != nil || len(ids) != 2 || ids[0] != anns.ID {
		t.Errorf("revoked %v, %v", ids, err)
	}
	if _, ok := all.Check(anns.Secret, tokenTime); ok || proves(all, "here") {
		t.Error("ann has a token left")
	}
	if _, ok := all.Check(bobs.Secret, tokenTime); !ok {
		t.Error("bob's token ended")
	}
	if ids, err := all.RevokeAll("nobody", -1); err != nil || len(ids) != 0 {
		t.Errorf("revoked %v, %v", ids, err)
	}
}

func TestANewSessionPushesOutTheOldestAndNoToken(t *testing.T) {
	t.Parallel()
	all := (&tokenStore{}).open(t)
	token := createToken(t, all, "ann", 1000, day)
	var proofs []func(*Tokens, string) bool
	for range sessionsPerUser + 1 {
		_, proves := sessionAt(t, all, annsLogin, "here")
		proofs = append(proofs, proves)
	}
	for i, proves := range proofs {
		if proves(all, "here") != (i > 0) {
			t.Errorf("session %d of %d", i, len(proofs))
		}
	}
	if _, ok := all.Check(token.Secret, tokenTime); !ok {
		t.Error("the token was pushed out")
	}
	for range tokensPerUser - 1 { // sessions take no token's place
		createToken(t, all, "ann", 1000, time.Hour)
	}
}
