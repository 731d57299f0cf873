package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/queue/access"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// browser is the page in a browser.
type browser struct {
	t       *testing.T
	at      string
	page    *testkit.Page // nil: not logged in
	session api.Session
}

func (b *browser) ask(method, path, body string) (int, string) {
	b.t.Helper()
	status, text, header := b.send(method, path, body)
	if b.page != nil && b.page.Hear(header) && status == http.StatusUnauthorized {
		status, text, _ = b.send(method, path, body)
	}
	return status, text
}

func (b *browser) send(method, path, body string) (int, string, http.Header) {
	b.t.Helper()
	reply := b.open(method, path, body)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	testkit.Must(b.t, err)
	return reply.StatusCode, string(text), reply.Header
}

// open sends a request whose reply may have no end.
func (b *browser) open(method, path, body string) *http.Response {
	b.t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.at+path, from)
	testkit.Must(b.t, err)
	r.Header.Set("Origin", b.at)
	if b.page != nil {
		r.Header.Set("Berth-Session", b.page.Header(method, path, body))
	}
	transport := &http.Transport{}
	b.t.Cleanup(transport.CloseIdleConnections)
	reply, err := transport.RoundTrip(r)
	testkit.Must(b.t, err)
	return reply
}

func (b *browser) login(secret string) (int, string) {
	b.t.Helper()
	b.page = nil
	page := testkit.NewPage(b.t)
	status, text, header := b.send(http.MethodPost, "/v1/session", `{"secret":"`+secret+`","key":"`+page.Key()+`"}`)
	if status == http.StatusOK {
		testkit.Must(b.t, json.Unmarshal([]byte(text), &b.session))
		b.page, page.ID = page, b.session.ID
		page.Hear(header)
	}
	return status, text
}

// plainly is a login that root accepts without TLS: tests may run as root.
var plainly = api.LoginRequest{PlainHTTP: true}

// TestABrowserLogsIn on a private daemon that listens nowhere until it is asked,
// and is logged out when the daemon gives up its port.
func TestABrowserLogsIn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if s, err := api.Call(t.Context(), l.Client, api.GetStatus, api.None{}); err != nil || s.HTTP != "" {
		t.Fatalf("it listens at %q, %v", s.HTTP, err)
	}
	login, err := api.Call(t.Context(), l.Client, api.NewLogin, plainly)
	testkit.Must(t, err)
	b := &browser{t: t, at: login.Address}
	if status, page := b.ask(http.MethodGet, "/", ""); status != 200 || !strings.Contains(page, "<!doctype html>") {
		t.Errorf("the page: %d %s", status, page)
	}
	if status, text := b.ask(http.MethodGet, "/v1/status", ""); status != 401 {
		t.Errorf("before the login: %d %s", status, text)
	}
	if status, text := b.login(login.Secret); status != 200 {
		t.Fatalf("log in: %d %s", status, text)
	}
	if status, text := b.ask(http.MethodGet, "/v1/status", ""); status != 200 {
		t.Errorf("logged in: %d %s", status, text)
	}
	thief := &browser{t: t, at: login.Address}
	if status, text := thief.login(login.Secret); status != 403 || !strings.Contains(text, "used already") {
		t.Errorf("the login was good twice: %d %s", status, text)
	}
	for _, secret := range []string{b.session.ID, b.page.Key(), b.page.Header(http.MethodPost, "/v1/session", "")} {
		if status, text := thief.login(secret); status != 403 {
			t.Errorf("what is known of a session opened another: %d %s", status, text)
		}
	}
	if status, text := b.ask(http.MethodPost, "/v1/logins", ""); status != 403 {
		t.Errorf("a session made a login: %d %s", status, text)
	}
	if status, text := b.ask(http.MethodPost, "/v1/tokens", `{"name":"x"}`); status != 403 {
		t.Errorf("a session made a token: %d %s", status, text)
	}
	again, err := api.Call(t.Context(), l.Client, api.NewLogin, plainly)
	testkit.Must(t, err)
	other := &browser{t: t, at: again.Address}
	if status, text := other.login(again.Secret); status != 200 {
		t.Fatalf("log in: %d %s", status, text)
	}
	testkit.Must(t, api.Do(t.Context(), l.Client, api.RevokeToken, api.TokenID{ID: other.session.ID}))
	if status, _ := other.ask(http.MethodGet, "/v1/status", ""); status != 401 {
		t.Errorf("a revoked session: %d", status)
	}
	l.stop()
	l.start()
	login, err = api.Call(t.Context(), l.Client, api.NewLogin, plainly)
	testkit.Must(t, err)
	b.at = login.Address // whichever port it is
	if status, text := b.ask(http.MethodGet, "/v1/status", ""); status != 401 {
		t.Errorf("after the port was anybody's: %d %s", status, text)
	}
	l.until("the session is forgotten", func() bool {
		tokens, err := api.Call(t.Context(), l.Client, api.ListTokens, api.None{})
		return err == nil && len(tokens) == 0
	})
}

