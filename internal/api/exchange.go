package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"net/http"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/queue/fair"
	"berth/internal/text/problem"
)

// serverName comes before the daemon's version in the header Server of its
// replies.
const serverName = "berth/"

// exchange is one request and its reply.
type exchange struct {
	*Server
	op     *Operation // nil: none was found
	r      *http.Request
	w      *replyWriter
	door   *door // nil on the daemon's own socket
	caller Caller
	peer   Peer // whom the caller was identified by

	bodySum  *[sha256.Size]byte // of the body that was signed; nil: any will do
	bodyHash hash.Hash          // of what was read
	drained  bool               // the whole body was read
	ready    func()             // to be called before the reply is sent; may be nil

	streaming context.Context // of a stream, which lasts as long as the caller likes; nil: it is not one
}

// serveAs serves one request: the checks that every request passes, in order,
// and the one place where errors become replies.
func (s *Server) serveAs(w http.ResponseWriter, r *http.Request, d *door, identify func(*exchange, context.Context) (Caller, error)) {
	begun := time.Now()
	x := &exchange{Server: s, r: r, door: d, w: newReplyWriter(w, s.limits.StallTimeout)}
	s.active.Add(1)
	s.busyAt(r, begun)
	defer func() {
		now := time.Now()
		s.busyAt(r, now)
		s.active.Add(-1)
		s.options.Served(x.operation(), x.w.status, now.Sub(begun), x.streaming != nil)
	}()
	defer x.survive()
	// What net/http writes before and after the handler needs a deadline too,
	// and not one that passed while a stream was silent.
	defer func() { x.w.writeBy(time.Now().Add(s.limits.StallTimeout)) }()
	x.w.writeBy(time.Now().Add(s.limits.StallTimeout))
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	if r.ContentLength != 0 {
		// A caller that announces a body and does not send it must not hold a
		// connection, even if the body is not needed.
		x.w.readBy(time.Now().Add(s.limits.StallTimeout))
	}
	if err := x.serve(identify); err != nil {
		x.fail(err)
	}
}

// busyAt notes that a caller was there. A scrape does not count: it must not keep a
// daemon alive that ends when it is idle.
func (s *Server) busyAt(r *http.Request, at time.Time) {
	if r.URL.Path != metricsPath {
		s.lastBusy.Store(at.UnixNano())
	}
}

// operation is the name of the request's operation.
func (x *exchange) operation() string {
	switch {
	case x.op == nil:
		return "none" // refused before one was found
	case x.op.Hidden:
		return "openapi"
	}
	return x.op.ID
}

func (x *exchange) serve(identify func(*exchange, context.Context) (Caller, error)) error {
	ctx := x.r.Context()
	if connOf(ctx).full {
		x.w.Header().Set("Connection", "close")
		return errConnections
	}
	if x.stopping.Err() != nil {
		return errStopping
	}
	if len(x.r.TransferEncoding) > 0 {
		// Chunks may come with a length that says something else, which a proxy
		// may believe; net/http does not show it.
		return problem.Newf(problem.Invalid, "send Content-Length instead", "a body in chunks (Transfer-Encoding) is refused")
	}
	var err error
	if x.caller, err = identify(x, ctx); err != nil {
		return err
	}
	x.w.Header().Set("Server", serverName+x.options.Version)
	if err := crossOrigin.Check(x.r); err != nil {
		return problem.Newf(problem.Forbidden, "", "requests from other sites are refused")
	}
	handler, err := x.find()
	if err != nil {
		return err
	}
	handler.ServeHTTP(x.w, x.r.WithContext(context.WithValue(fair.As(ctx, x.caller.UID), exchangeKey{}, x)))
	return nil
}

// errConnections answers one connection too many of a user.
var errConnections = &problem.Problem{Kind: problem.TooMuch, What: "too many connections", Hint: "close some of them first"}

// crossOrigin refuses requests that a browser sends for another site.
var crossOrigin = http.NewCrossOriginProtection()

type exchangeKey struct{}

// find is the mux's answer without its redirects and pages for browsers.
func (x *exchange) find() (http.Handler, error) {
	switch x.r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete:
	default:
		return nil, &problem.Problem{Kind: problem.Invalid, What: "there is no method " + quoted(x.r.Method), Err: errNoMethod}
	}
	if len(x.r.URL.Path) > 1024 || path.Clean(x.r.URL.Path) != x.r.URL.Path {
		return nil, noPath(x.r.URL.Path)
	}
	handler, pattern := x.mux.Handler(x.r)
	if pattern != "" {
		return x.mux, nil // which sets the path's values
	}
	var probe headerProbe
	handler.ServeHTTP(&probe, x.r)
	if probe.status == http.StatusMethodNotAllowed {
		allowed := strings.ReplaceAll(probe.Header().Get("Allow"), ", HEAD", "")
		x.w.Header().Set("Allow", allowed)
		return nil, &problem.Problem{Kind: problem.Invalid, What: "method " + x.r.Method + " is not allowed there", Hint: "allowed methods: " + allowed, Err: errNoMethod}
	}
	return nil, noPath(x.r.URL.Path)
}

