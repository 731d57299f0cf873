package siege

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

func init() {
	httpAttacks = append(httpAttacks, wordAttacks...)
	limitAttacks = append(limitAttacks, numberAttacks...)
}

// Requests that mean one thing to a reader and another to the next.
var wordAttacks = []attack{
	{"send a thousand requests without waiting for a reply", func(t *testing.T, c *camp) {
		conn, err := c.bob.dial()
		testkit.Must(t, err)
		defer conn.Close()
		const many = 1000
		go func() {
			for i := range many {
				path := []string{"/v1/status", "/v1/jobs/999999999", "/v1/tokens"}[i%3]
				_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: berth\r\n\r\n")
			}
			_, _ = io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: berth\r\nConnection: close\r\n\r\n")
		}()
		said, closed := replies(conn, time.Minute)
		if len(said) != many+1 || !closed {
			t.Fatalf("%d replies, closed: %v", len(said), closed)
		}
		for i, r := range said {
			if want := []int{http.StatusOK, http.StatusNotFound, http.StatusOK}[i%3]; i < many && r.status != want {
				t.Fatalf("reply %d: status %d: %s", i, r.status, r.body)
			}
		}
		c.mustBe(t, "the last", said[many], c.bob)
	}},
	{"announce a body, wait to be asked for it, and never send it", func(t *testing.T, c *camp) {
		for range 20 {
			conn, err := c.bob.dial()
			testkit.Must(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: berth\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", 64<<20)
		}
		c.ann.does(t, "true")
		// Others of bob's that take no turn are answered.
		c.mustBe(t, "meanwhile", c.bob.mustAsk(t, "GET", "/v1/status", nil), c.bob)
	}},
	{"name one host in the first line and another in the header", func(t *testing.T, c *camp) {
		token := c.token(t, c.bob, 0)
		for _, request := range []string{
			"GET http://evil.example/v1/status HTTP/1.1\r\nHost: " + c.tcp + "\r\n", "GET //evil.example/v1/status HTTP/1.1\r\nHost: evil.example\r\n",
			"GET /v1/status HTTP/1.1\r\nHost: " + c.tcp + "\r\nHost: evil.example\r\n", "GET /v1/status HTTP/1.1\r\n", "GET /v1/status HTTP/1.0\r\n",
			"GET /v1/status HTTP/1.1\r\nHost: evil.example#" + c.tcp + "\r\n", "GET /v1/status HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: " + c.tcp + "\r\n",
			"CONNECT " + c.tcp + " HTTP/1.1\r\nHost: " + c.tcp + "\r\n", "GET *  HTTP/1.1\r\nHost: " + c.tcp + "\r\n", "OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n",
		} {
			conn, err := net.Dial("tcp", c.tcp)
			testkit.Must(t, err)
			fmt.Fprint(conn, request+"Authorization: Bearer "+token.Secret+"\r\nConnection: close\r\n\r\n")
			said, _ := replies(conn, time.Minute)
			conn.Close()
			for _, r := range said {
				if r.status == http.StatusOK && r.body != "" {
					t.Errorf("%q: %s", request, r.body)
				}
			}
		}
	}},
	{"change to another version in the middle", func(t *testing.T, c *camp) {
		for _, request := range []string{
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "GET /v1/status HTTP/1.1\r\nHost: berth\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n",
			"GET /v1/events HTTP/1.1\r\nHost: berth\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n", "GET /v1/status HTTP/9.9\r\nHost: berth\r\n\r\n", "GET /v1/status\r\n\r\n",
			"POST /v1/jobs/1/attach HTTP/1.1\r\nHost: berth\r\nConnection: Upgrade\r\nUpgrade: berth-attach, h2c\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		} {
			conn, err := c.bob.dial()
			testkit.Must(t, err)
			_, _ = io.WriteString(conn, request)
			said, _ := replies(conn, 500*time.Millisecond)
			conn.Close()
			for _, r := range said {
				if r.status == http.StatusSwitchingProtocols {
					t.Errorf("%q: %+v", request, r)
				}
			}
		}
	}},
	{"send two tokens", func(t *testing.T, c *camp) {
		ann, bob := c.token(t, c.ann, 0), c.token(t, c.bob, 0)
		for _, heads := range [][2]string{{"Bearer " + bob.Secret, "Bearer " + ann.ID}, {"Bearer x", "Bearer " + bob.Secret}, {"Bearer " + bob.Secret, "Basic cm9vdDo="}} {
			conn, err := net.Dial("tcp", c.tcp)
			testkit.Must(t, err)
			r := exchange(t, conn, "GET /v1/status HTTP/1.1\r\nHost: "+c.tcp+"\r\nAuthorization: "+heads[0]+"\r\nAuthorization: "+heads[1]+"\r\nConnection: close\r\n\r\n")
			conn.Close()
			if r.status == http.StatusOK {
				c.mustBe(t, "two tokens", r, c.bob)
			}
		}
	}},
	{"send a bomb of compressed data", func(t *testing.T, c *camp) {
		var bomb bytes.Buffer
		z := gzip.NewWriter(&bomb)
		_, _ = z.Write([]byte(`{"jobs":[{"command":"`))
		_, _ = z.Write(make([]byte, 64<<20))
		testkit.Must(t, z.Close())
		for _, encoding := range []string{"gzip", "deflate", "br", "gzip, gzip"} {
			r, err := c.bob.askWith("POST", "/v1/jobs", bytes.NewReader(bomb.Bytes()), func(r *http.Request) { r.Header.Set("Content-Encoding", encoding) })
			testkit.Must(t, err)
			if r.status < 400 || r.status >= 500 {
				t.Errorf("%s: status %d: %s", encoding, r.status, r.body)
			}
		}
	}},
	{"write a key in letters that pass for others", func(t *testing.T, c *camp) {
		for _, body := range []string{
			`{"jobs":[{"command":"true","gpus":0}],"jobſ":[{"command":"id","gpus":0}]}`, `{"jobs":[{"command":"true","gpus":0,"gpuſ":8}]}`,
			`{"jobs":[{"command":"true","gpus":0,"\u212aey":"x"}]}`, `{"jobs":[{"command":"true","gpus":0,"comman\u0064":"id"}]}`, `{"jobs":[{"ｃommand":"id","gpus":0}]}`,
			`{"jobs":[{"command":"true","gpus":0,"g\u0000pus":8}]}`, "{\"jobs\":[{\"command\":\"true\",\"gpus\":0}]}\xef\xbb\xbf", "\xef\xbb\xbf{\"jobs\":[{\"command\":\"true\",\"gpus\":0}]}",
		} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", body); r.status != http.StatusBadRequest {
				t.Errorf("%s: status %d: %s", body, r.status, r.body)
			}
		}
	}},
	{"pass descriptors along with a request", func(t *testing.T, c *camp) {
		before := c.openFiles(t)
		conn, err := c.bob.dial()
		testkit.Must(t, err)
		defer conn.Close()
		file, err := os.Open("/dev/null")
		testkit.Must(t, err)
		defer file.Close()
		fds := make([]int, 200)
		for i := range fds {
			fds[i] = int(file.Fd())
		}
		rights := syscall.UnixRights(fds...)
		for _, piece := range strings.SplitAfter("GET /v1/status HTTP/1.1\r\nHost: berth\r\n\r\n", "\n") {
			if piece == "" {
				continue
			}
			_, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte(piece), rights, nil)
			testkit.Must(t, err)
		}
		r, err := readReply(conn)
		testkit.Must(t, err)
		c.mustBe(t, "with descriptors", r, c.bob)
		testkit.Eventually(t, "the daemon keeps none of them", func() bool { return c.openFiles(t)-before < 200 })
	}},
}

