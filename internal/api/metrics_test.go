package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func exampleMetrics(context.Context) ([]byte, error) {
	return []byte("berth_jobs{state=\"queued\"} 3\n"), nil
}

// serveMetrics serves a backend's metrics at an address of its own.
func serveMetrics(t *testing.T, f *fake, o ServerOptions) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	s := f.server(o)
	done := make(chan error, 1)
	go func() { done <- s.ServeMetrics(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(background(t)), <-done); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// ask sends a request by TCP.
func ask(t *testing.T, method, url, host string) (status int, body string, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(background(t), method, url, nil)
	testkit.Must(t, err)
	r.Host = host
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	reply, err := transport.RoundTrip(r)
	testkit.Must(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	testkit.Must(t, err)
	return reply.StatusCode, string(text), reply.Header
}

func TestTheAddressForMetricsServesNothingElse(t *testing.T) {
	f := newFake()
	address := serveMetrics(t, f, ServerOptions{Metrics: exampleMetrics})
	_, port, _ := net.SplitHostPort(address)
	for _, c := range []struct {
		method, path, host string
		status             int
	}{
		{"GET", "/metrics", "", 200},
		{"GET", "/metrics", "localhost:" + port, 200},
		{"GET", "/metrics", "[::1]:" + port, 200},
		{"GET", "/metrics", "evil.example:" + port, 403},
		{"GET", "/metrics", "10.9.9.9", 403},
		{"POST", "/metrics", "", 405},
		{"GET", "/metrics/", "", 403},
		{"GET", "/metrics/../v1/status", "", 403},
		{"GET", "/v1/status", "", 403},
		{"GET", "/v1/jobs", "", 403},
		{"GET", "/openapi.json", "", 403},
		{"GET", "/", "", 403},
		{"POST", "/v1/gpus/0/pause", "", 403},
		{"GET", "/metrics?name=a", "", 400},
	} {
		status, body, header := ask(t, c.method, "http://"+address+c.path, c.host)
		if status != c.status {
			t.Errorf("%s %s for %q: %d %s, want %d", c.method, c.path, c.host, status, body, c.status)
		}
		if status == 200 && (body != "berth_jobs{state=\"queued\"} 3\n" || !strings.HasPrefix(header.Get("Content-Type"), "text/plain; version=0.0.4")) {
			t.Errorf("the reply is %q of %q", body, header.Get("Content-Type"))
		}
	}
}

func TestMetricsAreServedOnThisMachineAlone(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	testkit.Must(t, err)
	defer l.Close()
	if err := newFake().server(ServerOptions{}).ServeMetrics(l); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("served to the network: %v", err)
	}
}

func TestMetricsNeedATokenByTCP(t *testing.T) {
	address := serveTCP(t, newFake(), TCPOptions{})
	if status, body, _ := ask(t, "GET", "http://"+address+"/metrics", ""); status != 401 {
		t.Errorf("without a token: %d %s", status, body)
	}
}

// TestManyScrapersAreBounded: the oldest makes room, and the other addresses are
// not touched.
func TestManyScrapersAreBounded(t *testing.T) {
	address := serveMetrics(t, newFake(), ServerOptions{Metrics: exampleMetrics, Limits: Limits{Scrapers: 2, HeaderTimeout: time.Hour, IdleTimeout: time.Hour}})
	var first net.Conn
	for range 3 {
		c, err := net.Dial("tcp", address)
		testkit.Must(t, err)
		defer c.Close()
		if first == nil {
			first = c
		}
	}
	testkit.Must(t, first.SetReadDeadline(time.Now().Add(testkit.Patience)))
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("the oldest is still there: %v", err)
	}
	if status, _, _ := ask(t, "GET", "http://"+address+"/metrics", ""); status != 200 {
		t.Errorf("a scraper is kept out by others: %d", status)
	}
}

// TestARunHasNoMetrics: it has no use for them, and says so.
func TestARunHasNoMetrics(t *testing.T) {
	address := serveMetrics(t, newFake(), ServerOptions{})
	if status, body, _ := ask(t, "GET", "http://"+address+"/metrics", ""); status != 409 || !strings.Contains(body, "a berth run has no metrics") {
		t.Errorf("%d %s", status, body)
	}
}

// TestAScrapeIsNoCaller: it does not keep an idle daemon alive.
func TestAScrapeIsNoCaller(t *testing.T) {
	s := serve(t, newFake(), Limits{})
	before := s.LastActivity()
	_, err := s.client.ask(background(t), &scrape.Operation, &None{})
	testkit.Must(t, err)
	if after := s.LastActivity(); !after.Equal(before) {
		t.Errorf("a scrape counts as activity: %v, before it %v", after, before)
	}
	_, err = Call(background(t), s.client, GetStatus, None{})
	testkit.Must(t, err)
	if !s.LastActivity().After(before) {
		t.Error("a request does not count as activity")
	}
}

// TestEveryRequestIsCountedByItsOperation: what a caller can choose is in no name.
func TestEveryRequestIsCountedByItsOperation(t *testing.T) {
	var mu sync.Mutex
	var served []string
	note := func(operation string, status int, took time.Duration, stream bool) {
		mu.Lock()
		defer mu.Unlock()
		served = append(served, fmt.Sprintf("%s %d %v", operation, status, stream))
		if took <= 0 {
			t.Errorf("%s took %v", operation, took)
		}
	}
	address := serveMetrics(t, newFake(), ServerOptions{Metrics: exampleMetrics, Served: note})
	for _, path := range []string{"/metrics", "/v1/jobs/secret", "/metrics?a=b"} {
		ask(t, "GET", "http://"+address+path, "")
	}
	ask(t, "BREW", "http://"+address+"/metrics", "")
	socket := filepath.Join(t.TempDir(), "berth.sock")
	l, err := Listen(socket, 0o600)
	testkit.Must(t, err)
	s := &running{socket: socket, client: Dial(socket), done: make(chan error, 1), Server: newFake().server(ServerOptions{Served: note})}
	go func() { s.done <- s.ServeUnix(l) }()
	t.Cleanup(func() { s.end(t) })
	_, err = Call(background(t), s.client, GetJob, JobID{ID: "17"})
	testkit.Must(t, err)
	_, err = Call(background(t), s.client, GetJob, JobID{ID: "404"})
	wantProblem(t, err, problem.NotFound, "there is no job 404")
	_, err = Call(background(t), s.client, WaitForJobs, exampleWait)
	testkit.Must(t, err)
	_, err = s.client.ask(background(t), &describeJSON.Operation, &None{})
	testkit.Must(t, err)
	want := []string{"metrics 200 false", "none 403 false", "metrics 400 false", "none 405 false", "show 200 false", "show 404 false", "wait 200 true", "openapi 200 false"}
	testkit.Eventually(t, "requests are counted", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(served) >= len(want)
	})
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(served, want) {
		t.Errorf("counted %q, want %q", served, want)
	}
}
