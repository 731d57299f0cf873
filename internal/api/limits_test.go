package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func TestBodiesThatAreTooLarge(t *testing.T) {
	s := serve(t, newFake(), Limits{SubmitBytes: 3000, BodyBytes: 2000, SpecBytes: 1000})
	big := func(n int) string { return strings.Repeat(" ", n) }
	for _, test := range []struct {
		name, path, body string
		status           int
		says             string
	}{
		{"a submission within its limit", "/v1/jobs", `{"jobs":[{"command":"a"}]}`, 200, `"id":"100"`},
		{"a submission over its limit", "/v1/jobs", `{"jobs":[` + strings.Repeat(`{"command":"`+big(700)+`"},`, 6) + `{}]}`, 413, "too large"},
		{"another request within its limit", "/v1/jobs/act", `{"action":"hold","select":{"all":true}}` + big(1500), 200, "jobs"},
		{"another request over its limit", "/v1/jobs/act", `{"action":"hold","select":{"all":true}}` + big(5000), 413, "too large"},
		{"one value over its limit", "/v1/jobs/act", `{"action":"` + big(5000) + `"}`, 413, "too large"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(background(t), "POST", "http://berth"+test.path, strings.NewReader(test.body))
			testkit.Must(t, err)
			reply, err := unixHTTP(t, s.socket).Do(r)
			testkit.Must(t, err)
			defer reply.Body.Close()
			text, _ := io.ReadAll(reply.Body)
			if reply.StatusCode != test.status || !strings.Contains(string(text), test.says) {
				t.Errorf("%d %s, want %d %s", reply.StatusCode, text, test.status, test.says)
			}
		})
	}
	if got := raw(t, s.socket, "GET /v1/status HTTP/1.1\r\nHost: x\r\nA: "+strings.Repeat("x", 80<<10)+"\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 431") {
		t.Errorf("a header without end: %.80s", got)
	}
}

// TestWhoeverDribblesIsCutOff holds that headers and bodies that hardly come
// do not hold a connection.
func TestWhoeverDribblesIsCutOff(t *testing.T) {
	const slow = 2 * time.Second // so that who is just held up is not
	s := serve(t, newFake(), Limits{HeaderTimeout: slow, StallTimeout: slow, IdleTimeout: slow})
	for _, test := range []struct{ name, text, want string }{
		{"nothing at all", "", ""},
		{"half a header", "GET /v1/status HTTP/1.1\r\nHo", ""},
		{"half a body", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"jobs\":", "the request came too slowly"},
		{"half a chunk", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{", "a body in chunks"},
		{"a body nobody wants", "GET /v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", "must not have a body"},
		{"a body nobody wants where nothing is", "GET /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", "there is nothing"},
		{"a connection that asks once", "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := raw(t, s.socket, test.text); !strings.Contains(got, test.want) || test.want == "" && strings.Contains(got, "200 OK") {
				t.Errorf("got %s", got)
			}
		})
	}
}

// TestASlowBodyThatComesIsBorne holds that the limit on slowness is one on
// stalling, not on time: this body takes longer than a caller may stall.
func TestASlowBodyThatComesIsBorne(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), Limits{StallTimeout: 4 * time.Second})
	const before, pieces, after = `{"jobs":[`, 45, `{"command":"a"}]}`
	piece := `{"command":"` + strings.Repeat("a", 64<<10) + `"},`
	body, feed := io.Pipe()
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		io.WriteString(feed, before)
		for range pieces {
			io.WriteString(feed, piece)
			<-tick.C
		}
		io.WriteString(feed, after)
		feed.Close()
	}()
	r, err := http.NewRequestWithContext(background(t), "POST", "http://berth/v1/jobs", body)
	testkit.Must(t, err)
	r.ContentLength = int64(len(before) + pieces*len(piece) + len(after))
	reply, err := unixHTTP(t, s.socket).Do(r)
	testkit.Must(t, err)
	defer reply.Body.Close()
	if text, err := io.ReadAll(reply.Body); reply.StatusCode != 200 {
		t.Errorf("%d %s, %v", reply.StatusCode, text, err)
	}
}