func noPath(p string) error {
	return problem.Newf(problem.NotFound, "GET /openapi.json lists the paths", "there is nothing at %s", quoted(p))
}

// headerProbe records what a handler would reply.
type headerProbe struct {
	header http.Header
	status int
}

func (p *headerProbe) Header() http.Header {
	if p.header == nil {
		p.header = http.Header{}
	}
	return p.header
}
func (p *headerProbe) WriteHeader(status int)         { p.status = status }
func (p *headerProbe) Write(data []byte) (int, error) { return len(data), nil }

// survive keeps a bug in one request from ending the daemon.
func (x *exchange) survive() {
	cause := recover()
	if cause == nil {
		return
	}
	if err, isError := cause.(error); isError && errors.Is(err, http.ErrAbortHandler) {
		panic(cause) // net/http's way to abort a reply
	}
	x.log.Error("bug while serving a request", "method", x.r.Method, "path", quoted(x.r.URL.Path), "panic", cause, "stack", string(debug.Stack()))
	if x.w.started {
		panic(http.ErrAbortHandler) // the partial reply must not look complete
	}
	x.send(http.StatusInternalServerError, problemType, encodeProblem(&problem.Problem{Kind: problem.Unable, What: "internal error; the request may not have been carried out", Hint: "see the daemon's log"}))
}

// problemOf is what a caller sees of an error. Only problems are shown; anything
// else is logged, without internals for the caller.
func (x *exchange) problemOf(err error) *problem.Problem {
	p, ok := errors.AsType[*problem.Problem](err)
	switch {
	case ok:
		return p
	case x.stopping.Err() != nil:
		return errStopping
	case x.isOver():
		return errOver
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		x.log.Warn("request failed", "method", x.r.Method, "path", quoted(x.r.URL.Path), "user", x.caller.Name, "error", err)
		return problem.Newf(problem.Unable, "free some disk space and try again", "the daemon could not save it: its disk is full")
	case x.r.Context().Err() == nil: // otherwise the caller is gone
		x.log.Error("request failed", "method", x.r.Method, "path", quoted(x.r.URL.Path), "user", x.caller.Name, "error", err)
	}
	return problem.Newf(problem.Unable, "see the daemon's log", "the daemon failed to carry out the request")
}

// fail answers with an error.
func (x *exchange) fail(err error) {
	p := x.problemOf(err)
	status := statusOf(p)
	if x.w.started {
		x.log.Warn("reply aborted", "path", quoted(x.r.URL.Path), "user", x.caller.Name, "error", err)
		panic(http.ErrAbortHandler)
	}
	if status == http.StatusUnauthorized {
		x.w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if x.r.ContentLength != 0 && !x.drained {
		x.w.Header().Set("Connection", "close") // do not read the rest of the body
	}
	x.send(status, problemType, encodeProblem(p))
}

func (x *exchange) send(status int, contentType string, body []byte) {
	if x.ready != nil {
		x.ready() // the reader may be slow, and that is nobody else's trouble
	}
	x.w.Header().Set("Content-Type", contentType)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	if _, err := x.w.Write(body); err != nil {
		x.log.Debug("reply not delivered", "path", quoted(x.r.URL.Path), "error", err)
	}
}

// sendJSON answers with a value.
func (x *exchange) sendJSON(value any) error {
	var body bytes.Buffer // unlike Marshal, an encoder makes no second copy of a long reply
	if err := json.NewEncoder(&body).Encode(value); err != nil {
		return err
	}
	x.send(http.StatusOK, "application/json", body.Bytes())
	return nil
}

// newBody is the request's body, limited in size and slowness.
func newBody(x *exchange, most int64) io.Reader {
	return &bodyReader{x: x, most: most, began: time.Now()}
}

// bodyReader reads a body that may be neither too long nor too slow.
type bodyReader struct {
	x     *exchange
	most  int64
	read  int64
	began time.Time
}

func (b *bodyReader) Read(p []byte) (int, error) {
	due := time.Duration(b.read) * time.Second / minBytesPerSecond
	b.x.w.readBy(b.began.Add(b.x.limits.StallTimeout + due))
	n, err := b.x.r.Body.Read(p)
	b.read += int64(n)
	if b.x.bodySum != nil {
		b.x.bodyHash.Write(p[:n])
	}
	switch {
	case b.read > b.most:
		return 0, &problem.Problem{Kind: problem.TooMuch, What: "the request is too large", Hint: "send it in parts", Err: errTooLarge}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, problem.Newf(problem.Invalid, "", "the request came too slowly")
	case errors.Is(err, io.EOF):
		b.x.drained = true
		b.x.w.readBy(time.Time{}) // from now on only the end of the connection matters
		if sum := b.x.bodySum; sum != nil && !bytes.Equal(b.x.bodyHash.Sum(nil), sum[:]) {
			return 0, &problem.Problem{Kind: problem.Forbidden, What: "this is not the body that was signed", Err: errNoToken}
		}
	}
	return n, err
}
