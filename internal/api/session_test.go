package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
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

// logIn opens a session as the page does.
func logIn(t *testing.T, at string) *testkit.Page {
	t.Helper()
	p := testkit.NewPage(t)
	body, err := json.Marshal(SessionRequest{Secret: exampleLogin.Secret, Key: p.Key()})
	testkit.Must(t, err)
	reply, text := browserAsk(t, "POST", at+"/v1/session", string(body), "Origin", at, "Sec-Fetch-Site", "same-origin")
	if reply.StatusCode != 200 || len(reply.Cookies()) != 0 || !p.Hear(reply.Header) {
		t.Fatalf("log in: %d %s %v", reply.StatusCode, text, reply.Header)
	}
	var session Session
	testkit.Must(t, json.Unmarshal([]byte(text), &session))
	p.ID = session.ID
	return p
}

func TestASessionSignsEachRequest(t *testing.T) {
	f := newFake()
	at := "http://" + serveTCP(t, f, TCPOptions{ListenerID: "here"})
	p := logIn(t, at)
	other := testkit.NewPage(t)
	other.ID, other.Challenge = p.ID, p.Challenge
	const act = `{"action":"cancel","select":{"ids":["17"]}}`
	used := p.Header("GET", "/v1/status", "")
	parts := strings.Split(p.Header("GET", "/v1/status", ""), ".")
	changed := func(i int, to string) string {
		all := slices.Clone(parts)
		all[i] = to
		return strings.Join(all, ".")
	}
	for _, test := range []struct {
		name, method, path, body, header string
		more                             []string
		status                           int
	}{
		{"the page itself", "GET", "/v1/status", "", used, nil, 200},
		{"the same again", "GET", "/v1/status", "", used, nil, 401},
		{"another path", "GET", "/v1/gpus", "", p.Header("GET", "/v1/status", ""), nil, 401},
		{"another query", "GET", "/v1/jobs?all=true", "", p.Header("GET", "/v1/jobs", ""), nil, 401},
		{"another method", "DELETE", "/v1/session", "", p.Header("GET", "/v1/session", ""), nil, 401},
		{"its body", "POST", "/v1/jobs/act", act, p.Header("POST", "/v1/jobs/act", act), nil, 200},
		{"another body", "POST", "/v1/jobs/act", strings.Replace(act, "17", "18", 1), p.Header("POST", "/v1/jobs/act", act), nil, 401},
		{"a longer body", "POST", "/v1/jobs/act", act + " ", p.Header("POST", "/v1/jobs/act", act), nil, 401},
		{"a body where none was signed", "POST", "/v1/jobs/act", act, p.Header("POST", "/v1/jobs/act", ""), nil, 401},
		{"jobs that were not signed", "POST", "/v1/jobs", `{"jobs":[{"command":"id"}]}`, p.Header("POST", "/v1/jobs", `{"jobs":[{"command":"true"}]}`), nil, 401},
		{"another key", "GET", "/v1/status", "", other.Header("GET", "/v1/status", ""), nil, 401},
		{"another session", "GET", "/v1/status", "", changed(0, "s2"), nil, 401},
		{"another challenge", "GET", "/v1/status", "", changed(1, "x"), nil, 401},
		{"no challenge", "GET", "/v1/status", "", changed(1, ""), nil, 401},
		{"another nonce", "GET", "/v1/status", "", changed(2, "7"), nil, 401},
		{"a nonce that is no number", "GET", "/v1/status", "", changed(2, "-1"), nil, 401},
		{"no signature", "GET", "/v1/status", "", changed(4, ""), nil, 401},
		{"a signature of zeros", "GET", "/v1/status", "", changed(4, strings.Repeat("A", 86)), nil, 401},
		{"part of it", "GET", "/v1/status", "", "s1", nil, 401},
		{"an endless one", "GET", "/v1/status", "", changed(4, strings.Repeat("A", 1000)), nil, 401},
		{"another scheme wins over the session", "GET", "/v1/status", "", p.Header("GET", "/v1/status", ""), []string{"Authorization", "Basic eA=="}, 401},
		{"another site", "POST", "/v1/gpus/0/pause", "", p.Header("POST", "/v1/gpus/0/pause", ""), []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another port of the host", "POST", "/v1/gpus/0/pause", "", p.Header("POST", "/v1/gpus/0/pause", ""), []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"another origin", "DELETE", "/v1/session", "", p.Header("DELETE", "/v1/session", ""), []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"a button of the page", "POST", "/v1/gpus/0/pause", "", p.Header("POST", "/v1/gpus/0/pause", ""), []string{"Origin", at, "Sec-Fetch-Site", "same-origin"}, 200},
		{"logging out", "DELETE", "/v1/session", "", p.Header("DELETE", "/v1/session", ""), []string{"Origin", at}, 204},
		{"after logging out", "GET", "/v1/status", "", p.Header("GET", "/v1/status", ""), nil, 401},
	} {
		reply, text := browserAsk(t, test.method, at+test.path, test.body, append(test.more, headerSession, test.header)...)
		if reply.StatusCode != test.status {
			t.Errorf("%s: %d %s, want %d", test.name, reply.StatusCode, text, test.status)
		}
		if reply.Header.Get(headerChallenge) != p.Challenge && test.more == nil {
			t.Errorf("%s: the page is not told what to sign", test.name)
		}
	}
}

// TestASignatureIsWorthNothingElsewhere: neither to another daemon nor to the
// same one after a restart, though the listener is the same; the page signs
// again and goes on.
func TestASignatureIsWorthNothingElsewhere(t *testing.T) {
	f := newFake()
	first := "http://" + serveTCP(t, f, TCPOptions{ListenerID: "here"})
	p := logIn(t, first)
	caught := p.Header("GET", "/v1/status", "")
	restarted := "http://" + serveTCP(t, f, TCPOptions{ListenerID: "here"})
	reply, text := browserAsk(t, "GET", restarted+"/v1/status", "", headerSession, caught)
	if reply.StatusCode != 401 || !p.Hear(reply.Header) {
		t.Errorf("what was signed for the daemon before: %d %s", reply.StatusCode, text)
	}
	if reply, text := browserAsk(t, "GET", restarted+"/v1/status", "", headerSession, p.Header("GET", "/v1/status", "")); reply.StatusCode != 200 {
		t.Errorf("signed again: %d %s", reply.StatusCode, text)
	}
	elsewhere := "http://" + serveTCP(t, f, TCPOptions{ListenerID: "there"})
	reply, _ = browserAsk(t, "GET", elsewhere+"/v1/status", "", headerSession, "x")
	p.Hear(reply.Header)
	if reply, text := browserAsk(t, "GET", elsewhere+"/v1/status", "", headerSession, p.Header("GET", "/v1/status", "")); reply.StatusCode != 401 {
		t.Errorf("a session of another listener: %d %s", reply.StatusCode, text)
	}
}

// TestChallengesPass: each is good for two periods, and what a session may send
// meanwhile is bounded, for itself alone.
func TestChallengesPass(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var c challenges
	first := c.current(now)
	signed := func(session, challenge string, nonce int) *signedRequest {
		return &signedRequest{proof: Proof{Session: session}, challenge: challenge, nonce: uint64(nonce)}
	}
	for nonce := range noncesPerChallenge {
		testkit.Must(t, c.spend(signed("a", first, nonce), now))
	}
	if err := c.spend(signed("a", first, noncesPerChallenge), now); problem.KindOf(err) != problem.TooMuch {
		t.Errorf("one too many: %v", err)
	}
	testkit.Must(t, c.spend(signed("b", first, 1), now))
	now = now.Add(challengePeriod)
	second := c.current(now)
	if second == first || !c.good(first, now) {
		t.Error("the challenge did not change, or the one before is worth nothing")
	}
	if err := c.spend(signed("b", first, 1), now); err == nil {
		t.Error("a signature was good twice")
	}
	testkit.Must(t, c.spend(signed("a", second, 1), now))
	now = now.Add(challengePeriod)
	if c.good(first, now) || !c.good(second, now) || c.good("", now) {
		t.Error("a challenge lasts two periods")
	}
	if err := c.spend(signed("b", first, 2), now); err == nil {
		t.Error("an old challenge is good")
	}
	if now = now.Add(10 * challengePeriod); c.good(second, now) {
		t.Error("a challenge outlived a pause")
	}
}

func TestAVisitorReachesThePageAndTheLoginOnly(t *testing.T) {
	at := "http://" + serveTCP(t, newFake(), TCPOptions{})
	for _, e := range endpoints() {
		op := e.op()
		path := strings.NewReplacer("{id}", "17", "{index}", "0", "{name}", "g", "{user}", "ann", "{$}", "", "{file}", "x.js").Replace(op.Path)
		reply, text := browserAsk(t, op.Method, at+path, "")
		if (reply.StatusCode == 401) == (op.Need == Anyone) {
			t.Errorf("%s %s: %d %s", op.Method, path, reply.StatusCode, text)
		}
		if op.Need == Anyone && op != &OpenSession.Operation && op.Method != get {
			t.Errorf("%s %s is open", op.Method, op.Path)
		}
	}
	for name, headers := range map[string][]string{
		"from another site":   {"Sec-Fetch-Site", "cross-site"},
		"from another origin": {"Origin", "https://evil.example"},
	} {
		reply, _ := browserAsk(t, "POST", at+"/v1/session", `{"secret":"`+exampleLogin.Secret+`","key":"`+exampleSessionRequest.Key+`"}`, headers...)
		if reply.StatusCode != 403 {
			t.Errorf("a login %s: %d", name, reply.StatusCode)
		}
	}
	key := `","key":"` + exampleSessionRequest.Key + `"}`
	for _, body := range []string{
		`{"secret":"` + key, `{}`, `{"secret":"` + strings.Repeat("x", 600) + key, `{"secret":"` + exampleLogin.Secret + `"}`,
		`{"secret":"` + exampleLogin.Secret + `","key":"BAAA"}`, `{"secret":"` + exampleLogin.Secret + `","key":"` + strings.Repeat("A", 87) + `"}`,
	} {
		if reply, _ := browserAsk(t, "POST", at+"/v1/session", body); reply.StatusCode != 400 {
			t.Errorf("%.40s: %d", body, reply.StatusCode)
		}
	}
	if reply, _ := browserAsk(t, "POST", at+"/v1/session", `{"secret":"login_guess`+key); reply.StatusCode != 403 {
		t.Errorf("a guess: %d", reply.StatusCode)
	}
}

// TestAProxyBringsNobodysIdentity: whoever connects to the socket for a proxy
// needs a token, root too, and a name that the config has.
func TestAProxyBringsNobodysIdentity(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "http.sock")
	l, err := Listen(socket, 0o666)
	testkit.Must(t, err)
	s := newFake().server(ServerOptions{Version: "test"})
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
}
