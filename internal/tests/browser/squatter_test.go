package browser

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// falseServer is another user's server at the port of a daemon that is gone. It
// keeps what it hears, and gives out a page of its own.
type falseServer struct {
	*httptest.Server
	mu    sync.Mutex
	heard []*http.Request // their bodies are in texts
	texts []string
}

func (h *host) falseServer() *falseServer {
	h.t.Helper()
	f := &falseServer{}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.heard, f.texts = append(f.heard, r), append(f.texts, string(text))
		w.Header().Set("Berth-Challenge", fmt.Sprint("evil", len(f.heard)))
		switch {
		case r.URL.Path == "/evil":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<!doctype html><title>evil</title><body>evil</body>")
		case strings.HasPrefix(r.Header.Get("Berth-Session"), "unsigned") || !strings.Contains(r.Header.Get("Berth-Session"), ".evil"):
			w.WriteHeader(http.StatusUnauthorized) // have the page sign for this server
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	h.t.Cleanup(f.Close)
	testkit.Eventually(h.t, "the port is free", func() bool {
		l, err := net.Listen("tcp", h.address)
		if err == nil {
			f.Listener.Close()
			f.Listener = l
		}
		return err == nil
	})
	f.Start()
	return f
}

// signed are the requests of the page, with what proves them.
func (f *falseServer) signed() (requests []*http.Request, texts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range f.heard {
		if strings.Count(r.Header.Get("Berth-Session"), ".") == 4 {
			requests, texts = append(requests, r), append(texts, f.texts[i])
		}
	}
	return requests, texts
}

// TestAFalseServerAtThePagesPort: while the daemon is down, another user takes
// its port. The open tab talks to that server by itself. Nothing that it says
// there helps anybody afterwards, and neither does a page of that server, which
// has the same origin.
func TestAFalseServerAtThePagesPort(t *testing.T) {
	h := newHost(t)
	id := h.running(nil, "victim")
	b := h.enter(nil)
	b.mayRoam()
	b.view("/job/"+id, "Job "+id)
	b.says("victim has begun")
	h.down()
	evil := h.falseServer()
	testkit.Eventually(t, "the page asks the false server", func() bool {
		requests, _ := evil.signed()
		for _, r := range requests {
			if strings.Contains(r.Header.Get("Berth-Session"), ".evil") && r.URL.Path == "/v1/events" {
				return true
			}
		}
		return false
	})
	// The same origin in another tab: its scripts have the key and cannot read it.
	page := b.beside()
	page.mayRoam()
	page.open(h.origin() + "/evil")
	page.until("the false page is there", `document.title === "evil"`)
	if why := eval[string](page, `test.own().then((own) => crypto.subtle.exportKey("pkcs8", own.key)).then(() => "", (e) => e.name)`); why != "InvalidAccessError" {
		t.Errorf("the false page exports the key: %q", why)
	}
	const act = "/v1/jobs/act"
	cancel := fmt.Sprintf(`{"action":"cancel","select":{"ids":[%q]},"grace_s":0}`, id)
	prepared := eval[string](page, `test.sign("evil1", "POST", `+js(act)+`, `+js(cancel)+`)`)
	evil.Close()
	h.up()
	h.listens()

	requests, texts := evil.signed()
	challenge := h.replay(t, "GET", "/v1/status", "", http.Header{"Berth-Session": {"unsigned"}}).Header.Get("Berth-Challenge")
	for i, r := range requests {
		own := r.Header.Get("Berth-Session")
		parts := strings.Split(own, ".")
		renewed := strings.Join([]string{parts[0], challenge, parts[2], parts[3], parts[4]}, ".")
		for what, try := range map[string]struct{ method, path, body, proof string }{
			"as it was":              {r.Method, r.RequestURI, texts[i], own},
			"for this daemon":        {r.Method, r.RequestURI, texts[i], renewed},
			"to cancel":              {"POST", act, cancel, renewed},
			"to log out":             {"DELETE", "/v1/session", "", renewed},
			"prepared by its script": {"POST", act, cancel, prepared},
		} {
			header := maps.Clone(r.Header)
			header.Set("Berth-Session", try.proof)
			if reply := h.replay(t, try.method, try.path, try.body, header); reply.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s %s %s: status %d", r.Method, r.URL.Path, what, reply.StatusCode)
			}
		}
	}
	// The false page is still open, and its scripts sign what the daemon asks for.
	for _, path := range []string{"/v1/status", "/v1/jobs/" + id + "/log?attempt=1&offset=0"} {
		if status := eval[int](page, `test.signed("GET", `+js(path)+`).then((r) => r.status)`); status != http.StatusUnauthorized {
			t.Errorf("the false page gets %s: status %d", path, status)
		}
	}
	if status := eval[int](page, `test.signed("POST", `+js(act)+`, `+js(cancel)+`).then((r) => r.status)`); status != http.StatusUnauthorized {
		t.Errorf("the false page cancels: status %d", status)
	}
	if d := h.job(id); d.State != job.Running {
		t.Errorf("the job is %s", d.State)
	}
	testkit.Eventually(t, "no session is left", func() bool {
		tokens, err := api.Call(h.ctx(), h.client, api.ListTokens, api.None{})
		return err == nil && len(tokens) == 0
	})
	b.says("Log in")
}

// replay sends a request that somebody kept.
func (h *host) replay(t *testing.T, method, path, body string, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(h.ctx(), method, h.origin()+path, strings.NewReader(body))
	testkit.Must(t, err)
	r.Header = header
	reply, err := http.DefaultTransport.RoundTrip(r)
	testkit.Must(t, err)
	reply.Body.Close()
	return reply
}

// listens waits until the daemon has its port.
func (h *host) listens() {
	h.t.Helper()
	testkit.Eventually(h.t, "the daemon has its port", func() bool {
		status, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
		return err == nil && status.HTTP == h.address
	})
}