// TestAReaderThatStopsIsCutOff asks for much and reads none of it.
func TestAReaderThatStopsIsCutOff(t *testing.T) {
	f := newFake()
	f.log, f.logOver = make([]byte, 32<<20), true
	for i := range int64(20000) {
		f.events = append(f.events, Event{Seq: i + 1, Job: &exampleView})
		f.jobs = append(f.jobs, Detail{View: exampleView})
	}
	s := serve(t, f, Limits{StallTimeout: 3 * time.Second})
	paths := []string{"/v1/jobs/1/log", "/v1/events", "/v1/jobs?limit=10000"}
	for _, path := range paths {
		c, err := net.Dial("unix", s.socket)
		testkit.Must(t, err)
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	}
	testkit.Eventually(t, "all begin", func() bool { return s.Active() == len(paths) })
	testkit.Eventually(t, "all are given up", func() bool { return s.Active() == 0 })
}

// TestASlowReaderIsBorne takes longer over a reply than a reader may stall,
// but never stalls.
func TestASlowReaderIsBorne(t *testing.T) {
	t.Parallel()
	f := newFake()
	for range 10000 {
		f.jobs = append(f.jobs, Detail{View: exampleView})
	}
	s := serve(t, f, Limits{StallTimeout: 4 * time.Second})
	r, err := http.NewRequestWithContext(background(t), "GET", "http://berth/v1/jobs?limit=10000", nil)
	testkit.Must(t, err)
	reply, err := unixHTTP(t, s.socket).Do(r)
	testkit.Must(t, err)
	defer reply.Body.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for total := int64(0); ; <-tick.C {
		n, err := io.CopyN(io.Discard, reply.Body, 128<<10)
		total += n
		if errors.Is(err, io.EOF) && total == reply.ContentLength {
			return
		}
		if err != nil {
			t.Fatalf("%d bytes of %d: %v", total, reply.ContentLength, err)
		}
	}
}

