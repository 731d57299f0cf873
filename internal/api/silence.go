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
	"net/http/httptrace"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/text/problem"
)

// How long a client waits.
const (
	// answerPatience is how long a daemon may take before its silence is
	// mentioned, and before a stopped one counts as not answering.
	answerPatience = 3 * time.Second
	// remotePatience bounds the wait for a remote daemon's answer: whatever
	// accepted the connection may not be a daemon.
	remotePatience = 2 * time.Minute
)

// Silence is what a daemon does that does not answer.
type Silence int

// The silences.
const (
	Slow    Silence = iota + 1 // it has not answered yet
	Stopped                    // its process is stopped, in the middle of a stream
	Back                       // that is over
)

type takesKey struct{}

// taking marks a request whose answer takes this long by its nature.
func taking(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, takesKey{}, d)
}

// vigil watches one request, from its start to the end of the reply.
type vigil struct {
	c        *Client
	takes    time.Duration
	changes  bool          // the request changes something
	sent     atomic.Bool   // there is a connection to send it on
	answered atomic.Bool   // the reply has begun
	over     chan struct{} // closed when the reply has been read
	gone     chan struct{} // closed when run has ended
	once     sync.Once
	cancel   context.CancelCauseFunc
}

// attend starts a vigil. The request uses the context it returns.
func (c *Client) attend(ctx context.Context, method string) (context.Context, *vigil) {
	takes, _ := ctx.Value(takesKey{}).(time.Duration)
	v := &vigil{c: c, takes: takes, changes: method != http.MethodGet, over: make(chan struct{}), gone: make(chan struct{})}
	ctx, v.cancel = context.WithCancelCause(ctx)
	go v.run(ctx)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { v.sent.Store(true) }}), v
}

// end is called when the reply has been read, or none will come.
func (v *vigil) end() {
	v.once.Do(func() {
		close(v.over)
		<-v.gone // nothing is told after the end
		v.cancel(nil)
	})
}

// run gives the request up if no answer will come, and mentions a daemon that
// is only slow. A reply that has begun is waited for: it may be a stream.
func (v *vigil) run(ctx context.Context) {
	defer close(v.gone)
	ticker := time.NewTicker(v.c.patience)
	defer ticker.Stop()
	told, begun := Silence(0), time.Now()
	for {
		select {
		case <-v.over:
			v.tell(&told, Back)
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		pid, answered, waited := int(v.c.peer.Load()), v.answered.Load(), time.Since(begun)
		switch {
		case pid > 0 && processStopped(pid) && !answered:
			v.cancel(v.c.stopped(pid, v.changes && v.sent.Load()))
			return
		case pid > 0 && processStopped(pid):
			v.tell(&told, Stopped)
		case answered:
			v.tell(&told, Back)
		case v.c.secret != "" && waited >= v.takes+v.c.remotePatience:
			v.cancel(problem.Newf(problem.Unable, "check the address: another program may listen there",
				"%s accepted the connection and has not answered for %s", v.c.place, waited.Round(time.Second)))
			return
		case waited >= v.takes+v.c.patience:
			v.tell(&told, Slow)
		}
	}
}

// stopped is the error for a daemon whose process is stopped. It may already
// have a request that changes something.
func (c *Client) stopped(pid int, sent bool) error {
	what := fmt.Sprintf("the daemon at %s (process %d) is stopped and does not answer", c.place, pid)
	if sent {
		what += "; it may carry out the request when it continues"
	}
	return problem.Newf(problem.Unable, fmt.Sprintf("continue it with kill -CONT %d, as its user or root", pid), "%s", what)
}

// tell reports a change.
func (v *vigil) tell(told *Silence, s Silence) {
	if s == *told || s == Back && *told == 0 {
		return
	}
	if v.c.OnSilence != nil {
		v.c.OnSilence(s, int(v.c.peer.Load()))
	}
	if *told = s; s == Back {
		*told = 0
	}
}

// watch ends the vigil with the reply.
func (v *vigil) watch(reply *http.Response) *http.Response {
	v.answered.Store(true)
	if both, isBoth := reply.Body.(io.ReadWriteCloser); isBoth {
		reply.Body = watchedPipe{both, v}
	} else {
		reply.Body = watchedBody{reply.Body, v}
	}
	return reply
}

type watchedBody struct {
	io.ReadCloser
	v *vigil
}

func (b watchedBody) Close() error {
	b.v.end()
	return b.ReadCloser.Close()
}

type watchedPipe struct {
	io.ReadWriteCloser
	v *vigil
}

func (p watchedPipe) Close() error {
	p.v.end()
	return p.ReadWriteCloser.Close()
}

// processStopped reports whether a signal has stopped the process. A debugger
// stops one, too, but not for long.
func processStopped(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T"))
}

// notice records which process listens at a socket. While that is stopped,
// nothing is sent: it would be carried out later, after the user was told that
// the daemon does not answer.
func (c *Client) notice(ctx context.Context, conn net.Conn) error {
	peer, err := peerOf(conn)
	if err != nil {
		return nil //nolint:nilerr // without it, a silence is only described less well
	}
	c.peer.Store(int64(peer.PID))
	for until := time.Now().Add(c.patience); processStopped(peer.PID); {
		if time.Now().After(until) {
			return c.stopped(peer.PID, false)
		}
		if err := Pause(ctx, c.patience/50); err != nil {
			return err
		}
	}
	return nil
}

// distrusted explains a peer that cannot prove to be the daemon, or does not
// try. Trying again would not change that.
func (c *Client) distrusted(err error) error {
	var header tls.RecordHeaderError
	certificate, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case untrusted:
		return problem.Newf(problem.Refused, "check the address; for a self-signed certificate, set ca in hosts.toml to its PEM file",
			"the certificate of %s is not trusted: %w", c.place, certificate.Err)
	case errors.As(err, &header) || errors.Is(err, http.ErrSchemeMismatch):
		return problem.Newf(problem.Refused, "check the address: another program may listen there", "%s does not speak TLS", c.place)
	}
	return nil
}
