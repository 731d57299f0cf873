package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"berth/internal/text/problem"
)

// Limits of an event stream on the client's side.
const (
	maxEventBytes = 16 << 20
	silence       = 50 * time.Second // three missed heartbeats
)

// Events calls fn with each event until ctx is done, fn fails or the daemon
// refuses. If the daemon goes away it reconnects and continues after the last
// numbered event. The first connection must succeed.
func (c *Client) Events(ctx context.Context, q EventQuery, fn func(Event) error) error {
	s := &eventStream{c: c, query: q, fn: fn, wait: firstRetry}
	for {
		err := s.follow(ctx)
		var final *finalError
		switch {
		case errors.As(err, &final):
			return final.err
		case ctx.Err() != nil:
			return ctx.Err()
		case !s.connected || !worthRetry(ctx, err):
			return err
		}
		if c.OnRetry != nil {
			c.OnRetry(err)
		}
		if err := Pause(ctx, s.wait); err != nil {
			return err
		}
		s.wait = min(2*s.wait, slowestRetry)
	}
}

// finalError is an error that ends a stream: the reader's own, or the daemon's
// last word.
type finalError struct{ err error }

func (f *finalError) Error() string { return f.err.Error() }

type eventStream struct {
	c         *Client
	query     EventQuery
	fn        func(Event) error
	last      int64
	connected bool
	wait      time.Duration
}

// follow reads one connection to its end.
func (s *eventStream) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	header := http.Header{"Accept": {"text/event-stream"}}
	if s.last > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(s.last, 10))
	}
	reply, err := s.c.send(ctx, &followEvents.Operation, &s.query, header)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if s.c.OnStream != nil {
		s.c.OnStream(s.connected)
	}
	s.connected = true
	watch := time.AfterFunc(silence, cancel)
	defer watch.Stop()
	lines := bufio.NewScanner(reply.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxEventBytes)
	var name string
	var data []byte
	var seq int64
	for lines.Scan() {
		watch.Reset(silence)
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			data = append(data, value...)
		case "id":
			seq, _ = strconv.ParseInt(string(value), 10, 64)
		}
		if len(lines.Bytes()) > 0 || len(data) == 0 {
			continue
		}
		if err := s.deliver(name, data, watch); err != nil {
			return err
		}
		s.last = max(s.last, seq)
		name, data, seq = "", data[:0], 0
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return errLost
}

// deliver passes on one event. The time its reader takes does not count as the
// daemon's silence.
func (s *eventStream) deliver(name string, data []byte, watch *time.Timer) error {
	switch name {
	case "":
	case eventEnd:
		return errLost
	case eventError:
		return &finalError{decodeProblem(http.StatusServiceUnavailable, problemType, data)}
	default:
		return nil // from a newer daemon
	}
	var event Event
	if err := decodeEvent(data, &event); err != nil {
		return &finalError{fmt.Errorf("unexpected event from the daemon at %s: %w", s.c.place, err)}
	}
	s.wait = firstRetry
	watch.Stop()
	defer watch.Reset(silence)
	if err := s.fn(event); err != nil {
		return &finalError{err}
	}
	return nil
}

// Attach connects to the terminal of a job, with the supervisor's protocol.
// Closing it, or the end of ctx, detaches.
func (c *Client) Attach(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {attachProtocol}}
	reply, err := c.send(ctx, &attachTo.Operation, &JobID{ID: id}, header)
	if err != nil {
		return nil, err
	}
	both, isBoth := reply.Body.(io.ReadWriteCloser)
	if reply.StatusCode != http.StatusSwitchingProtocols || !isBoth {
		reply.Body.Close()
		return nil, problem.Newf(problem.Unable, "", "the daemon at %s cannot attach", c.place)
	}
	return &attached{ReadWriteCloser: both, unhook: context.AfterFunc(ctx, func() { both.Close() })}, nil
}

type attached struct {
	io.ReadWriteCloser
	unhook func() bool
	once   sync.Once
}

func (a *attached) Close() error {
	var err error
	a.once.Do(func() {
		a.unhook()
		err = a.ReadWriteCloser.Close()
	})
	return err
}

// backupTakes is how long a daemon may need to copy its store.
const backupTakes = 10 * time.Minute

// Backup writes a copy of the daemon's store to w. An error means that the copy
// is incomplete.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	reply, err := c.send(taking(ctx, backupTakes), &copyStore.Operation, &None{}, nil)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if _, err := io.Copy(w, reply.Body); err != nil {
		return c.explain(ctx, err)
	}
	return nil
}
