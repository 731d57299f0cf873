package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func (f *fake) tell(seqs ...int64) {
	f.change(func() {
		for _, seq := range seqs {
			f.events = append(f.events, Event{Seq: seq, Time: exampleTime, Kind: job.EventStarted, Job: &exampleView, Text: fmt.Sprint(len(f.events))})
		}
	})
}

var errEnough = errors.New("enough")

// TestEventsOutliveTheirDaemon follows events while the server goes down in
// order and is killed. Each numbered event comes once, in order.
func TestEventsOutliveTheirDaemon(t *testing.T) {
	f := newFake()
	socket := filepath.Join(t.TempDir(), "berth.sock")
	s := serveAt(t, socket, f, Limits{})
	client := Dial(socket)
	defer client.Close()
	lost := make(chan error, 100)
	client.OnRetry = func(err error) { lost <- err }
	got := make(chan Event, 100)
	done := make(chan error, 1)
	f.tell(1, 2, 3)
	ctx := background(t)
	go func() {
		done <- client.Events(ctx, EventQuery{Since: 1}, func(e Event) error {
			got <- e
			if e.Seq == 10 {
				return errEnough
			}
			return nil
		})
	}()
	next := int64(2)
	expect := func(until int64) {
		t.Helper()
		for ; next <= until; next++ {
			select {
			case e := <-got:
				if e.Seq != next || e.Job == nil || e.Job.ID != "17" {
					t.Fatalf("event %+v, want %d", e, next)
				}
			case <-ctx.Done():
				t.Fatalf("event %d never came", next)
			}
		}
	}
	expect(3)
	s.kill()
	<-lost
	f.tell(4, 5)
	s = serveAt(t, socket, f, Limits{})
	expect(5)
	s.end(t)
	<-lost
	f.tell(6)
	serveAt(t, socket, f, Limits{})
	f.tell(7, 8, 9, 10)
	expect(10)
	if err := <-done; !errors.Is(err, errEnough) {
		t.Errorf("it ended with %v", err)
	}
}

func TestEventsAsTheyTravel(t *testing.T) {
	f := newFake()
	f.tell(7, 0)
	s := serve(t, f, Limits{Heartbeat: 20 * time.Millisecond})
	r, err := http.NewRequestWithContext(background(t), "GET", "http://berth/v1/events?since=3", nil)
	testkit.Must(t, err)
	r.Header.Set("Last-Event-ID", "6")
	reply, err := unixHTTP(t, s.socket).Do(r)
	testkit.Must(t, err)
	defer reply.Body.Close()
	if kind := reply.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("it comes as %s", kind)
	}
	lines := bufio.NewScanner(reply.Body)
	var text []string
	events := 0
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, ": still here") && events == 2 {
			break // on a slow machine one may come before them too
		}
		if strings.HasPrefix(line, "data: ") {
			events++
		}
		if !strings.HasPrefix(line, ":") && (line != "" || len(text) > 0) {
			text = append(text, line)
		}
	}
	all := strings.Join(text, "\n")
	if strings.Count(all, "id: ") != 1 || !strings.HasPrefix(all, "id: 7\ndata: {\"seq\":7,") || strings.Count(all, "\ndata: {\"time\"") != 1 {
		t.Errorf("the stream was\n%s", all)
	}
	s.stop()
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	if !strings.HasSuffix(rest, "event: end\ndata: {\"kind\":\"unavailable\",\"problem\":\"the daemon is stopping\",\"hint\":\"try again in a moment\"}\n\n") {
		t.Errorf("it ended with\n%s", rest)
	}
}

func TestAStreamThatIsRefused(t *testing.T) {
	s := serve(t, newFake(), Limits{})
	err := s.client.Events(background(t), EventQuery{User: "nobody"}, nil)
	wantProblem(t, err, problem.NotFound, "there is no user nobody")
}

// late is a backend that refuses when the stream has already begun.
type late struct{ *fake }

func (l late) server(o ServerOptions) *Server {
	s := l.fake.server(o)
	s.options.Streams.Events = l.Events
	return s
}

func (l late) Events(ctx context.Context, c Caller, q EventQuery, send func(Event) error) error {
	if err := send(Event{Seq: 1}); err != nil {
		return err
	}
	if err := l.await(ctx, func() bool { return l.logOver }); err != nil {
		return err
	}
	return problem.Newf(problem.Refused, "", "too late")
}

func TestAStreamThatIsRefusedLate(t *testing.T) {
	f := newFake()
	s := serve(t, late{f}, Limits{})
	err := s.client.Events(background(t), EventQuery{}, func(Event) error {
		f.change(func() { f.logOver = true })
		return nil
	})
	wantProblem(t, err, problem.Refused, "too late")
}

func TestEventsEndWithTheirContext(t *testing.T) {
	f := newFake()
	f.tell(1)
	s := serve(t, f, Limits{})
	ctx, cancel := context.WithCancel(background(t))
	err := s.client.Events(ctx, EventQuery{}, func(Event) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	testkit.Eventually(t, "the stream is given back", func() bool { return s.Active() == 0 && s.streamsHeld.total == 0 })
}

func TestALongHistoryComesWhole(t *testing.T) {
	f := newFake()
	for i := range int64(3000) {
		f.tell(i + 1)
	}
	s := serve(t, f, Limits{})
	n := int64(0)
	err := s.client.Events(background(t), EventQuery{}, func(e Event) error {
		if n++; e.Seq != n {
			return fmt.Errorf("event %d came as number %d", e.Seq, n)
		}
		if n == 3000 {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
}
