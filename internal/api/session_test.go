package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/testkit"
)

// browserAsk sends one request by TCP and returns the reply, whose body was read.
func browserAsk(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(background(t), method, url, from)
	testkit.Must(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	reply, err := transport.RoundTrip(r)
	testkit.Must(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	testkit.Must(t, err)
	return reply, string(text)
}

func TestABrowserNeedsBothHalvesOfItsSession(t *testing.T) {
	f := newFake()
	at := "http://" + serveTCP(t, f, TCPOptions{})
	reply, text := browserAsk(t, "POST", at+"/v1/session", `{"secret":"`+exampleLogin.Secret+`"}`, "Origin", at, "Sec-Fetch-Site", "same-origin")
	if reply.StatusCode != 200 || len(reply.Cookies()) != 1 {
		t.Fatalf("log in: %d %s %v", reply.StatusCode, text, reply.Cookies())
	}
	cookie := reply.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("cookie %v", cookie)
	}
	var session Session
	testkit.Must(t, json.Unmarshal([]byte(text), &session))
	if len(cookie.Value) < 8 || len(session.Key) < 8 || strings.Contains(text, cookie.Value) {
		t.Errorf("halves %q and %q", cookie.Value, session.Key)
	}
	sent := cookie.Name + "=" + cookie.Value
	for _, test := range []struct {
		name, method, path string
		headers            []string
		status             int
	}{
		{"both", "GET", "/v1/status", []string{"Cookie", sent, headerSession, session.Key}, 200},
		{"a stolen cookie", "GET", "/v1/status", []string{"Cookie", sent}, 401},
		{"a stolen key", "GET", "/v1/status", []string{headerSession, session.Key}, 401},
		{"a cookie of another port", "GET", "/v1/status", []string{"Cookie", "berth-1=" + cookie.Value, headerSession, session.Key}, 401},
		{"the halves in the wrong order", "GET", "/v1/status", []string{"Cookie", cookie.Name + "=" + session.Key, headerSession, cookie.Value}, 401},
		{"another scheme wins over the session", "GET", "/v1/status", []string{"Authorization", "Basic eA==", "Cookie", sent, headerSession, session.Key}, 401},
		{"another site", "POST", "/v1/gpus/0/pause", []string{"Cookie", sent, headerSession, session.Key, "Sec-Fetch-Site", "cross-site"}, 403},
		{"another port of the host", "POST", "/v1/gpus/0/pause", []string{"Cookie", sent, headerSession, session.Key, "Sec-Fetch-Site", "same-site"}, 403},
		{"another origin", "DELETE", "/v1/session", []string{"Cookie", sent, headerSession, session.Key, "Origin", "http://127.0.0.1:1"}, 403},
		{"the page itself", "POST", "/v1/gpus/0/pause", []string{"Cookie", sent, headerSession, session.Key, "Origin", at, "Sec-Fetch-Site", "same-origin"}, 200},
		{"logging out", "DELETE", "/v1/session", []string{"Cookie", sent, headerSession, session.Key, "Origin", at}, 204},
		{"after logging out", "GET", "/v1/status", []string{"Cookie", sent, headerSession, session.Key}, 401},
	} {
		if reply, text := browserAsk(t, test.method, at+test.path, "", test.headers...); reply.StatusCode != test.status {
			t.Errorf("%s: %d %s, want %d", test.name, reply.StatusCode, text, test.status)
		}
	}
}

func TestAVisitorReachesThePageAndTheLoginOnly(t *testing.T) {
	at := "http://" + serveTCP(t, newFake(), TCPOptions{})
	for _, r := range operations() {
		path := strings.NewReplacer("{id}", "17", "{index}", "0", "{name}", "g", "{user}", "ann", "{$}", "", "{file}", "x.js").Replace(r.path)
		reply, text := browserAsk(t, r.method, at+path, "")
		if (reply.StatusCode == 401) == r.open {
			t.Errorf("%s %s: %d %s", r.method, path, reply.StatusCode, text)
		}
		if r.open && r.path != "/v1/session" && r.method != get {
			t.Errorf("%s %s is open", r.method, r.path)
		}
	}
	for name, headers := range map[string][]string{
		"from another site":   {"Sec-Fetch-Site", "cross-site"},
		"from another origin": {"Origin", "https://evil.example"},
	} {
		reply, _ := browserAsk(t, "POST", at+"/v1/session", `{"secret":"`+exampleLogin.Secret+`"}`, headers...)
		if reply.StatusCode != 403 || len(reply.Cookies()) > 0 {
			t.Errorf("a login %s: %d", name, reply.StatusCode)
		}
	}
	for _, body := range []string{`{"secret":""}`, `{}`, `{"secret":"` + strings.Repeat("x", 600) + `"}`} {
		if reply, _ := browserAsk(t, "POST", at+"/v1/session", body); reply.StatusCode != 400 {
			t.Errorf("%.40s: %d", body, reply.StatusCode)
		}
	}
	if reply, _ := browserAsk(t, "POST", at+"/v1/session", `{"secret":"login_guess"}`); reply.StatusCode != 403 {
		t.Errorf("a guess: %d", reply.StatusCode)
	}
}

// TestAProxyBringsNobodysIdentity: whoever connects to the socket for a proxy
// needs a token, root too, and a name that the config has.
func TestAProxyBringsNobodysIdentity(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "http.sock")
	l, err := Listen(socket, 0o666)
	testkit.Must(t, err)
	s := NewServer(ServerOptions{Backend: newFake(), Version: "test"})
	done := make(chan error, 1)
	go func() { done <- s.ServeTCP(l, TCPOptions{Hosts: []string{"lab.example"}}) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(background(t)), <-done); err != nil {
			t.Error(err)
		}
	})
	ask := func(method, host, path, body string, headers ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(background(t), method, "http://"+host+path, strings.NewReader(body))
		testkit.Must(t, err)
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}
		defer transport.CloseIdleConnections()
		reply, err := transport.RoundTrip(r)
		testkit.Must(t, err)
		reply.Body.Close()
		return reply
	}
	token := []string{"Authorization", "Bearer " + exampleToken.Secret}
	for name, c := range map[string]struct {
		host    string
		headers []string
		status  int
	}{
		"no token":            {"lab.example", nil, 401},
		"a token":             {"lab.example", token, 200},
		"another name":        {"evil.example", token, 403},
		"an address":          {"127.0.0.1", token, 403},
		"the name of no host": {"localhost", token, 403},
	} {
		if reply := ask("GET", c.host, "/v1/status", "", c.headers...); reply.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", name, reply.StatusCode, c.status)
		}
	}
	reply := ask("POST", "lab.example", "/v1/session", `{"secret":"`+exampleLogin.Secret+`"}`)
	if cookies := reply.Cookies(); len(cookies) != 1 || !cookies[0].Secure || cookies[0].Name != "berth" {
		t.Errorf("%d, cookies %v", reply.StatusCode, cookies)
	}
}
