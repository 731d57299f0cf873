package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"berth/internal/tests/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a server that a test talks to.
type running struct {
	*Server
	socket string
	client *Client
	logged *testkit.Buffer
	done   chan error
}

// served is what has a server: a fake, or one with other answers.
type served interface{ server(o ServerOptions) *Server }

// serve starts a server of it on a socket of its own.
func serve(t testing.TB, b served, l Limits) *running {
	t.Helper()
	return serveAt(t, filepath.Join(t.TempDir(), "berth.sock"), b, l)
}

func serveAt(t testing.TB, socket string, b served, l Limits) *running {
	t.Helper()
	listener, err := Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{socket: socket, client: Dial(socket), logged: &testkit.Buffer{}, done: make(chan error, 1)}
	r.Server = b.server(ServerOptions{Version: "test", Limits: l, Log: slog.New(slog.NewTextHandler(r.logged, nil)), Metrics: exampleMetrics})
	go func() { r.done <- r.ServeUnix(listener) }()
	t.Cleanup(func() { r.end(t) })
	return r
}

// end shuts it down in order.
func (r *running) end(t testing.TB) {
	t.Helper()
	r.client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Errorf("shut down: %v", err)
	}
	if r.done != nil {
		if err := <-r.done; err != nil {
			t.Errorf("serve: %v", err)
		}
		r.done = nil
	}
}

// kill cuts every connection at once, as the end of a process would.
func (r *running) kill() {
	r.Server.mu.Lock()
	servers := r.servers
	r.Server.mu.Unlock()
	for _, s := range servers {
		s.Close()
	}
	<-r.done
	r.done = nil
	// What the kernel would end with the process: handlers that are blocked.
	r.stop()
}

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	t.Cleanup(cancel)
	return ctx
}

// raw sends text to a socket as it stands and returns the first bytes of what
// comes back.
func raw(t testing.TB, socket, text string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := c.Write([]byte(text)); err != nil {
		return err.Error()
	}
	var all strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := c.Read(buffer)
		all.Write(buffer[:n])
		if err != nil {
			return all.String()
		}
	}
}

// unixHTTP is a plain client of a socket, for requests that Client would not
// make.
func unixHTTP(t testing.TB, socket string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