func TestATokenOpensASessionThatLogsOutAlone(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t, with(func(c *config.Config) { c.Listen = "127.0.0.1:0" }))
	ann := l.as("daemon")
	token, err := l.d.door.NewToken(t.Context(), ann.Caller, api.TokenRequest{Name: "laptop", TTLS: 3600})
	testkit.Must(t, err)
	b := l.browser()
	if status, text := b.login(token.Secret); status != 200 || !b.session.Expires.Equal(token.Expires) {
		t.Fatalf("log in: %d %s", status, text)
	}
	if status, text := b.ask(http.MethodDelete, "/v1/session", ""); status != 204 {
		t.Errorf("log out: %d %s", status, text)
	}
	if status, _ := b.ask(http.MethodGet, "/v1/status", ""); status != 401 {
		t.Errorf("after logging out: %d", status)
	}
	if status, text := b.login(token.Secret); status != 200 {
		t.Errorf("the token ended with the session: %d %s", status, text)
	}
	testkit.Must(t, api.Do(t.Context(), l.Client, api.RevokeToken, api.TokenID{ID: token.ID}))
	if status, _ := b.ask(http.MethodGet, "/v1/status", ""); status != 401 {
		t.Errorf("a session of a revoked token: %d", status)
	}
}

// browser is one that has opened the page.
func (l *lab) browser() *browser {
	l.t.Helper()
	address := ""
	l.until("it listens", func() bool {
		status, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
		address = status.HTTP
		return err == nil && address != ""
	})
	return &browser{t: l.t, at: "http://" + address}
}

// TestAdministratorsLogInOverTLSOnly: at a plain port, a page of somebody else
// could act with their permissions.
func TestAdministratorsLogInOverTLSOnly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name                          string
		shared, trusted, plain, admin bool
		uid                           int
		may                           bool
	}{
		{"root of a shared daemon", true, false, false, true, 0, false},
		{"root of a shared daemon, who accepts it", true, false, true, true, 0, false},
		{"root of a shared daemon over TLS", true, true, false, true, 0, true},
		{"an administrator", true, false, true, true, 1000, false},
		{"an administrator over TLS", true, true, false, true, 1000, true},
		{"a user", true, false, false, false, 1000, true},
		{"root of a private daemon", false, false, false, true, 0, false},
		{"root of a private daemon, who accepts it", false, false, true, true, 0, true},
		{"the user of a private daemon", false, false, false, true, 1000, true},
	} {
		d := newDaemon(Options{Places: site.Places{Shared: test.shared}})
		err := d.door.mayLogIn(api.Caller{UID: test.uid, Name: "ann", Admin: test.admin}, test.trusted, test.plain)
		if (err == nil) != test.may || err != nil && problem.KindOf(err) != problem.Forbidden {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestAnAdministratorGetsNoSessionAtAPlainPort: not by a login, not by a token,
// and a user's session ends when the user becomes one.
func TestAnAdministratorGetsNoSessionAtAPlainPort(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t, with(func(c *config.Config) { c.Listen = "127.0.0.1:0" }))
	_, err := api.Call(t.Context(), l.Client, api.NewLogin, plainly)
	wantProblem(t, err, problem.Forbidden, "only over TLS")
	b := l.browser()
	token, err := api.Call(t.Context(), l.Client, api.NewToken, api.TokenRequest{Name: "roots"})
	testkit.Must(t, err)
	if status, text := b.login(token.Secret); status != 403 || !strings.Contains(text, "only over TLS") {
		t.Errorf("root's token: %d %s", status, text)
	}
	user := l.as("daemon")
	login, err := l.d.door.NewLogin(t.Context(), user.Caller, api.LoginRequest{})
	testkit.Must(t, err)
	if status, text := b.login(login.Secret); status != 200 {
		t.Fatalf("a user's login: %d %s", status, text)
	}
	if status, text := b.ask(http.MethodGet, "/v1/status", ""); status != 200 {
		t.Errorf("a user's session: %d %s", status, text)
	}
	cfg := *l.d.svc.Config()
	cfg.AdminGroup = "daemon"
	l.d.svc.cfg.Store(&cfg)
	if status, text := b.ask(http.MethodGet, "/v1/status", ""); status != 401 {
		t.Errorf("an administrator's session: %d %s", status, text)
	}
}

// TestWhereASessionWasOpened: the audit log and the list of tokens know the way
// and the address.
func TestWhereASessionWasOpened(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t, with(func(c *config.Config) { c.Listen = "127.0.0.1:0" }))
	user := l.as("daemon")
	b := l.browser()
	login, err := l.d.door.NewLogin(t.Context(), user.Caller, api.LoginRequest{})
	testkit.Must(t, err)
	if status, text := b.login(login.Secret); status != 200 {
		t.Fatalf("log in: %d %s", status, text)
	}
	if status, text := b.login("login_guess"); status != 403 {
		t.Fatalf("a guess: %d %s", status, text)
	}
	token, err := l.d.door.NewToken(t.Context(), user.Caller, api.TokenRequest{Name: "laptop"})
	testkit.Must(t, err)
	if status, text := b.login(token.Secret); status != 200 {
		t.Fatalf("log in: %d %s", status, text)
	}
	before, err := l.d.svc.queue.Store.Meta(tokensKey)
	testkit.Must(t, err)
	if status, text := b.ask(http.MethodGet, "/v1/status", ""); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if after, err := l.d.svc.queue.Store.Meta(tokensKey); err != nil || after != before {
		t.Errorf("a request changed the tokens on disk: %v", err)
	}
	tokens, err := l.d.door.Tokens(t.Context(), user.Caller)
	testkit.Must(t, err)
	for _, one := range tokens {
		if used := one.ID == b.session.ID; used != (one.Used != nil) || used != (one.UsedFrom == "127.0.0.1") {
			t.Errorf("%+v, of which %s was used", one, b.session.ID)
		}
	}
	opened := 0
	for _, e := range l.audited() {
		if e.Action != "session open" {
			continue
		}
		if opened++; e.Via != "http" || e.From != "127.0.0.1" || (e.UID == -1) == (e.Result == access.OK) {
			t.Errorf("%+v", e)
		}
	}
	if opened != 3 {
		t.Errorf("%d lines of 3", opened)
	}
	revoked, err := l.d.door.RevokeTokens(t.Context(), user.Caller, api.RevokeQuery{})
	if err != nil || len(revoked.IDs) != 3 {
		t.Errorf("revoked %v, %v", revoked, err)
	}
	if status, _ := b.ask(http.MethodGet, "/v1/status", ""); status != 401 {
		t.Errorf("after all tokens were revoked: %d", status)
	}
}

