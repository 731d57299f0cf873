package api

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"time"

	"berth/internal/text/problem"
)

// The last event of a stream that the server ends; its data is a Problem.
// Every other event has no name, so that a browser delivers it as a message.
const (
	eventEnd   = "end"   // the daemon is stopping: reconnect
	eventError = "error" // reconnecting would not help
)

// openingDelay is how long a handler has to refuse before the stream counts as
// begun.
const openingDelay = 20 * time.Millisecond

func sendEvents(x *exchange) error {
	var q EventQuery
	if err := x.read(&q); err != nil {
		return err
	}
	if last := x.r.Header.Get("Last-Event-ID"); last != "" {
		// A browser that reconnects repeats its URL, so the header is newer.
		seq, err := strconv.ParseInt(last, 10, 64)
		if err != nil || seq < 0 {
			return problem.Newf(problem.Invalid, "", "Last-Event-ID: expected the number of an event, found %s", quoted(last))
		}
		q.Since = seq
	}
	ctx, done, err := x.stream()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	x.w.Header().Set("Content-Type", "text/event-stream")
	out := &eventWriter{w: x.w, dirty: make(chan struct{}, 1), cancel: cancel}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		out.flushUntil(ctx, x.limits.Heartbeat)
	}()
	// The writer must not be used after the request has ended.
	settle := func() { cancel(); <-flushed }
	defer settle()
	err = x.options.Streams.Events(ctx, x.caller, q, out.send)
	settle()
	switch {
	case x.stopping.Err() != nil:
		out.end(eventEnd, errStopping)
	case x.isOver() && x.w.started:
		out.end(eventError, errOver)
	case out.err != nil || x.r.Context().Err() != nil: // the caller is gone
	case !x.w.started:
		return err
	case err != nil:
		out.end(eventError, x.problemOf(err))
	}
	return nil
}

// eventWriter writes server-sent events. They are buffered until the next flush,
// so that a long history goes out in large blocks and a single event at once.
type eventWriter struct {
	mu     sync.Mutex
	w      *replyWriter
	buffer bytes.Buffer
	err    error
	dirty  chan struct{}
	cancel context.CancelFunc
}

// send is called by the handler.
func (e *eventWriter) send(event Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	if event.Seq > 0 {
		e.buffer.WriteString("id: ")
		e.buffer.WriteString(strconv.FormatInt(event.Seq, 10))
		e.buffer.WriteByte('\n')
	}
	e.buffer.WriteString("data: ")
	e.buffer.Write(appendEvent(e.buffer.AvailableBuffer(), &event))
	e.buffer.WriteString("\n\n")
	if e.buffer.Len() > replyPiece {
		return e.flush() // slow the sender down to the reader's pace
	}
	select {
	case e.dirty <- struct{}{}:
	default:
	}
	return nil
}

// flush sends the buffer. The caller holds the lock.
func (e *eventWriter) flush() error {
	if e.err == nil {
		_, e.err = e.w.Write(e.buffer.Bytes())
	}
	e.buffer.Reset()
	if e.err == nil {
		e.err = e.w.flush()
	}
	if e.err != nil {
		e.cancel()
	}
	return e.err
}

// flushApart is the least time between two flushes: a single event goes out at once,
// and those of many short jobs together.
const flushApart = 10 * time.Millisecond

// flushUntil sends events as they come, and a heartbeat when there are none.
func (e *eventWriter) flushUntil(ctx context.Context, heartbeat time.Duration) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	opening := time.NewTimer(openingDelay)
	defer opening.Stop()
	var flushed time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.dirty:
			if Pause(ctx, flushApart-time.Since(flushed)) != nil {
				return
			}
		case <-opening.C:
			e.comment("berth")
		case <-ticker.C:
			e.comment("still here")
		}
		e.mu.Lock()
		err := e.flush()
		e.mu.Unlock()
		if err != nil {
			return
		}
		flushed = time.Now()
	}
}

func (e *eventWriter) comment(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.buffer.WriteString(": " + text + "\n\n")
}

// end tells the client that the server ends the stream, and why.
func (e *eventWriter) end(name string, why *problem.Problem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.buffer.WriteString("event: " + name + "\ndata: ")
	e.buffer.Write(encodeProblem(why)) // one line, with its end
	e.buffer.WriteByte('\n')
	_ = e.flush() // a client that misses it sees the closed connection
}
