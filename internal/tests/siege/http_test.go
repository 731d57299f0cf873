package siege

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// What the protocol itself offers.
var httpAttacks = []attack{
	{"smuggle a request behind two lengths", func(t *testing.T, c *camp) {
		hidden := "GET /v1/tokens HTTP/1.1\r\nHost: berth\r\n\r\n"
		for name, head := range map[string]string{
			"two lengths":           fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n", len(hidden)),
			"chunks and a length":   fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", len(hidden)),
			"a length and chunks":   "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
			"chunks in other words": "Transfer-Encoding: xchunked\r\n",
			"chunks, twice":         "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
			"a space before":        "Content-Length : 5\r\n",
			"a negative length":     "Content-Length: -1\r\n",
			"a huge length":         "Content-Length: 18446744073709551616\r\n",
			"a folded header":       "Content-Length: 1\r\n 5\r\n",
		} {
			conn, err := c.bob.dial()
			testkit.Must(t, err)
			fmt.Fprintf(conn, "POST /v1/jobs/act HTTP/1.1\r\nHost: berth\r\n%s\r\n%s", head, hidden)
			said, _ := replies(conn, 2*time.Second)
			conn.Close()
			for _, r := range said {
				if r.status == http.StatusOK {
					t.Errorf("%s: %+v", name, r)
				}
			}
		}
	}},
	{"climb out of a path", func(t *testing.T, c *camp) {
		for _, path := range []string{
			"/v1/jobs/../../etc/shadow", "/v1/jobs/..%2f..%2fetc%2fshadow/log", "/v1/jobs/%2e%2e/tokens", "/v1/jobs/1%00/log", "//v1/status",
			"/v1/./status", "/v1/jobs/1/../../tokens", `/v1/jobs/..\..\etc\shadow/log`, "/v1/jobs/%252e%252e/log", "/v1/jobs//log", "/v1/jobs/" + strings.Repeat("a", 5000),
			"/v1/jobs/@~99999999999999999999/log", "/v1/jobs/-1/log", "/v1/jobs/1_-1/log", "/v1/jobs/~root/log", "/v1/gpus/-1/pause", "/v1/gpus/99999999999999999999/pause",
		} {
			conn, err := c.bob.dial()
			testkit.Must(t, err)
			method := "GET"
			if strings.Contains(path, "gpus") {
				method = "POST"
			}
			r := exchange(t, conn, method+" "+path+" HTTP/1.1\r\nHost: berth\r\nConnection: close\r\n\r\n")
			conn.Close()
			if r.status < 400 || strings.Contains(r.body, "root:") {
				t.Errorf("%s: status %d: %s", path, r.status, r.body)
			}
		}
	}},
	{"say another method than the request's", func(t *testing.T, c *camp) {
		for _, method := range []string{"GET", "POST"} {
			token := c.token(t, c.bob, 0)
			r, err := c.bob.askWith(method, "/v1/tokens/"+token.ID+"?_method=DELETE", nil, func(r *http.Request) {
				r.Header.Set("X-HTTP-Method-Override", "DELETE")
				r.Header.Set("X-Method-Override", "DELETE")
			})
			testkit.Must(t, err)
			if r.status < 400 {
				t.Errorf("%s: status %d: %s", method, r.status, r.body)
			}
		}
		for _, method := range []string{"PUT", "TRACE", "CONNECT", "OPTIONS", "HEAD", "get", "PROPFIND", "BERTH"} {
			if r := c.bob.mustAsk(t, method, "/v1/jobs", nil); r.status < 400 {
				t.Errorf("%s: status %d: %s", method, r.status, r.body)
			}
		}
	}},
	{"change something with a GET", func(t *testing.T, c *camp) {
		for _, path := range []string{"/v1/gpus/0/pause", "/v1/gpus/0/resume", "/v1/backup", "/v1/jobs/act", "/v1/jobs/wait", "/v1/jobs/1/attach"} {
			if r := c.root.mustAsk(t, "GET", path, nil); r.status < 400 {
				t.Errorf("%s: status %d: %.200s", path, r.status, r.body)
			}
		}
	}},
	{"have a browser send it from another site", func(t *testing.T, c *camp) {
		token := c.token(t, c.bob, 0)
		for _, method := range []string{"POST", "DELETE", "PATCH"} {
			for key, value := range map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"} {
				for _, path := range []string{"/v1/jobs", "/v1/jobs/1", "/v1/tokens/" + token.ID} {
					r := c.remoteWith(t, http.DefaultClient, method, path, strings.NewReader("{}"), func(r *http.Request) {
						r.Header.Set("Authorization", "Bearer "+token.Secret)
						r.Header.Set(key, value)
					})
					if r.status != http.StatusForbidden {
						t.Errorf("%s %s with %s: status %d: %s", method, path, key, r.status, r.body)
					}
				}
			}
		}
		if r := c.bob.mustAsk(t, "GET", "/v1/tokens", nil); !strings.Contains(r.body, token.ID) {
			t.Error("the token is gone")
		}
	}},
	{"rebind a name to this address", func(t *testing.T, c *camp) {
		token := c.token(t, c.bob, 0)
		for _, host := range []string{"evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "[::1].evil.example", "127.0.0.1@evil.example", "8.8.8.8", ""} {
			conn, err := net.Dial("tcp", c.tcp)
			testkit.Must(t, err)
			r := exchange(t, conn, "GET /v1/status HTTP/1.1\r\nHost: "+host+"\r\nAuthorization: Bearer "+token.Secret+"\r\nConnection: close\r\n\r\n")
			conn.Close()
			if r.status != http.StatusForbidden && r.status != http.StatusBadRequest {
				t.Errorf("Host %q: status %d: %s", host, r.status, r.body)
			}
		}
	}},
	{"come by TCP without a token", func(t *testing.T, c *camp) {
		for _, request := range []string{
			"GET /v1/status", "GET /v1/jobs", "POST /v1/jobs", "GET /v1/jobs/1", "GET /v1/jobs/1/log", "POST /v1/jobs/1/attach", "GET /v1/events", "GET /v1/gpus",
			"POST /v1/gpus/0/pause", "GET /v1/stats", "GET /v1/replay", "POST /v1/backup", "POST /v1/tokens", "GET /v1/tokens", "DELETE /v1/tokens/x", "DELETE /v1/tokens", "GET /openapi.json", "PATCH /v1/jobs/1", "POST /v1/logins", "DELETE /v1/session", "GET /index.html", "GET /assets", "POST /",
		} {
			method, path, _ := strings.Cut(request, " ")
			if r := c.remote(t, method, path, "", nil); r.status != http.StatusUnauthorized {
				t.Errorf("%s: status %d: %s", request, r.status, r.body)
			}
		}
	}},
	{"log in to the page as somebody else", func(t *testing.T, c *camp) {
		var login api.Login
		c.ann.mustAsk(t, "POST", "/v1/logins", nil).into(t, &login)
		ann := c.browse(t, login.Secret)
		c.ann.mustAsk(t, "POST", "/v1/logins", nil).into(t, &login)
		bob := c.browse(t, c.token(t, c.bob, 0).Secret)
		c.mustBe(t, "ann's browser", c.page(t, "GET", "/v1/status", ann, "same-origin"), c.ann)
		for name, try := range map[string]struct {
			method, path, site string
			page               *testkit.Page
		}{
			"another site":              {"POST", "/v1/jobs/act", "cross-site", ann},
			"another port of this host": {"POST", "/v1/jobs/act", "same-site", ann},
			"a login made by a session": {"POST", "/v1/logins", "same-origin", bob},
			"a token made by a session": {"POST", "/v1/tokens", "same-origin", bob},
			"the end of ann's session":  {"DELETE", "/v1/tokens/" + ann.ID, "same-origin", bob},
			"the end of ann's tokens":   {"DELETE", "/v1/tokens?user=" + c.ann.name, "same-origin", bob},
		} {
			if r := c.page(t, try.method, try.path, try.page, try.site); r.status < 400 {
				t.Errorf("%s: status %d: %s", name, r.status, r.body)
			}
		}
		ids := []string{ann.ID, bob.ID}
		bob.ID = ids[0]
		if r := c.page(t, "GET", "/v1/status", bob, "same-origin"); r.status != http.StatusUnauthorized {
			t.Errorf("ann's session with bob's key: status %d: %s", r.status, r.body)
		}
		bob.ID = ids[1]
		c.browse(t, login.Secret)
		caught := ann.Header("GET", "/v1/status", "")
		for name, secret := range map[string]string{"a login, again": login.Secret, "a session": ann.ID, "its key": ann.Key(), "a signature": caught, "a guess": "login_guess"} {
			if _, r := c.logIn(t, secret); r.status != http.StatusForbidden {
				t.Errorf("%s: status %d: %s", name, r.status, r.body)
			}
		}
		c.mustBe(t, "ann's browser", c.page(t, "GET", "/v1/status", ann, "same-origin"), c.ann)
		c.mustBe(t, "bob's browser", c.page(t, "GET", "/v1/status", bob, "same-origin"), c.bob)
		c.ann.mustAsk(t, "DELETE", "/v1/tokens/"+ann.ID, nil)
		if r := c.page(t, "GET", "/v1/status", ann, "same-origin"); r.status != http.StatusUnauthorized {
			t.Errorf("a revoked session: status %d: %s", r.status, r.body)
		}
	}},
	{"use a request of the page that was caught on its way", func(t *testing.T, c *camp) {
		var login api.Login
		c.ann.mustAsk(t, "POST", "/v1/logins", nil).into(t, &login)
		ann, victim := c.browse(t, login.Secret), c.annSleeps(t)
		before := c.signed(t, "GET", "/v1/status", "unsigned", "same-origin")
		ann.Hear(before.header)
		first := ann.Header("GET", "/v1/status", "")
		c.mustBe(t, "the page itself", c.signed(t, "GET", "/v1/status", first, "same-origin"), c.ann)
		unused := ann.Header("GET", "/v1/status", "") // the daemon has not seen it
		for name, try := range map[string]struct{ method, path, signature string }{
			"again":                       {"GET", "/v1/status", first},
			"for another path":            {"GET", "/v1/jobs/" + victim + "/log", unused},
			"for another query":           {"GET", "/v1/status?x=1", unused},
			"for another method":          {"POST", "/v1/status", unused},
			"for something that it wants": {"DELETE", "/v1/session", unused},
			"with another nonce":          {"GET", "/v1/status", strings.Replace(unused, ".", ".1", 2)},
			"as a token":                  {"GET", "/v1/status", ""},
		} {
			r := c.remoteWith(t, http.DefaultClient, try.method, try.path, nil, func(r *http.Request) {
				if r.Header.Set("Berth-Session", try.signature); try.signature == "" {
					r.Header.Set("Authorization", "Bearer "+unused)
				}
			})
			if r.status != http.StatusUnauthorized {
				t.Errorf("%s: status %d: %s", name, r.status, r.body)
			}
		}
		foreign := *ann
		foreign.Challenge = strings.Repeat("A", len(ann.Challenge)) // another server's
		if r := c.page(t, "GET", "/v1/status", &foreign, "same-origin"); r.status != http.StatusUnauthorized {
			t.Errorf("signed for another server: status %d: %s", r.status, r.body)
		}
		c.stillRuns(t, victim)
	}},
	{"log in to the page as an administrator at a plain port", func(t *testing.T, c *camp) {
		for _, who := range []*person{c.root, c.dan} {
			if r := who.mustAsk(t, "POST", "/v1/logins", spec{"plain_http": true}); r.status != http.StatusForbidden {
				t.Errorf("%s by a login: status %d: %s", who.name, r.status, r.body)
			}
			if _, r := c.logIn(t, c.token(t, who, 0).Secret); r.status != http.StatusForbidden {
				t.Errorf("%s by a token: status %d: %s", who.name, r.status, r.body)
			}
		}
	}},
	{"log in to the page as a user who is gone", func(t *testing.T, c *camp) {
		gone := c.enlist("hal")
		var login api.Login
		gone.mustAsk(t, "POST", "/v1/logins", nil).into(t, &login)
		testkit.Accounts(t, "userdel", gone.name)
		if _, r := c.logIn(t, login.Secret); r.status != http.StatusForbidden {
			t.Errorf("status %d: %s", r.status, r.body)
		}
	}},
	{"do more than read metrics at their address", func(t *testing.T, c *camp) {
		secret, victim := c.token(t, c.bob, 0).Secret, c.annCanary(t)
		for _, request := range []string{
			"GET /v1/status", "GET /v1/jobs", "POST /v1/jobs/act", "GET /v1/jobs/" + victim, "GET /v1/events", "POST /v1/backup", "POST /v1/tokens", "GET /openapi.json", "GET /",
			"GET /metrics/../v1/jobs", "GET //metrics", "GET /metrics%2f..%2fv1/jobs", "POST /metrics", "GET /metrics?id=" + victim,
		} {
			for _, more := range []string{"", "Authorization: Bearer " + secret + "\r\n", "Connection: Upgrade\r\nUpgrade: berth-attach\r\n"} {
				conn, err := net.Dial("tcp", c.scrapes)
				testkit.Must(t, err)
				fmt.Fprintf(conn, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", request, more)
				said, _ := replies(conn, time.Minute)
				conn.Close()
				if len(said) == 0 || said[0].status != http.StatusOK || len(said) > 1 && said[1].status < 400 {
					t.Errorf("%s behind a scrape: %+v", request, said)
				}
				for _, r := range said {
					if strings.Contains(r.body, "canary") {
						t.Errorf("%s tells ann's command or name", request)
					}
				}
			}
		}
		c.stillRuns(t, victim)
	}},
	{"send headers without end", func(t *testing.T, c *camp) {
		for name, header := range map[string]string{
			"long": "X-A: " + strings.Repeat("a", 8<<20) + "\r\n", "many": strings.Repeat("X-A: b\r\n", 200_000), "a long line": strings.Repeat("a", 8<<20),
		} {
			conn, err := c.bob.dial()
			testkit.Must(t, err)
			testkit.Must(t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
			n, _ := fmt.Fprintf(conn, "GET /v1/status HTTP/1.1\r\nHost: berth\r\n%s\r\n", header)
			said, closed := replies(conn, time.Minute)
			conn.Close()
			if !closed || len(said) > 0 && said[0].status < 400 {
				t.Errorf("%s: %d bytes taken, closed %v: %+v", name, n, closed, said)
			}
		}
	}},
	{"hide a request behind an upgrade", func(t *testing.T, c *camp) {
		conn, err := c.bob.dial()
		testkit.Must(t, err)
		defer conn.Close()
		fmt.Fprint(conn, "POST /v1/jobs/999999999/attach HTTP/1.1\r\nHost: berth\r\nConnection: Upgrade\r\nUpgrade: berth-attach\r\nContent-Length: 5\r\n\r\nhello"+
			"POST /v1/backup HTTP/1.1\r\nHost: berth\r\n\r\n")
		said, _ := replies(conn, 3*time.Second)
		for _, r := range said {
			if r.status < 400 {
				t.Errorf("%+v", r)
			}
		}
	}},
}
