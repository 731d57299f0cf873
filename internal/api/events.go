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
	defer cancel()
	x.w.Header().Set("Content-Type", "text/event-stream")
	out := openEvents(x.w, x.limits.Heartbeat, cancel)
	defer out.close() // the writer must not be used after the request has ended
	err = x.options.Streams.Events(ctx, x.caller, q, out.send)
	out.close()
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
	mu        sync.Mutex
	w         *replyWriter
	heartbeat time.Duration
	cancel    context.CancelFunc
	buffer    bytes.Buffer
	err       error
	closed    bool

	timer   *time.Timer // calls tick: for what is in the buffer, or a heartbeat
	due     bool        // it is for the buffer
	flushed time.Time
}

func openEvents(w *replyWriter, heartbeat time.Duration, cancel context.CancelFunc) *eventWriter {
	e := &eventWriter{w: w, heartbeat: heartbeat, cancel: cancel}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timer = time.AfterFunc(openingDelay, e.tick)
	return e
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
	if !e.due {
		e.due = true
		e.timer.Reset(flushApart - time.Since(e.flushed))
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
		e.err = e.w.control.Flush() // within the deadline of Write
	}
	e.flushed, e.due = time.Now(), false
	if e.err != nil {
		e.cancel()
	}
	return e.err
}

// flushApart is the least time between two flushes: a single event goes out at once,
// and those of many short jobs together.
const flushApart = 10 * time.Millisecond

// tick sends what is in the buffer, or a comment if nothing was sent for long.
func (e *eventWriter) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if e.buffer.Len() == 0 {
		word := "berth"
		if e.w.started {
			if left := e.heartbeat - time.Since(e.flushed); left > 0 { // the sender was faster
				e.timer.Reset(left)
				return
			}
			word = "still here"
		}
		e.buffer.WriteString(": " + word + "\n\n")
	}
	if e.flush() == nil {
		e.timer.Reset(e.heartbeat)
	}
}

// close ends the use of the writer by the timer.
func (e *eventWriter) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.timer.Stop()
}

// end tells the client that the server ends the stream, and why.
func (e *eventWriter) end(name string, why *problem.Problem) {
	e.buffer.WriteString("event: " + name + "\ndata: ")
	e.buffer.Write(encodeProblem(why)) // one line, with its end
	e.buffer.WriteByte('\n')
	_ = e.flush() // a client that misses it sees the closed connection
}