// TestStreamsEndWithTheirSession: whoever had it sees nothing more.
func TestStreamsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var ways []*browser
	for range 2 {
		login, err := api.Call(t.Context(), l.Client, api.NewLogin, plainly)
		testkit.Must(t, err)
		b := &browser{t: t, at: login.Address}
		if status, text := b.login(login.Secret); status != 200 {
			t.Fatalf("log in: %d %s", status, text)
		}
		ways = append(ways, b)
	}
	job := l.one(sh("sleep 600"))
	l.untilState(job, "running")
	streams := map[string]*http.Response{}
	for _, path := range []string{"/v1/events?gpus=true", "/v1/jobs/" + job + "/log?follow=true"} {
		streams[path] = ways[0].open(http.MethodGet, path, "")
		defer streams[path].Body.Close()
	}
	stays := ways[1].open(http.MethodGet, "/v1/events", "")
	defer stays.Body.Close()
	testkit.Must(t, api.Do(t.Context(), l.Client, api.RevokeToken, api.TokenID{ID: ways[0].session.ID}))
	for path, reply := range streams {
		late := time.AfterFunc(testkit.Patience, func() { t.Errorf("%s goes on", path); reply.Body.Close() })
		text, err := io.ReadAll(reply.Body)
		late.Stop()
		if err == nil && !strings.Contains(string(text), "session has ended") {
			t.Errorf("%s ended with %s", path, text)
		}
	}
	l.one(sh("true"))
	if _, err := io.ReadFull(stays.Body, make([]byte, 10)); err != nil {
		t.Errorf("a stream of another session: %v", err)
	}
}

func TestASharedDaemonOpensNoPortByItself(t *testing.T) {
	t.Parallel()
	d := newDaemon(Options{Places: site.Places{Shared: true}})
	_, err := d.door.NewLogin(t.Context(), api.Caller{UID: 1000, Name: "ann"}, api.LoginRequest{})
	if p, ok := err.(*problem.Problem); !ok || p.Kind != problem.Refused || !strings.Contains(p.Hint, "[http]") {
		t.Errorf("%v", err)
	}
}

func TestThePageIsWhereABrowserFindsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address string
		cfg     config.Config
		want    string
	}{
		{"127.0.0.1:7878", config.Config{Hosts: []string{"gpu1"}}, "http://127.0.0.1:7878"},
		{"10.1.2.3:7878", config.Config{TLSCert: "/a"}, "https://10.1.2.3:7878"},
		{"0.0.0.0:7878", config.Config{TLSCert: "/a", Hosts: []string{"gpu1.example.org"}}, "https://gpu1.example.org:7878"},
		{"/run/berth/http.sock", config.Config{Listen: "unix:/run/berth/http.sock", Hosts: []string{"gpu1.example.org"}}, "https://gpu1.example.org"},
		{"[::]:443", config.Config{TLSCert: "/a", Hosts: []string{"gpu1"}}, "https://gpu1:443"},
	} {
		if got := pageURL(c.address, &c.cfg); got != c.want {
			t.Errorf("%s: %s, want %s", c.address, got, c.want)
		}
	}
}
