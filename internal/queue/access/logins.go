package access

import (
	"slices"
	"sync"
	"time"

	"berth/internal/text/problem"
)

// Bounds on logins of browsers.
const (
	loginTTL        = 5 * time.Minute
	loginsPerUser   = 5
	loginsInAll     = 1000
	sessionTTL      = 7 * day
	sessionsPerUser = 10
	sessionsInAll   = 1000
)

// Login is a secret that opens one session. It is kept in memory only: after a
// restart `berth web` makes another.
type Login struct {
	hash    string
	User    string
	UID     int
	Plain   bool // root accepts a page without TLS
	expires time.Time
}

// Logins are the one-time logins that wait to be used, oldest first.
type Logins struct {
	mu  sync.Mutex
	all []Login
}

// Create makes a login. A user with too many loses the oldest.
func (l *Logins) Create(user string, uid int, plain bool, now time.Time) (secret string, expires time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(one Login) bool { return !now.Before(one.expires) })
	isOwn := func(one Login) bool { return one.UID == uid }
	own := 0
	for _, one := range l.all {
		if isOwn(one) {
			own++
		}
	}
	if own >= loginsPerUser {
		oldest := slices.IndexFunc(l.all, isOwn)
		l.all = slices.Delete(l.all, oldest, oldest+1)
	}
	if len(l.all) >= loginsInAll {
		return "", time.Time{}, problem.Newf(problem.TooMuch, "try again in a few minutes", "there are already %d logins, the most for all users", len(l.all))
	}
	secret, expires = "login_"+randomText(tokenSecretSize), now.Add(loginTTL)
	l.all = append(l.all, Login{hash: hashOf(secret), User: user, UID: uid, Plain: plain, expires: expires})
	return secret, expires, nil
}

// Take finds the login of a secret and removes it, so that of two requests with
// it only one succeeds.
func (l *Logins) Take(secret string, now time.Time) (Login, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hash := hashOf(secret)
	i := slices.IndexFunc(l.all, func(one Login) bool { return one.hash == hash })
	if i < 0 {
		return Login{}, false
	}
	one := l.all[i]
	l.all = slices.Delete(l.all, i, i+1)
	return one, now.Before(one.expires)
}
