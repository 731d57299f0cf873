package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func TestPartsOfALog(t *testing.T) {
	f := newFake()
	f.log, f.logOver = []byte("one\ntwo\nthree\n"), true
	s := serve(t, f, Limits{})
	for _, test := range []struct {
		name    string
		query   LogQuery
		want    string
		offset  int64
		attempt int
	}{
		{"all of it", LogQuery{}, "one\ntwo\nthree\n", 0, 2},
		{"followed to its end", LogQuery{Follow: true}, "one\ntwo\nthree\n", 0, 2},
		{"from a byte on", LogQuery{Offset: 4}, "two\nthree\n", 4, 2},
		{"the last bytes", LogQuery{Offset: -6}, "three\n", 8, 2},
		{"the last lines", LogQuery{Lines: 2}, "two\nthree\n", 4, 2},
		{"another attempt", LogQuery{Attempt: 1}, "one\ntwo\nthree\n", 0, 1},
		{"beyond the end", LogQuery{Offset: 99}, "", 99, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.query.ID = "17"
			log, err := s.client.Log(background(t), test.query)
			testkit.Must(t, err)
			defer log.Close()
			if log.Offset() != test.offset || log.Attempt() != test.attempt {
				t.Errorf("it begins at %d of attempt %d", log.Offset(), log.Attempt())
			}
			text, err := io.ReadAll(log)
			if err != nil || string(text) != test.want {
				t.Errorf("got %q, %v", text, err)
			}
		})
	}
	_, err := s.client.Log(background(t), LogQuery{ID: "99"})
	wantProblem(t, err, problem.NotFound, "there is no job 99")
	if n := s.Active(); n > 1 {
		t.Errorf("%d requests are in flight", n)
	}
}

func TestALogThatCannotBeReadDoesNotLookWhole(t *testing.T) {
	f := newFake()
	f.log, f.logFails = []byte("one\n"), true
	s := serve(t, f, Limits{})
	log, err := s.client.Log(background(t), LogQuery{ID: "17", Follow: true})
	testkit.Must(t, err)
	defer log.Close()
	text, err := io.ReadAll(log)
	if string(text) != "one\n" {
		t.Errorf("got %q", text)
	}
	wantProblem(t, err, problem.Unable, "the log cannot be read beyond byte 4")
}

// TestALogOutlivesItsDaemon reads a growing log while the server is shut down
// and killed again and again. No byte may be lost, and none come twice.
func TestALogOutlivesItsDaemon(t *testing.T) {
	f := newFake()
	socket := filepath.Join(t.TempDir(), "berth.sock")
	s := serveAt(t, socket, f, Limits{})
	ctx := background(t)
	client := Dial(socket)
	defer client.Close()
	log, err := client.Log(ctx, LogQuery{ID: "17", Follow: true})
	testkit.Must(t, err)
	defer log.Close()
	var mu sync.Mutex
	retries := 0
	log.OnRetry = func(error) { mu.Lock(); retries++; mu.Unlock() }
	var got bytes.Buffer
	var read sync.WaitGroup
	var readErr error
	read.Go(func() { _, readErr = io.Copy(writerFunc(func(p []byte) { mu.Lock(); got.Write(p); mu.Unlock() }), log) })

	random := rand.New(rand.NewPCG(1, 2))
	grow := func() {
		chunk := make([]byte, 1+random.IntN(100_000))
		for i := range chunk {
			chunk[i] = byte(random.Uint32())
		}
		f.change(func() { f.log = append(f.log, chunk...) })
	}
	seen := func() int { mu.Lock(); defer mu.Unlock(); return got.Len() }
	for round := range 8 {
		before := seen()
		for range 5 {
			grow()
		}
		testkit.Eventually(t, "some of the log arrives", func() bool { return seen() > before })
		if round%2 == 0 {
			s.kill()
		} else {
			s.end(t)
		}
		grow()
		s = serveAt(t, socket, f, Limits{})
	}
	grow()
	f.change(func() { f.logOver = true })
	read.Wait()
	if readErr != nil {
		t.Fatal(readErr)
	}
	if !bytes.Equal(got.Bytes(), f.log) {
		t.Errorf("%d bytes of %d, or others than were written", got.Len(), len(f.log))
	}
	// What the client still had from a dead server can hide that one came
	// and went.
	if retries < 4 {
		t.Errorf("only %d times was the daemon looked for", retries)
	}
}

