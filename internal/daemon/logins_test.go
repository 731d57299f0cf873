package daemon

import (
	"errors"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/problem"
	"berth/internal/testkit"
)

func isForbidden(err error) bool {
	p, ok := errors.AsType[*problem.Problem](err)
	return ok && p.Kind == problem.Forbidden
}

func TestALoginOpensOneSessionAndNotAnExpiredOne(t *testing.T) {
	l := &logins{}
	secret, expires, err := l.create("ann", 1000, tokenTime)
	testkit.Must(t, err)
	if one, ok := l.take(secret, tokenTime); !ok || one.user != "ann" || one.uid != 1000 {
		t.Errorf("taken: %+v %v", one, ok)
	}
	if _, ok := l.take(secret, tokenTime); ok {
		t.Error("it was good twice")
	}
	secret, _, err = l.create("ann", 1000, tokenTime)
	testkit.Must(t, err)
	if _, ok := l.take(secret, expires); ok {
		t.Error("it was good after it had expired")
	}
	if _, ok := l.take("login_guess", tokenTime); ok {
		t.Error("a guess was good")
	}
}

func TestManyLoginsOfOneUserPushOutOnlyTheirOwn(t *testing.T) {
	l := &logins{}
	bobs, _, err := l.create("bob", 1001, tokenTime)
	testkit.Must(t, err)
	first, _, err := l.create("ann", 1000, tokenTime)
	testkit.Must(t, err)
	for range loginsPerUser {
		_, _, err := l.create("ann", 1000, tokenTime)
		testkit.Must(t, err)
	}
	if _, ok := l.take(first, tokenTime); ok {
		t.Error("the oldest stayed")
	}
	if _, ok := l.take(bobs, tokenTime); !ok {
		t.Error("another user's login was pushed out")
	}
}

func TestASessionEndsWithItsTokenAndNotAfterIt(t *testing.T) {
	disk := &tokenStore{}
	all := disk.open(t)
	token := createToken(t, all, "ann", 1000, day)
	parent, ok := all.check(token.Secret, tokenTime)
	if !ok {
		t.Fatal("the token is not good")
	}
	session, err := all.open(parent, tokenTime)
	testkit.Must(t, err)
	if !session.Expires.Equal(token.Expires) {
		t.Errorf("the session lasts until %v, its token until %v", session.Expires, token.Expires)
	}
	own, err := all.open(tokenEntry{User: "ann", UID: 1000}, tokenTime)
	testkit.Must(t, err)
	if want := tokenTime.Add(7 * day); !own.Expires.Equal(want) {
		t.Errorf("a session from a login lasts until %v, want %v", own.Expires, want)
	}
	again := disk.open(t) // as after a restart
	if _, ok := again.check(session.Secret, tokenTime); !ok || !again.isSession(session.ID) || again.isSession(token.ID) {
		t.Error("the session did not survive a restart")
	}
	testkit.Must(t, again.revoke(token.ID, 1000, false))
	if _, ok := again.check(session.Secret, tokenTime); ok {
		t.Error("the session outlived its token")
	}
	if _, ok := again.check(own.Secret, tokenTime); !ok {
		t.Error("a session of a login ended with a token")
	}
	if _, err := again.open(parent, tokenTime); !isForbidden(err) {
		t.Errorf("a revoked token opens a session: %v", err)
	}
}

func TestANewSessionPushesOutTheOldestAndNoToken(t *testing.T) {
	all := (&tokenStore{}).open(t)
	token := createToken(t, all, "ann", 1000, day)
	var sessions []api.Token
	for range sessionsPerUser + 1 {
		s, err := all.open(tokenEntry{User: "ann", UID: 1000}, tokenTime)
		testkit.Must(t, err)
		sessions = append(sessions, s)
	}
	if _, ok := all.check(sessions[0].Secret, tokenTime); ok {
		t.Error("the oldest session stayed")
	}
	for _, s := range append(sessions[1:], token) {
		if _, ok := all.check(s.Secret, tokenTime); !ok {
			t.Errorf("%s was pushed out", s.ID)
		}
	}
	for range tokensPerUser - 1 { // sessions take no token's place
		createToken(t, all, "ann", 1000, time.Hour)
	}
}
