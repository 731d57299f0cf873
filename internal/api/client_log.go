package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"berth/internal/text/problem"
)

// How long to wait before reconnecting to a lost daemon.
const (
	firstRetry   = 50 * time.Millisecond
	slowestRetry = 2 * time.Second
)

// errLost is a stream that ended without its end mark.
var errLost = errors.New("the daemon went away")

// LogReader reads a log. When it loses its connection it reconnects for as long
// as its context lives and continues where it was: no byte is lost or repeated.
// A dropped part of the log shows as a line. It is for one goroutine; the end of
// its context ends a waiting Read.
type LogReader struct {
	// OnRetry is called with the reason for a lost connection. It may be nil,
	// and is set before the first Read.
	OnRetry func(error)

	c     *Client
	ctx   context.Context
	query LogQuery // for the next connection
	reply *http.Response
	wait  time.Duration
	err   error // final

	mark   []byte // the line for a gap, still to be returned; not part of the log
	inLine bool   // the last byte read did not end a line
	atGap  bool   // the connection ended properly, at a gap
}

// Log opens a log. The first connection must succeed.
func (c *Client) Log(ctx context.Context, q LogQuery) (*LogReader, error) {
	q.Pieces = true
	l := &LogReader{OnRetry: c.OnRetry, c: c, ctx: ctx, query: q, wait: firstRetry}
	if err := l.open(true); err != nil {
		return nil, err
	}
	return l, nil
}

// Attempt is the attempt whose log this is.
func (l *LogReader) Attempt() int { return l.query.Attempt }

// Offset is the position of the next byte in the log.
func (l *LogReader) Offset() int64 { return l.query.Offset }

func (l *LogReader) Close() error {
	l.hangUp()
	if l.err == nil {
		l.err = errors.New("read of a closed log")
	}
	return nil
}

func (l *LogReader) hangUp() {
	if l.reply != nil {
		l.reply.Body.Close()
		l.reply = nil
	}
}

func (l *LogReader) open(first bool) error {
	reply, err := l.c.send(l.ctx, &readLog.Operation, &l.query, nil)
	if err != nil {
		return err
	}
	attempt, badAttempt := strconv.Atoi(reply.Header.Get(headerLogAttempt))
	offset, badOffset := strconv.ParseInt(reply.Header.Get(headerLogOffset), 10, 64)
	if badAttempt != nil || badOffset != nil || offset < 0 {
		reply.Body.Close()
		return problem.Newf(problem.Unable, "", "the daemon at %s does not say which part of the log it sends", l.c.place)
	}
	if !first && (offset != l.query.Offset || l.query.Attempt != 0 && attempt != l.query.Attempt) {
		reply.Body.Close()
		return problem.Newf(problem.Refused, "", "the log has changed: it cannot be continued at byte %d", l.query.Offset)
	}
	l.reply = reply
	l.query.Attempt, l.query.Offset, l.query.Lines = attempt, offset, 0
	return nil
}

func (l *LogReader) Read(p []byte) (int, error) {
	for l.err == nil {
		if len(l.mark) > 0 {
			n := copy(p, l.mark)
			l.mark = l.mark[n:]
			return n, nil
		}
		if l.reply == nil {
			if err := l.reopen(); err != nil {
				l.err = err
				break
			}
			continue
		}
		n, err := l.reply.Body.Read(p)
		if n > 0 {
			l.query.Offset += int64(n)
			l.inLine = p[n-1] != '\n'
			l.wait = firstRetry
			return n, nil // the next read returns the error again
		}
		if err != nil {
			l.ended(err)
		}
	}
	return 0, l.err
}

// ended decides whether the end of a connection is the end of the log.
func (l *LogReader) ended(err error) {
	mark := l.reply.Trailer.Get(headerLogEnd)
	next, badNext := strconv.ParseInt(l.reply.Trailer.Get(headerLogNext), 10, 64)
	l.hangUp()
	switch {
	case l.ctx.Err() != nil:
		l.err = l.ctx.Err()
	case errors.Is(err, io.EOF) && mark == logEndComplete:
		l.err = io.EOF
	case errors.Is(err, io.EOF) && mark == logEndGap && badNext == nil && next > l.query.Offset:
		gap := LogGap{From: l.query.Offset, Next: next}
		l.mark, l.inLine, l.atGap = []byte(gap.mark(l.inLine)), false, true
		l.query.Offset = next
	case errors.Is(err, io.EOF) && mark == logEndFailed:
		l.err = problem.Newf(problem.Unable, "see the daemon's log", "the log cannot be read beyond byte %d", l.query.Offset)
	case errors.Is(err, io.EOF):
		l.lost(errLost)
	default:
		l.lost(fmt.Errorf("%w: %w", errLost, err))
	}
}

func (l *LogReader) lost(err error) {
	if l.OnRetry != nil {
		l.OnRetry(err)
	}
}

// reopen tries to reconnect until the daemon answers or refuses.
func (l *LogReader) reopen() error {
	for {
		if !l.atGap { // after a gap there is nothing to wait for
			if err := Pause(l.ctx, l.wait); err != nil {
				return err
			}
			l.wait = min(2*l.wait, slowestRetry)
		}
		l.atGap = false
		err := l.open(false)
		if err == nil || !worthRetry(l.ctx, err) {
			return err
		}
		l.lost(err)
	}
}

// worthRetry reports whether an error may go away by itself.
func worthRetry(ctx context.Context, err error) bool {
	switch problem.KindOf(err) {
	case "":
		return ctx.Err() == nil
	case problem.Unable, problem.TooMuch:
		return true
	}
	return false
}