type writerFunc func([]byte)

func (w writerFunc) Write(p []byte) (int, error) { w(p); return len(p), nil }

func TestALogThatChangedIsNotGoneOnWith(t *testing.T) {
	f := newFake()
	f.log = []byte("first\n")
	socket := filepath.Join(t.TempDir(), "berth.sock")
	s := serveAt(t, socket, f, Limits{})
	client := Dial(socket)
	defer client.Close()
	log, err := client.Log(background(t), LogQuery{ID: "17", Follow: true})
	testkit.Must(t, err)
	defer log.Close()
	_, err = io.ReadFull(log, make([]byte, 6))
	testkit.Must(t, err)
	s.kill()
	serveAt(t, socket, moved{f}, Limits{})
	_, err = io.ReadAll(log)
	wantProblem(t, err, problem.Refused, "the log has changed: it cannot be continued at byte 6")
}

// moved is a backend whose logs begin elsewhere than asked.
type moved struct{ *fake }

func (m moved) server(o ServerOptions) *Server {
	s := m.fake.server(o)
	s.options.Streams.Log = m.Log
	return s
}

func (m moved) Log(ctx context.Context, c Caller, q LogQuery) (LogStream, error) {
	stream, err := m.fake.Log(ctx, c, q)
	stream.Offset = 3
	return stream, err
}

func TestALogEndsWithItsContext(t *testing.T) {
	s := serve(t, newFake(), Limits{})
	ctx, cancel := context.WithCancel(background(t))
	log, err := s.client.Log(ctx, LogQuery{ID: "17", Follow: true})
	testkit.Must(t, err)
	defer log.Close()
	cancel()
	if _, err := io.ReadAll(log); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	testkit.Eventually(t, "the stream is given back", func() bool { return s.Active() == 0 })
}

func TestAFollowedLogSaysHowItEnded(t *testing.T) {
	rows := []struct {
		name string
		left bool // the backend stops a moment before the server does
	}{{"the server stops", false}, {"the backend stops first", true}}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := newFake()
			f.log, f.logLeft = []byte("x"), row.left
			s := serve(t, f, Limits{})
			r, err := http.NewRequestWithContext(background(t), "GET", "http://berth/v1/jobs/17/log?follow", nil)
			testkit.Must(t, err)
			reply, err := unixHTTP(t, s.socket).Do(r)
			testkit.Must(t, err)
			defer reply.Body.Close()
			if !row.left {
				s.end(t)
			}
			text, err := io.ReadAll(reply.Body)
			if err != nil || string(text) != "x" || reply.Trailer.Get(headerLogEnd) != logEndStopping {
				t.Errorf("%q, %v, %v", text, err, reply.Trailer)
			}
		})
	}
}

// TestASilentLogEndsInOrder holds that the end of a log gets through even
// when nothing was written for longer than a stalled reader is borne.
func TestASilentLogEndsInOrder(t *testing.T) {
	t.Parallel()
	f := newFake()
	const stall = 2 * time.Second
	s := serve(t, f, Limits{StallTimeout: stall})
	log, err := s.client.Log(background(t), LogQuery{ID: "17", Follow: true})
	testkit.Must(t, err)
	defer log.Close()
	log.OnRetry = func(err error) { t.Errorf("the connection was lost: %v", err) }
	silent := time.NewTimer(stall + stall/4)
	<-silent.C
	f.change(func() { f.logOver = true })
	if _, err := io.ReadAll(log); err != nil {
		t.Error(err)
	}
}
