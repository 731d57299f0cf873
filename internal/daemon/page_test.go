package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/problem"
	"berth/internal/testkit"
)

// browser is what a browser keeps of a login.
type browser struct {
	t       *testing.T
	at      string
	cookie  *http.Cookie
	session api.Session
}

func (b *browser) ask(method, path, body string) (int, string) {
	b.t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.at+path, from)
	testkit.Must(b.t, err)
	r.Header.Set("Origin", b.at)
	if b.cookie != nil {
		r.AddCookie(&http.Cookie{Name: b.cookie.Name, Value: b.cookie.Value})
		r.Header.Set("Berth-Session", b.session.Key)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	reply, err := transport.RoundTrip(r)
	testkit.Must(b.t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	testkit.Must(b.t, err)
	if path == "/v1/session" && method == http.MethodPost && reply.StatusCode == http.StatusOK {
		b.cookie = reply.Cookies()[0]
		testkit.Must(b.t, json.Unmarshal(text, &b.session))
	}
	return reply.StatusCode, string(text)
}

func (b *browser) login(secret string) (int, string) {
	return b.ask(http.MethodPost, "/v1/session", `{"secret":"`+secret+`"}`)
}

// TestABrowserLogsIn on a private daemon that listens nowhere until it is asked,
// and is still logged in after a restart.
func TestABrowserLogsIn(t *testing.T) {
	l := newLab(t)
	if s, err := l.Client.Status(t.Context()); err != nil || s.HTTP != "" {
		t.Fatalf("it listens at %q, %v", s.HTTP, err)
	}
	login, err := l.Client.NewLogin(t.Context())
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
	thief := &browser{t: t, at: login.Address}
	if status, text := thief.login(login.Secret); status != 403 || !strings.Contains(text, "used already") {
		t.Errorf("the login was good twice: %d %s", status, text)
	}
	if status, text := thief.login(b.cookie.Value + b.session.Key); status != 403 {
		t.Errorf("a session opened another: %d %s", status, text)
	}
	if status, text := b.ask(http.MethodPost, "/v1/logins", ""); status != 403 {
		t.Errorf("a session made a login: %d %s", status, text)
	}
	if status, text := b.ask(http.MethodPost, "/v1/tokens", `{"name":"x"}`); status != 403 {
		t.Errorf("a session made a token: %d %s", status, text)
	}
	l.restart()
	again, err := l.Client.Status(t.Context())
	testkit.Must(t, err)
	if again.HTTP == "" {
		t.Fatal("a browser that is logged in does not find the page after a restart")
	}
	if b.at != "http://"+again.HTTP { // its port was taken meanwhile
		t.Skip("the daemon came back at another port")
	}
	if status, text := b.ask(http.MethodGet, "/v1/status", ""); status != 200 {
		t.Errorf("after a restart: %d %s", status, text)
	}
	testkit.Must(t, l.Client.RevokeToken(t.Context(), b.session.ID))
	if status, _ := b.ask(http.MethodGet, "/v1/status", ""); status != 401 {
		t.Errorf("a revoked session: %d", status)
	}
}

func TestATokenOpensASessionThatLogsOutAlone(t *testing.T) {
	l := newLab(t)
	login, err := l.Client.NewLogin(t.Context())
	testkit.Must(t, err)
	token, err := l.Client.NewToken(t.Context(), api.TokenRequest{Name: "laptop", TTLS: 3600})
	testkit.Must(t, err)
	b := &browser{t: t, at: login.Address}
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
	testkit.Must(t, l.Client.RevokeToken(t.Context(), token.ID))
	if status, _ := b.ask(http.MethodGet, "/v1/status", ""); status != 401 {
		t.Errorf("a session of a revoked token: %d", status)
	}
}

func TestASharedDaemonOpensNoPortByItself(t *testing.T) {
	d := &Daemon{opt: Options{}, http: &port{}}
	d.opt.Places.Shared = true
	_, err := d.NewLogin(t.Context(), api.Caller{UID: 1000, Name: "ann"})
	if p, ok := err.(*problem.Problem); !ok || p.Kind != problem.Refused || !strings.Contains(p.Hint, "[http]") {
		t.Errorf("%v", err)
	}
}

func TestThePageIsWhereABrowserFindsIt(t *testing.T) {
	for _, c := range []struct {
		address string
		cfg     Config
		want    string
	}{
		{"127.0.0.1:7878", Config{Hosts: []string{"gpu1"}}, "http://127.0.0.1:7878"},
		{"10.1.2.3:7878", Config{TLSCert: "/a"}, "https://10.1.2.3:7878"},
		{"0.0.0.0:7878", Config{TLSCert: "/a", Hosts: []string{"gpu1.example.org"}}, "https://gpu1.example.org:7878"},
		{"/run/berth/http.sock", Config{Listen: "unix:/run/berth/http.sock", Hosts: []string{"gpu1.example.org"}}, "https://gpu1.example.org"},
		{"[::]:443", Config{TLSCert: "/a", Hosts: []string{"gpu1"}}, "https://gpu1:443"},
	} {
		if got := pageURL(c.address, &c.cfg); got != c.want {
			t.Errorf("%s: %s, want %s", c.address, got, c.want)
		}
	}
}
