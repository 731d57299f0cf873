package siege

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// exchange writes raw bytes to a connection and reads one reply.
func exchange(t *testing.T, conn net.Conn, bytes string) reply {
	t.Helper()
	testkit.Must(t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
	if _, err := io.WriteString(conn, bytes); err != nil {
		t.Fatalf("write: %v", err)
	}
	r, err := readReply(conn)
	testkit.Must(t, err)
	return r
}

func readReply(conn io.Reader) (reply, error) {
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	return reply{answer.StatusCode, answer.Header, string(body)}, err
}

// replies reads everything a connection has to say until the daemon closes
// it, or for as long as it may take.
func replies(conn net.Conn, most time.Duration) (said []reply, closed bool) {
	_ = conn.SetReadDeadline(time.Now().Add(most))
	reader := bufio.NewReader(conn)
	for {
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			var late net.Error
			return said, !errors.As(err, &late) || !late.Timeout()
		}
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<20)) // what came is what was said
		answer.Body.Close()
		said = append(said, reply{answer.StatusCode, answer.Header, string(body)})
	}
}

// remote makes a request by TCP.
func (c *camp) remote(t *testing.T, method, path, secret string, body io.Reader) reply {
	t.Helper()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	return c.remoteBy(t, client, method, path, secret, body)
}

func (c *camp) remoteBy(t *testing.T, client *http.Client, method, path, secret string, body io.Reader) reply {
	t.Helper()
	return c.remoteWith(t, client, method, path, body, func(r *http.Request) {
		if secret != "" {
			r.Header.Set("Authorization", "Bearer "+secret)
		}
	})
}

func (c *camp) remoteWith(t *testing.T, client *http.Client, method, path string, body io.Reader, change func(*http.Request)) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.tcp+path, body)
	testkit.Must(t, err)
	change(r)
	answer, err := client.Do(r)
	testkit.Must(t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	testkit.Must(t, err)
	return reply{answer.StatusCode, answer.Header, string(data)}
}

// logIn sends a login as the page does.
func (c *camp) logIn(t *testing.T, secret string) (*testkit.Page, reply) {
	t.Helper()
	page := testkit.NewPage(t)
	body := fmt.Sprintf(`{"secret":%q,"key":%q}`, secret, page.Key())
	return page, c.remoteWith(t, http.DefaultClient, "POST", "/v1/session", strings.NewReader(body), func(*http.Request) {})
}

// browse logs a browser in.
func (c *camp) browse(t *testing.T, secret string) *testkit.Page {
	t.Helper()
	page, r := c.logIn(t, secret)
	var session api.Session
	r.into(t, &session)
	page.ID = session.ID
	page.Hear(r.header)
	return page
}

// page sends what a page at some site would.
func (c *camp) page(t *testing.T, method, path string, page *testkit.Page, site string) reply {
	t.Helper()
	return c.signed(t, method, path, page.Header(method, path, ""), site)
}

// signed sends a request with a signature that somebody has.
func (c *camp) signed(t *testing.T, method, path, signature, site string) reply {
	t.Helper()
	return c.remoteWith(t, http.DefaultClient, method, path, nil, func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", site)
		r.Header.Set("Berth-Session", signature)
	})
}
