package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// heardFrom is a client with little patience of a server with this handler, and
// what it says about silence. The server is a process of its own to it: one
// that does nothing but can be stopped.
func heardFrom(t *testing.T, handler http.HandlerFunc) (c *Client, heard chan Silence, process *os.Process) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	sleeper := exec.Command("sleep", "1000")
	testkit.Must(t, sleeper.Start())
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	c = newClient("here", "http://berth", "", &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("tcp", server.Listener.Addr().String())
	}})
	t.Cleanup(c.Close)
	heard = make(chan Silence, 10)
	c.patience = 20 * time.Millisecond
	c.OnSilence = func(s Silence, pid int) {
		if pid != sleeper.Process.Pid {
			t.Errorf("process %d", pid)
		}
		heard <- s
	}
	c.peer.Store(int64(sleeper.Process.Pid))
	return c, heard, sleeper.Process
}

func suspend(t *testing.T, p *os.Process) {
	t.Helper()
	testkit.Must(t, p.Signal(syscall.SIGSTOP))
	testkit.Eventually(t, "it is stopped", func() bool { return processStopped(p.Pid) })
}

func TestASlowDaemonIsMentionedAndWaitedFor(t *testing.T) {
	answer := make(chan struct{})
	c, heard, _ := heardFrom(t, func(w http.ResponseWriter, _ *http.Request) { <-answer; _, _ = io.WriteString(w, "{}") })
	done := make(chan error, 1)
	go func() { _, err := Call(background(t), c, GetStatus, None{}); done <- err }()
	if s := <-heard; s != Slow {
		t.Errorf("heard %d", s)
	}
	close(answer)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := <-heard; s != Back {
		t.Errorf("then heard %d", s)
	}
}

// A request that waits for a job is not slow before its time is over.
func TestARequestThatWaitsIsNotSlow(t *testing.T) {
	c, heard, process := heardFrom(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() })
	done := make(chan error, 1)
	go func() { _, err := Call(background(t), c, WaitForJobs, WaitRequest{TimeoutS: 3600}); done <- err }()
	suspend(t, process)
	if err := <-done; problem.KindOf(err) != problem.Unable || !strings.Contains(err.Error(), "is stopped and does not answer") {
		t.Errorf("got %v", err)
	}
	select {
	case s := <-heard:
		t.Errorf("heard %d", s)
	default:
	}
}

func TestAStoppedDaemonInAStream(t *testing.T) {
	end := make(chan struct{})
	c, heard, process := heardFrom(t, func(w http.ResponseWriter, _ *http.Request) {
		testkit.Must(t, http.NewResponseController(w).Flush())
		<-end
		_, _ = io.WriteString(w, "last")
	})
	reply, err := c.start(background(t), http.MethodGet, "/v1/events", nil, nil, nil)
	testkit.Must(t, err)
	defer reply.Body.Close()
	suspend(t, process)
	if s := <-heard; s != Stopped {
		t.Errorf("heard %d", s)
	}
	testkit.Must(t, process.Signal(syscall.SIGCONT))
	if s := <-heard; s != Back {
		t.Errorf("then heard %d", s)
	}
	close(end)
	if text, err := io.ReadAll(reply.Body); err != nil || string(text) != "last" {
		t.Errorf("read %q, %v", text, err)
	}
}

func TestARemotePeerThatStaysSilent(t *testing.T) {
	c, _, _ := heardFrom(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c.secret, c.OnSilence, c.remotePatience = "secret", nil, 50*time.Millisecond
	_, err := Call(background(t), c, GetStatus, None{})
	if problem.KindOf(err) != problem.Unable || !strings.Contains(err.Error(), "here accepted the connection and has not answered for") {
		t.Errorf("got %v", err)
	}
}

// Nothing that a restart of the daemon could change is tried again.
func TestAPeerThatIsNotTheDaemonIsRefusedAtOnce(t *testing.T) {
	unknown := httptest.NewTLSServer(http.NotFoundHandler())
	defer unknown.Close()
	unknown.Config.ErrorLog = nil
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for address, want := range map[string]string{
		unknown.URL: "is not trusted", strings.Replace(plain.URL, "http:", "https:", 1): "does not speak TLS",
	} {
		c, err := DialRemote(address, "secret", nil)
		testkit.Must(t, err)
		_, err = Call(background(t), c, GetStatus, None{})
		if problem.KindOf(err) != problem.Refused || !strings.Contains(err.Error(), want) || worthRetry(background(t), err) {
			t.Errorf("%s: got %v", address, err)
		}
		c.Close()
	}
}