func TestTooManyConnections(t *testing.T) {
	s := serve(t, newFake(), Limits{UserConnections: 3, RootConnections: 3})
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for range 3 {
		c, err := net.Dial("unix", s.socket)
		testkit.Must(t, err)
		held = append(held, c)
		fmt.Fprint(c, "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Call(background(t), s.client, GetStatus, None{})
	wantProblem(t, err, problem.TooMuch, "too many connections")
	for range spareConnections {
		c, err := net.Dial("unix", s.socket)
		testkit.Must(t, err)
		held = append(held, c)
	}
	testkit.Eventually(t, "all of them are counted", func() bool { return s.userConns.of(os.Getuid()) >= 3+spareConnections-1 })
	held[0].Close()
	for _, c := range held[3:] {
		c.Close()
	}
	held = held[1:3]
	testkit.Eventually(t, "there is room again", func() bool { _, err := Call(background(t), s.client, GetStatus, None{}); return err == nil })
}

// TestConnectionsBeyondTheSpareOnesAreDropped leaves them without an answer.
func TestConnectionsBeyondTheSpareOnesAreDropped(t *testing.T) {
	s := serve(t, newFake(), Limits{UserConnections: 1, RootConnections: 1})
	for range 1 + spareConnections {
		c, err := net.Dial("unix", s.socket)
		testkit.Must(t, err)
		defer c.Close()
	}
	testkit.Eventually(t, "all of them are counted", func() bool { return s.userConns.of(os.Getuid()) == 1+spareConnections })
	c, err := net.Dial("unix", s.socket)
	testkit.Must(t, err)
	defer c.Close()
	c.SetDeadline(time.Now().Add(testkit.Patience))
	if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestTooManyStreams(t *testing.T) {
	f := newFake()
	s := serve(t, f, Limits{UserStreams: 3, RootStreams: 3})
	ctx, cancel := context.WithCancel(background(t))
	var all sync.WaitGroup
	all.Go(func() { s.client.Events(ctx, EventQuery{}, nil) })
	all.Go(func() { Call(ctx, s.client, WaitForJobs, WaitRequest{Select: Select{Words: []string{"forever"}}}) })
	log, err := s.client.Log(ctx, LogQuery{ID: "1", Follow: true})
	testkit.Must(t, err)
	testkit.Eventually(t, "three streams are open", func() bool { return s.streamsHeld.of(os.Getuid()) == 3 })
	what := "too many streams, followed logs, attached terminals and waits: 3"
	_, err = s.client.Attach(background(t), "1")
	wantProblem(t, err, problem.TooMuch, what)
	_, err = Call(background(t), s.client, WaitForJobs, WaitRequest{Select: Select{All: true}})
	wantProblem(t, err, problem.TooMuch, what)
	if _, err := Call(background(t), s.client, GetStatus, None{}); err != nil {
		t.Errorf("what is no stream is refused too: %v", err)
	}
	cancel()
	log.Close()
	all.Wait()
	testkit.Eventually(t, "they are given back", func() bool { return s.streamsHeld.of(os.Getuid()) == 0 })
}

// TestHeavyRequestsTakeTurns holds that of many submissions of one user only
// a few are in memory.
func TestHeavyRequestsTakeTurns(t *testing.T) {
	f := newFake()
	f.stuck, f.entered = make(chan struct{}), make(chan struct{}, 100)
	s := serve(t, f, Limits{UserHeavy: 2})
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if _, err := Call(background(t), s.client, Submit, SubmitRequest{Jobs: []Spec{{Command: Command{Shell: "x"}}}}); err != nil {
				t.Error(err)
			}
		})
	}
	<-f.entered
	<-f.entered
	testkit.Eventually(t, "the others wait", func() bool { return s.heavy.Waiting() == 4 })
	if n := len(f.entered); n != 0 {
		t.Errorf("%d more got in", n)
	}
	close(f.stuck)
	all.Wait()
	if n := s.heavy.Waiting(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// TestLongRepliesTakeTurns: lists are made one after another, and one that nobody
// reads does not keep the next from being made.
func TestLongRepliesTakeTurns(t *testing.T) {
	f := newFake()
	for range 20000 {
		f.jobs = append(f.jobs, Detail{View: exampleView})
	}
	f.listing = make(chan struct{})
	s := serve(t, f, Limits{StallTimeout: testkit.Patience})
	for range 3 {
		c, err := net.Dial("unix", s.socket)
		testkit.Must(t, err)
		defer c.Close()
		fmt.Fprint(c, "GET /v1/jobs?limit=10000 HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	testkit.Eventually(t, "the others wait", func() bool { return s.gate.Waiting() == 2 })
	close(f.listing) // the first waits for it, the others for the first
	if _, err := Call(background(t), s.client, ListJobs, Query{Limit: 1}); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "all are made", func() bool { return s.gate.Waiting() == 0 })
	if n := s.Active(); n != 3 {
		t.Errorf("%d replies are unread", n)
	}
}

func TestRightsAreAskedForOnceAMinute(t *testing.T) {
	f := newFake()
	s := serve(t, f, Limits{})
	for range 5 {
		_, err := Call(background(t), s.client, GetStatus, None{})
		testkit.Must(t, err)
	}
	if len(f.callers) != 1 {
		t.Errorf("asked %d times", len(f.callers))
	}
	anew := serve(t, f, Limits{Recheck: time.Nanosecond})
	f.callers = nil
	for range 5 {
		_, err := Call(background(t), anew.client, GetStatus, None{})
		testkit.Must(t, err)
	}
	if len(f.callers) != 5 {
		t.Errorf("asked %d times", len(f.callers))
	}
}

// TestStreamsEndWithTheirUser: a user who was deleted, or became another one, sees
// nothing more of what was permitted before.
func TestStreamsEndWithTheirUser(t *testing.T) {
	for _, name := range []string{"", "bob"} {
		f := newFake()
		s := serve(t, f, Limits{Recheck: time.Millisecond})
		ended := make(chan error, 3)
		reading, stop := context.WithCancel(background(t))
		log, err := s.client.Log(reading, LogQuery{ID: "1", Follow: true})
		testkit.Must(t, err)
		defer log.Close()
		go func() { _, err := io.Copy(io.Discard, log); ended <- err }()
		go func() { ended <- s.client.Events(background(t), EventQuery{}, func(Event) error { return nil }) }()
		go func() {
			_, err := Call(background(t), s.client, WaitForJobs, WaitRequest{Select: Select{Words: []string{"forever"}}})
			ended <- err
		}()
		testkit.Eventually(t, "three streams are open", func() bool { return s.streamsHeld.of(os.Getuid()) == 3 })
		f.change(func() { f.name = name })
		for i := range 3 {
			if i == 2 && name != "" {
				stop() // it resumes its log under the other name
			}
			if err := <-ended; err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("renamed to %q: a stream ended with %v, as if it were complete or by its own time", name, err)
			}
		}
		stop()
	}
}

// TestShutdownFinishesWhatWasBegun lets a submission end and refuses others.
func TestShutdownFinishesWhatWasBegun(t *testing.T) {
	f := newFake()
	f.stuck, f.entered = make(chan struct{}), make(chan struct{}, 1)
	s := serve(t, f, Limits{})
	before := s.LastActivity()
	var reply SubmitReply
	var submitErr, waitErr error
	var both sync.WaitGroup
	both.Go(func() {
		reply, submitErr = Call(background(t), s.client, Submit, SubmitRequest{Jobs: []Spec{{Command: Command{Shell: "x"}}}})
	})
	both.Go(func() {
		_, waitErr = Call(background(t), s.client, WaitForJobs, WaitRequest{Select: Select{Words: []string{"forever"}}})
	})
	<-f.entered
	testkit.Must(t, f.await(background(t), func() bool { return len(f.waited) > 0 }))
	if s.Active() != 2 || s.LastActivity().Before(before) {
		t.Errorf("%d are active, the last at %s", s.Active(), s.LastActivity())
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(background(t)) }()
	<-s.stopping.Done()
	close(f.stuck)
	both.Wait()
	if submitErr != nil || len(reply.Jobs) != 1 {
		t.Errorf("the submission ended with %+v, %v", reply, submitErr)
	}
	wantProblem(t, waitErr, problem.Unable, "the daemon is stopping")
	testkit.Must(t, <-ended)
	if s.Active() != 0 {
		t.Errorf("%d are active", s.Active())
	}
}

// TestShutdownDoesNotWaitForEver gives up on a request that does not end.
func TestShutdownDoesNotWaitForEver(t *testing.T) {
	f := newFake()
	f.stuck, f.entered = make(chan struct{}), make(chan struct{}, 1)
	s := serve(t, f, Limits{})
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := Call(background(t), s.client, Submit, SubmitRequest{Jobs: []Spec{{Command: Command{Shell: "x"}}}}); err == nil {
			t.Error("it ended well")
		}
	})
	<-f.entered
	ctx, cancel := context.WithTimeout(background(t), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	all.Wait()
	close(f.stuck)
	testkit.Eventually(t, "it ends after all", func() bool { return s.Active() == 0 })
}

func TestProblemsAreSafeToPrint(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"plain text stays", "job asks for 12 GPUs, größer als 8", "job asks for 12 GPUs, größer als 8"},
		{"lines stay", "a\nb", "a\nb"},
		{"escapes are shown", "\x1b[2J\x07\x7f", `\x1b[2J\a\x7f`},
		{"so are those beyond ASCII", "\u009b31m\u202e", `\u009b31m\u202e`},
		{"bytes that are no text too", "a\xffb", "a�b"},
		{"what is too long is cut", strings.Repeat("é", 3000), strings.Repeat("é", 2047) + "…"},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := encodeProblem(&problem.Problem{Kind: problem.Refused, What: test.text})
			var got problem.Problem
			testkit.Must(t, json.Unmarshal(data, &got))
			if got.What != test.want {
				t.Errorf("got %q", got.What)
			}
		})
	}
}
