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
	"berth/internal/testkit"
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

// browse logs a browser in: its cookie, the page's key, and the session's id.
func (c *camp) browse(t *testing.T, secret string) (cookie, key, id string) {
	t.Helper()
	r := c.remoteWith(t, http.DefaultClient, "POST", "/v1/session", strings.NewReader(fmt.Sprintf(`{"secret":%q}`, secret)), func(*http.Request) {})
	var session api.Session
	r.into(t, &session)
	cookie, _, _ = strings.Cut(r.header.Get("Set-Cookie"), ";")
	return cookie, session.Key, session.ID
}

// page sends what a page at some site would.
func (c *camp) page(t *testing.T, method, path, cookie, key, site string) reply {
	t.Helper()
	return c.remoteWith(t, http.DefaultClient, method, path, nil, func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", site)
		if cookie != "" {
			r.Header.Set("Cookie", cookie)
		}
		if key != "" {
			r.Header.Set("Berth-Session", key)
		}
	})
}
