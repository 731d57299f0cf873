package api

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// serveTCP serves the same backend by TCP and returns its address.
func serveTCP(t *testing.T, f *fake, o TCPOptions) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	s := f.server(ServerOptions{Version: "test", Metrics: exampleMetrics})
	done := make(chan error, 1)
	go func() { done <- s.ServeTCP(l, o) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(background(t)), <-done); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestTCPNeedsATokenTheRightNameAndTheSameSite(t *testing.T) {
	f := newFake()
	address := serveTCP(t, f, TCPOptions{Hosts: []string{"Lab.example.", "10.1.2.3:7447"}})
	_, port, _ := net.SplitHostPort(address)
	secret := "Bearer " + exampleToken.Secret
	for _, test := range []struct {
		name, method, path, host, token string
		headers                         []string
		status                          int
	}{
		{"a token opens it", "GET", "/v1/status", "", secret, nil, 200},
		{"the scheme is in any case", "GET", "/v1/status", "", "bearer " + exampleToken.Secret, nil, 200},
		{"no token", "GET", "/v1/status", "", "", nil, 401},
		{"a wrong token", "GET", "/v1/status", "", "Bearer nonsense", nil, 401},
		{"a token of another kind", "GET", "/v1/status", "", "Basic " + exampleToken.Secret, nil, 401},
		{"an endless token", "GET", "/v1/status", "", "Bearer " + strings.Repeat("x", 600), nil, 401},
		{"no token even for the description", "GET", "/openapi.json", "", "", nil, 401},
		{"no token even for what is not there", "GET", "/nothing", "", "", nil, 401},
		{"a known name", "GET", "/v1/status", "lab.EXAMPLE:" + port, secret, nil, 200},
		{"a known address", "GET", "/v1/status", "10.1.2.3", secret, nil, 200},
		{"localhost", "GET", "/v1/status", "localhost:" + port, secret, nil, 200},
		{"the other loopback", "GET", "/v1/status", "[::1]:" + port, secret, nil, 200},
		{"a name someone else gave this address", "GET", "/v1/status", "evil.example:" + port, secret, nil, 403},
		{"a name that begins like a known one", "GET", "/v1/status", "localhost.evil.example", secret, nil, 403},
		{"an address that is not ours", "GET", "/v1/status", "10.9.9.9", secret, nil, 403},
		{"POST from another site", "POST", "/v1/gpus/0/pause", "", secret, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST from a neighbour site", "POST", "/v1/gpus/0/pause", "", secret, []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"POST with another origin", "POST", "/v1/gpus/0/pause", "", secret, []string{"Origin", "https://evil.example"}, 403},
		{"DELETE from another site", "DELETE", "/v1/tokens/k7", "", secret, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"DELETE with another origin", "DELETE", "/v1/tokens/k7", "", secret, []string{"Origin", "null"}, 403},
		{"PATCH from another site", "PATCH", "/v1/jobs/1", "", secret, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST from the page itself", "POST", "/v1/gpus/0/pause", "", secret, []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://" + address}, 200},
		{"POST by a program", "POST", "/v1/gpus/0/pause", "", secret, nil, 200},
		{"a question about other origins", "OPTIONS", "/v1/jobs", "", secret, []string{"Origin", "https://evil.example"}, 405},
		{"what the backend refuses is no matter of tokens", "POST", "/v1/backup", "", secret, nil, 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(background(t), test.method, "http://"+address+test.path, nil)
			testkit.Must(t, err)
			r.Host = test.host
			if test.token != "" {
				r.Header.Set("Authorization", test.token)
			}
			for i := 0; i < len(test.headers); i += 2 {
				r.Header.Set(test.headers[i], test.headers[i+1])
			}
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			reply, err := transport.RoundTrip(r)
			testkit.Must(t, err)
			defer reply.Body.Close()
			text, _ := io.ReadAll(reply.Body)
			if reply.StatusCode != test.status {
				t.Errorf("%d %s, want %d", reply.StatusCode, text, test.status)
			}
			if (reply.StatusCode == 401) != (reply.Header.Get("WWW-Authenticate") == "Bearer") {
				t.Errorf("headers: %v", reply.Header)
			}
			for name := range reply.Header {
				if strings.HasPrefix(name, "Access-Control") {
					t.Errorf("%s is set", name)
				}
			}
		})
	}
	if f.tokens[exampleToken.Secret].ID != "k7" {
		t.Error("a token was revoked from another site")
	}
}

func TestARevokedTokenIsWorthNothingAtOnce(t *testing.T) {
	f := newFake()
	c := dialTLS(t, f)
	defer c.Close()
	status, err := Call(background(t), c, GetStatus, None{})
	if err != nil || status.You.Token != "k7" || status.You.UID != 1000 {
		t.Errorf("%+v, %v", status, err)
	}
	_, err = f.RevokeToken(t.Context(), Caller{}, TokenID{ID: "k7"})
	testkit.Must(t, err)
	_, err = Call(background(t), c, GetStatus, None{})
	wantProblem(t, err, problem.Forbidden, "that token is not valid")
}

