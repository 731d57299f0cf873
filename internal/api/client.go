package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"berth/internal/text/problem"
)

// maxReplyBytes bounds the size of one reply.
const maxReplyBytes = 512 << 20

// Client talks to one daemon. It is safe for use by many goroutines.
type Client struct {
	// OnRetry is called each time a stream lost its daemon and reconnects. It
	// may be nil, and is set before the first stream.
	OnRetry func(error)
	// OnStream is called each time a stream of events is connected; again: not for the
	// first time. Events that the daemon no longer stored by then are missing. It may be
	// nil, and is set before the first stream.
	OnStream func(again bool)
	// OnSilence is called when the daemon, whose process is pid (0: not known),
	// does not answer. It may be nil, and is set before the first request.
	OnSilence func(s Silence, pid int)
	// OnMissing is called once, if no daemon listens at the first request. If it
	// returns nil, there is one now, and the request is sent again. It may be
	// nil, and is set before the first request.
	OnMissing func(ctx context.Context, missing *Unreachable) error

	place  string // the socket or URL, for messages
	base   string
	secret string
	http   *http.Client

	peer    atomic.Int64           // the process that listens at the socket; 0: not known
	looked  atomic.Bool            // there was a daemon, or OnMissing was called
	version atomic.Pointer[string] // of the daemon, as its last reply says

	pageJobs int // jobs per page when all are fetched

	patience, remotePatience time.Duration
}

// Dial makes a client for the daemon at a Unix socket. It connects on first use.
func Dial(socket string) *Client {
	return dialChecked(socket, func(net.Conn) error { return nil })
}

// DialOwn is Dial for a socket in a directory where others can create one, such
// as /tmp: each connection checks with the kernel that root or the caller's own
// user listens.
func DialOwn(socket string) *Client {
	return dialChecked(socket, func(c net.Conn) error { return checkOwn(c, socket) })
}

func dialChecked(socket string, check func(net.Conn) error) *Client {
	transport := &http.Transport{}
	client := newClient(socket, "http://berth", "", transport)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := dialSocket(ctx, socket)
		if err != nil {
			return nil, err
		}
		if err = check(c); err == nil {
			err = client.notice(ctx, c)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		return c, nil
	}
	return client
}

// DialRemote makes a client for a daemon that listens on TCP with TLS. Over plain
// HTTP nobody proves to be the daemon, and the token would go to whoever listens:
// on a loopback address, any user of the machine can.
func DialRemote(baseURL, secret string, tlsConfig *tls.Config) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, problem.Newf(problem.Invalid, "give a URL like https://gpu1.example.org:7878", "expected the address of a daemon, found %s", quoted(baseURL))
	}
	if u.Scheme != "https" {
		return nil, problem.Newf(problem.Invalid, "use https://, or forward the daemon's socket: ssh -N -L /tmp/my-berth.sock:/run/berth/berth.sock HOST, then --host unix:/tmp/my-berth.sock",
			"%s is refused: without TLS the token would go to whoever listens there", quoted(baseURL))
	}
	if secret == "" {
		return nil, problem.Newf(problem.Invalid, "create one with `berth token create`", "%s needs a token", quoted(baseURL))
	}
	place := u.Scheme + "://" + u.Host
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return newClient(place, place, secret, &http.Transport{
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil && ctx.Err() == nil {
				return nil, &Unreachable{Socket: place, Err: innermost(err)}
			}
			return c, err
		},
	}), nil
}

func newClient(place, base, secret string, transport *http.Transport) *Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	transport.Protocols = protocols
	transport.DisableCompression = true
	transport.MaxIdleConnsPerHost = 4
	transport.IdleConnTimeout = time.Minute // shorter than the server's, so that the server never closes first
	return &Client{place: place, base: base, secret: secret, pageJobs: 5000, patience: answerPatience, remotePatience: remotePatience, http: &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a daemon sends no redirects
		},
	}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Place is the daemon's socket or URL.
func (c *Client) Place() string { return c.place }

// Peer is the process that listens at the socket, or 0 if that is not known. It
// is known after the first reply.
func (c *Client) Peer() int { return int(c.peer.Load()) }

// Version is the version of the daemon, or "" before the first reply, and for a
// daemon that does not say.
func (c *Client) Version() string {
	if v := c.version.Load(); v != nil {
		return *v
	}
	return ""
}

// start sends a request and returns a successful reply. The caller closes its
// body.
func (c *Client) start(ctx context.Context, method, path string, query url.Values, body []byte, header http.Header) (*http.Response, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	watched, v := c.attend(ctx, method)
	r, err := http.NewRequestWithContext(watched, method, target, reader)
	if err != nil {
		v.end()
		return nil, fmt.Errorf("send a request to %s: %w", c.place, err)
	}
	for key, values := range header {
		r.Header[key] = values
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.secret != "" {
		r.Header.Set("Authorization", "Bearer "+c.secret)
	}
	r.Header.Set("User-Agent", "berth")
	reply, err := c.http.Do(r)
	if err != nil {
		if gaveUp, is := errors.AsType[*problem.Problem](context.Cause(watched)); is {
			err = gaveUp
		}
		v.end()
		err = c.explain(ctx, err)
		if missing, is := errors.AsType[*Unreachable](err); is && c.OnMissing != nil && c.looked.CompareAndSwap(false, true) {
			if err = c.OnMissing(ctx, missing); err == nil {
				return c.start(ctx, method, path, query, body, header)
			}
		}
		return nil, err
	}
	c.looked.Store(true)
	if version, says := strings.CutPrefix(reply.Header.Get("Server"), serverName); says {
		c.version.Store(&version)
	}
	reply = v.watch(reply)
	if reply.StatusCode >= 300 || reply.StatusCode < 200 && reply.StatusCode != http.StatusSwitchingProtocols {
		defer reply.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(reply.Body, 4*maxProblemBytes)) // a partial text will do
		return nil, decodeProblem(reply.StatusCode, reply.Header.Get("Content-Type"), text)
	}
	return reply, nil
}

// explain turns an error into one of this package's.
func (c *Client) explain(ctx context.Context, err error) error {
	var nobody *Unreachable
	var distrusted *problem.Problem
	var wrapped *url.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &nobody):
		return nobody
	case errors.As(err, &distrusted):
		return distrusted
	case errors.As(err, &wrapped):
		err = wrapped.Err
	}
	if untrusted := c.distrusted(err); untrusted != nil {
		return untrusted
	}
	return fmt.Errorf("talk to the daemon at %s: %w", c.place, err)
}

func readReply(reply *http.Response) ([]byte, error) {
	if reply.ContentLength > maxReplyBytes {
		return nil, errTooLarge
	}
	if reply.ContentLength > 0 {
		data := make([]byte, reply.ContentLength)
		_, err := io.ReadFull(reply.Body, data)
		return data, err
	}
	data, err := io.ReadAll(io.LimitReader(reply.Body, maxReplyBytes))
	if err == nil && len(data) == maxReplyBytes {
		err = errTooLarge
	}
	return data, err
}

// unexpected is the error for a reply that is not what was asked for.
func (c *Client) unexpected(err error) error {
	return fmt.Errorf("unexpected reply from the daemon at %s: %w", c.place, err)
}
