package daemon

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/queue/config"
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

// login is a secret that opens one session. It is kept in memory only: after a
// restart `berth web` makes another.
type login struct {
	hash, user string
	uid        int
	plain      bool // root accepts a page without TLS
	expires    time.Time
}

// logins are the one-time logins that wait to be used, oldest first.
type logins struct {
	mu  sync.Mutex
	all []login
}

// create makes a login. A user with too many loses the oldest.
func (l *logins) create(user string, uid int, plain bool, now time.Time) (secret string, expires time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(one login) bool { return !now.Before(one.expires) })
	isOwn := func(one login) bool { return one.uid == uid }
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
	l.all = append(l.all, login{hash: hashOf(secret), user: user, uid: uid, plain: plain, expires: expires})
	return secret, expires, nil
}

// take finds the login of a secret and removes it, so that of two requests with
// it only one succeeds.
func (l *logins) take(secret string, now time.Time) (login, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hash := hashOf(secret)
	i := slices.IndexFunc(l.all, func(one login) bool { return one.hash == hash })
	if i < 0 {
		return login{}, false
	}
	one := l.all[i]
	l.all = slices.Delete(l.all, i, i+1)
	return one, now.Before(one.expires)
}

// NewLogin makes a one-time login for the caller, and says where the page is.
func (d *Daemon) NewLogin(_ context.Context, c api.Caller, r api.LoginRequest) (api.Login, error) {
	if c.Token != "" {
		return api.Login{}, problem.Newf(problem.Forbidden, "open the page and log in with the token itself", "a token cannot create a login")
	}
	address, err := d.pageAddress()
	if err == nil {
		err = d.mayLogIn(c, strings.HasPrefix(address, "https:"), r.PlainHTTP)
	}
	if err != nil {
		return api.Login{}, err
	}
	secret, expires, err := d.logins.create(c.Name, c.UID, r.PlainHTTP, time.Now())
	d.note(c, "login create", nil, "", err)
	return api.Login{Secret: secret, Expires: expires.UTC().Truncate(time.Second), Address: address}, err
}

// mayLogIn refuses the page to root and administrators where its server proves
// nothing. While no daemon listens there, any user of the machine can take a
// plain port, and a page from that user could act with their permissions. On a
// private daemon root can accept that (plain): in most containers there is nobody
// else.
func (d *Daemon) mayLogIn(c api.Caller, trusted, plain bool) error {
	switch {
	case trusted:
	case d.opt.Places.Shared && c.Admin:
		return problem.Newf(problem.Forbidden, "ask for tls_cert and tls_key in [http] of the config, or listen = \"unix:…\" behind a proxy with TLS",
			"%s is root or an administrator, who may log in to the page only over TLS", c.Name)
	case !d.opt.Places.Shared && c.UID == 0 && !plain:
		return problem.Newf(problem.Forbidden, "where nobody else uses the machine: berth web --plain-http", "root may log in to the page only over TLS")
	}
	return nil
}

// OpenSession exchanges a one-time login or a token for a session.
func (d *Daemon) OpenSession(ctx context.Context, visitor api.Caller, r api.SessionRequest) (api.Session, error) {
	w := visitor.Way
	if w.Listener == "" {
		return api.Session{}, problem.Newf(problem.Refused, "send this to the address of the page", "the daemon's own socket has no sessions: the kernel vouches for its callers")
	}
	now := time.Now()
	one, isLogin := d.logins.take(r.Secret, now)
	parent, detail := tokenEntry{User: one.user, UID: one.uid}, ""
	if !isLogin {
		var ok bool
		if parent, ok = d.tokens.check(r.Secret, now); !ok {
			err := problem.Newf(problem.Forbidden, "berth web makes another login; if somebody else used it, berth token list shows the session and berth token revoke ends it",
				"this login is unknown, was used already, or has expired")
			d.note(api.Caller{UID: -1, Way: w}, "session open", nil, "", err)
			return api.Session{}, err
		}
		detail = " from token " + parent.ID
	}
	c, err := d.admit(ctx, parent.UID, parent.User, 0)
	if err == nil {
		err = d.mayLogIn(c, w.Trusted(), one.plain)
	}
	var t api.Token
	if err == nil {
		t, err = d.tokens.open(parent, r.Key, w.Listener, now)
	}
	d.note(api.Caller{UID: parent.UID, Name: parent.User, Way: w}, "session open", nil, t.ID+detail, err)
	return api.Session{ID: t.ID, User: t.User, Expires: t.Expires}, err
}

// endOtherSessions ends the sessions of every listener but the one that the
// daemon has now: somebody else may have answered in its place.
func (d *Daemon) endOtherSessions(listener string) {
	if err := d.tokens.endSessions(func(of string) bool { return of != listener }); err != nil {
		d.log.Warn("end sessions of an earlier listener", "err", err)
	}
}

// EndSession logs a browser out. A token that is not a session's stays valid.
func (d *Daemon) EndSession(ctx context.Context, c api.Caller, _ api.None) (api.None, error) {
	if !d.tokens.isSession(c.Token) {
		return api.None{}, problem.Newf(problem.Refused, "berth token revoke revokes a token", "this request belongs to no session")
	}
	return d.RevokeToken(ctx, c, api.TokenID{ID: c.Token})
}

// pageAddress is where a browser finds the page.
func (d *Daemon) pageAddress() (string, error) {
	address, warnings := d.http.state()
	if address == "" && len(warnings) > 0 {
		return "", problem.Newf(problem.Unable, "see the daemon's log", "%s", warnings[0])
	}
	if address == "" && d.opt.Places.Shared {
		return "", problem.Newf(problem.Refused, "ask an administrator to set listen, tls_cert and tls_key in [http] of the config, or listen = \"unix:/run/berth/http.sock\" behind a proxy with TLS, and to restart the daemon", "this daemon listens on no address for the page")
	}
	if address == "" {
		var err error
		if address, err = d.http.openPage(); err != nil {
			return "", problem.Newf(problem.Unable, "start the daemon with --http ADDRESS", "no port for the page: %v", err)
		}
	}
	return pageURL(address, d.config()), nil
}

// pageURL is an address as a browser takes it. One that means all addresses of
// the machine is replaced by a name.
func pageURL(address string, cfg *config.Config) string {
	if strings.HasPrefix(cfg.Listen, config.UnixListen) {
		return "https://" + cfg.Hosts[0]
	}
	scheme := "http://"
	if cfg.TLSCert != "" {
		scheme = "https://"
	}
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || parsed.Addr().IsLoopback() {
		return scheme + address
	}
	_, port, _ := net.SplitHostPort(address)
	name := parsed.Addr().String()
	if parsed.Addr().IsUnspecified() {
		host, _ := os.Hostname()
		name = cmp.Or(host, "localhost")
	}
	if len(cfg.Hosts) > 0 { // the names that are in its certificate
		name = cfg.Hosts[0]
	}
	return scheme + net.JoinHostPort(name, port)
}