func TestPlainTCPIsForLoopbackOnly(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	testkit.Must(t, err)
	defer l.Close()
	s := newFake().server(ServerOptions{})
	if err := s.ServeTCP(l, TCPOptions{}); err == nil || !strings.Contains(err.Error(), "without TLS only a loopback address is allowed") {
		t.Errorf("got %v", err)
	}
	for _, test := range []struct{ url, secret string }{
		{"http://lab.example:7447", "x"}, {"http://localhost:7447", "x"}, {"http://127.0.0.1:7447", "x"}, {"http://10.0.0.1", "x"}, {"ftp://localhost", "x"}, {"localhost:7447", "x"},
		{"https://lab/path", "x"}, {"https://u:p@lab", "x"}, {"https://lab?x", "x"}, {"", "x"}, {"https://lab", ""},
	} {
		if _, err := DialRemote(test.url, test.secret, nil); err == nil {
			t.Errorf("%s with the token %q is accepted", test.url, test.secret)
		}
	}
}

// dialTLS serves a backend by TCP with TLS, and returns a client for it.
func dialTLS(t *testing.T, f *fake) *Client {
	t.Helper()
	certificate, pool := selfSigned(t)
	address := serveTCP(t, f, TCPOptions{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}, Hosts: []string{"lab.example"}})
	c, err := DialRemote("https://"+address, exampleToken.Secret, &tls.Config{RootCAs: pool, ServerName: "lab.example"})
	testkit.Must(t, err)
	return c
}

// TestConnectionsWithoutATokenKeepNobodyOut: connections that say nothing, and ones that were
// refused, make room for a caller with a token.
func TestConnectionsWithoutATokenKeepNobodyOut(t *testing.T) {
	f := newFake()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	s := f.server(ServerOptions{Version: "test", Limits: Limits{Unproven: 3, UserConnections: 2}})
	done := make(chan error, 1)
	go func() { done <- s.ServeTCP(l, TCPOptions{}) }()
	defer func() { testkit.Must(t, errors.Join(s.Shutdown(background(t)), <-done)) }()
	ask := func(c net.Conn, token string) string {
		t.Helper()
		testkit.Must(t, c.SetDeadline(time.Now().Add(time.Minute)))
		_, err := io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token+"\r\n\r\n")
		testkit.Must(t, err)
		reply, err := http.ReadResponse(bufio.NewReader(c), nil)
		testkit.Must(t, err)
		defer reply.Body.Close()
		_, err = io.ReadAll(reply.Body)
		testkit.Must(t, err)
		return reply.Status
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		testkit.Must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	own := dial()
	if got := ask(own, exampleToken.Secret); got != "200 OK" {
		t.Fatal(got)
	}
	var idle []net.Conn
	for range 20 {
		idle = append(idle, dial())
	}
	late := dial()
	if got := ask(late, exampleToken.Secret); got != "200 OK" {
		t.Errorf("a caller that comes late: %s", got)
	}
	if got := ask(own, exampleToken.Secret); got != "200 OK" {
		t.Errorf("a caller that was there before: %s", got)
	}
	testkit.Must(t, idle[0].SetDeadline(time.Now().Add(time.Minute)))
	if _, err := idle[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection without a token: %v", err)
	}
	if got := ask(dial(), exampleToken.Secret); got != "429 Too Many Requests" {
		t.Errorf("a third connection of one user: %s", got)
	}
	late.Close()
	testkit.Eventually(t, "the connection is counted no more", func() bool { return s.userConns.of(1000) == 1 })
	if got := ask(dial(), exampleToken.Secret); got != "200 OK" {
		t.Errorf("a connection in place of one that was closed: %s", got)
	}
}

func TestTLS(t *testing.T) {
	f := newFake()
	f.log, f.logOver = []byte("over TLS\n"), true
	certificate, pool := selfSigned(t)
	address := serveTCP(t, f, TCPOptions{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}, Hosts: []string{"lab.example"}})
	c, err := DialRemote("https://"+address, exampleToken.Secret, &tls.Config{RootCAs: pool, ServerName: "lab.example"})
	testkit.Must(t, err)
	defer c.Close()
	if _, err := Call(background(t), c, GetStatus, None{}); err != nil {
		t.Error(err)
	}
	log, err := c.Log(background(t), LogQuery{ID: "1", Follow: true})
	testkit.Must(t, err)
	defer log.Close()
	if text, err := io.ReadAll(log); err != nil || string(text) != "over TLS\n" {
		t.Errorf("%q, %v", text, err)
	}
	both, err := c.Attach(background(t), "1")
	testkit.Must(t, err)
	defer both.Close()
	end := f.terminal(t)
	_, err = io.WriteString(both, "typed")
	testkit.Must(t, err)
	exact(t, end, "typed")
	if _, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: "lab.example", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("an old TLS is accepted")
	}
	stranger, err := DialRemote("https://"+address, exampleToken.Secret, nil)
	testkit.Must(t, err)
	defer stranger.Close()
	if _, err := Call(background(t), stranger, GetStatus, None{}); err == nil {
		t.Error("a certificate nobody vouches for is accepted")
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"lab.example"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testkit.Must(t, err)
	parsed, err := x509.ParseCertificate(der)
	testkit.Must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