// hostileNumbers are at and beyond the limits of every type.
var hostileNumbers = []string{
	"-1", "-0", "0", "-0.0", "1e309", "-1e309", "1e-400", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551616",
	"4294967296", "2147483648", "1e18", "1e19", "0.1", "1e308", `"NaN"`, `"Inf"`, `"-Inf"`, `"0x10"`, `"1_000"`, `"１"`, `"٣"`, `" 1"`, `"1 "`, `"+1"`, `"1e1"`, `""`, `"1,5"`, "null", "true", "[1]", `{"a":1}`,
}

var numberAttacks = []attack{
	{"put numbers at their limits into every field of a job", func(t *testing.T, c *camp) {
		taken := []string{}
		for _, key := range []string{"gpus", "vram", "cpus", "mem", "priority", "timeout", "grace", "retries", "max_bypass", "ids", "array", "begin", "signal", "nice"} {
			for _, value := range hostileNumbers {
				body := fmt.Sprintf(`{"jobs":[{"command":"true","hold":true,%q:%s}],"dir":"/"}`, key, value)
				r := c.bob.mustAsk(t, "POST", "/v1/jobs", body)
				if r.status == http.StatusOK {
					var s api.SubmitReply
					r.into(t, &s)
					taken = append(taken, s.Jobs[0].ID)
				} else if r.status < 400 || r.status >= 500 {
					t.Errorf("%s: status %d: %s", body, r.status, r.body)
				}
				edit := fmt.Sprintf(`{"set":{%q:%s}}`, key, value)
				if len(taken) > 0 {
					if r := c.bob.mustAsk(t, "PATCH", "/v1/jobs/"+taken[0], edit); r.status >= 500 {
						t.Errorf("edit %s: status %d: %s", edit, r.status, r.body)
					}
				}
			}
		}
		t.Logf("%d of them are jobs", len(taken))
		// What was taken can be shown, explained, released and cancelled.
		if r := c.bob.mustAsk(t, "GET", "/v1/jobs?reasons=true&limit=10000&user="+c.bob.name, nil); r.status != http.StatusOK {
			t.Errorf("list: status %d: %s", r.status, r.body)
		}
		c.bob.act(t, "release", map[string]any{"ids": taken})
		c.bob.cancel(t, taken...)
		for _, id := range taken {
			if v := c.bob.ended(t, id); !v.State.Terminal() {
				t.Errorf("job %s is %s", id, v.State)
			}
		}
	}},
	{"put numbers at their limits into every other request", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("true").with("hold", "yes"))[0]
		defer c.bob.cancel(t, id)
		for _, value := range hostileNumbers {
			for path, body := range map[string]string{
				"/v1/jobs/wait": fmt.Sprintf(`{"select":{"ids":["999999999"]},"timeout_s":%s}`, value), "/v1/adopt": fmt.Sprintf(`{"pid":%s,"gpus":[0]}`, value),
				"/v1/adopt?": fmt.Sprintf(`{"pid":2147483647,"gpus":[%s]}`, value), "/v1/gpus/release": fmt.Sprintf(`{"for_s":%s}`, value),
				"/v1/jobs/act": fmt.Sprintf(`{"action":"requeue","select":{"ids":[%q]},"grace_s":%s}`, id, value), "/v1/strays/adopt": fmt.Sprintf(`{"tokens":[%s]}`, value),
				"/v1/jobs": fmt.Sprintf(`{"jobs":[{"command":"true","hold":true,"after":%s}],"dir":"/"}`, value),
			} {
				if r := c.bob.mustAsk(t, "POST", path, body); r.status >= 500 {
					t.Errorf("%s %s: status %d: %s", path, body, r.status, r.body)
				}
			}
			var token api.Token
			r := c.bob.mustAsk(t, "POST", "/v1/tokens", fmt.Sprintf(`{"name":"n","ttl_s":%s}`, value))
			if r.status == http.StatusOK {
				r.into(t, &token)
				if time.Until(token.Expires) > 366*24*time.Hour || time.Until(token.Expires) < 29*24*time.Hour {
					t.Errorf("ttl_s %s: it expires at %s", value, token.Expires)
				}
				c.bob.mustAsk(t, "DELETE", "/v1/tokens/"+token.ID, nil)
			} else if r.status >= 500 {
				t.Errorf("ttl_s %s: status %d: %s", value, r.status, r.body)
			}
		}
	}},
	{"ask for a token whose time wraps around", func(t *testing.T, c *camp) {
		// Times a thousand million it is just above zero again.
		for _, seconds := range []string{"18446744074", "36893488147", "36028797018963969"} {
			if r := c.bob.mustAsk(t, "POST", "/v1/tokens", `{"ttl_s":`+seconds+`}`); r.status != http.StatusBadRequest {
				t.Errorf("%s: status %d: %s", seconds, r.status, r.body)
			}
		}
	}},
	{"begin at times that no clock shows", func(t *testing.T, c *camp) {
		for _, at := range []string{
			"9999-12-31T23:59:59Z", "0000-01-01", "2026-02-30", "now+1e300h", "now+9223372036854775807", "now+-1", "now+0.0000000001", "24:00", "25:61", "23:59:60", "now+NaN", "2262-04-12T00:00:00Z",
			"292277026596-12-04", "-0001-01-01", "now+3651d", "2040-01-01T00:00:00+99:99", "midnight+1", strings.Repeat("9", 1000), "2030-03-31T02:30\u202e",
		} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true").with("begin", at)}}); r.status != http.StatusBadRequest {
				t.Errorf("%.40s: status %d: %s", at, r.status, r.body)
			}
		}
	}},
	{"wait for oneself, in a ring, and for what comes later", func(t *testing.T, c *camp) {
		for _, jobs := range [][]spec{
			{shell("true").with("name", "a").with("after", "a")},
			{shell("true").with("name", "a").with("after", "b"), shell("true").with("name", "b").with("after", "a")},
			{shell("true").with("after", "999999999")},
		} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": jobs}); r.status < 400 || r.status >= 500 {
				t.Errorf("%v: status %d: %s", jobs, r.status, r.body)
			}
		}
		first := c.bob.submit(t, shell("true").with("hold", "yes"))[0]
		second := c.bob.submit(t, shell("true").with("after", first))[0]
		defer c.bob.cancel(t, first, second)
		for id, after := range map[string]string{first: second, second: second} {
			if r := c.bob.mustAsk(t, "PATCH", "/v1/jobs/"+id, spec{"set": spec{"after": after}}); r.status < 400 || r.status >= 500 {
				t.Errorf("job %s after %s: status %d: %s", id, after, r.status, r.body)
			}
		}
		c.ann.does(t, "true")
	}},
	{"let a chain of hundreds of jobs fall with its first", func(t *testing.T, c *camp) {
		const links = 300
		chain := make([]spec, links)
		for i := range chain {
			chain[i] = shell("true").with("name", fmt.Sprintf("link%d", i))
			if i > 0 {
				chain[i].with("after", fmt.Sprintf("link%d", i-1))
			} else {
				chain[i].with("hold", "yes")
			}
		}
		ids := c.dan.submit(t, chain...)
		c.dan.cancel(t, ids[0])
		c.ann.does(t, "true")
		if v := c.dan.ended(t, ids[links-1]); v.Outcome == nil || *v.Outcome != job.Depends {
			t.Errorf("the last ended %s", text(v.Outcome))
		}
	}},
	{"run a large array through every change", func(t *testing.T, c *camp) {
		id := c.dan.submit(t, shell("true").with("array", "0-299%1").with("hold", "yes"))[0]
		for _, action := range []string{"release", "hold", "release", "hold"} {
			c.dan.act(t, action, map[string]any{"ids": []string{id}})
		}
		after := c.dan.submit(t, shell("true").with("after", id+":any"))[0]
		c.dan.mustAsk(t, "PATCH", "/v1/jobs/"+id+"_7", spec{"set": spec{"priority": "3"}})
		c.dan.act(t, "cancel", map[string]any{"ids": []string{id}})
		c.ann.does(t, "true")
		c.dan.mustEnd(t, after, job.OK)
	}},
}
