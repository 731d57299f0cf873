package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestAnotherSitesPage: a page of somebody else, opened in a browser that is
// logged in, gets nothing of the daemon's and changes nothing: not from another
// site, and not from another port of the same host.
func TestAnotherSitesPage(t *testing.T) {
	h := newHost(t)
	id := h.running(nil, "wanted")
	b := h.enter(nil)
	b.view("/job/"+id, "Job "+id)
	b.says("wanted has begun")

	var got atomic.Value // the cookies that came with a request
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Cookie"))
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>evil</title><body>evil</body>")
	}))
	t.Cleanup(evil.Close)
	b.mayRoam()
	port := evil.URL[strings.LastIndex(evil.URL, ":"):]
	for _, site := range []string{"http://127.0.0.1" + port, "http://localhost" + port} {
		b.open(site)
		b.until("the other page is there", `document.title === "evil"`)
		cancel := fmt.Sprintf(`{"action":"cancel","select":{"ids":[%q]},"grace_s":0}`, id)
		for how, options := range map[string]string{
			"plain":       `{method: "POST", mode: "no-cors", credentials: "include", headers: {"Content-Type": "text/plain"}, body: ` + js(cancel) + `}`,
			"JSON":        `{method: "POST", credentials: "include", headers: {"Content-Type": "application/json"}, body: ` + js(cancel) + `}`,
			"with header": `{method: "POST", credentials: "include", headers: {"Berth-Session": "guess"}, body: ` + js(cancel) + `}`,
		} {
			b.forget()
			read := eval[string](b, `fetch(`+js(h.origin()+"/v1/jobs/act")+`, `+options+`).then((r) => r.type === "opaque" ? "" : r.text(), () => "")`)
			if read != "" {
				t.Errorf("%s, %s: the other page reads %q", site, how, read)
			}
			if how == "plain" { // the others are not even sent without permission
				testkit.Eventually(t, "the daemon answers", func() bool { return b.answer(h.origin()+"/v1/jobs/act") != 0 })
				if status := b.answer(h.origin() + "/v1/jobs/act"); status != http.StatusForbidden && status != http.StatusUnauthorized {
					t.Errorf("%s: the daemon answers %d", site, status)
				}
			}
		}
		for _, path := range []string{"/v1/status", "/v1/jobs/" + id + "/log", "/v1/events", "/"} {
			if read := eval[string](b, `fetch(`+js(h.origin()+path)+`, {credentials: "include"}).then((r) => r.text(), () => "")`); read != "" {
				t.Errorf("%s reads %s: %q", site, path, read)
			}
		}
		// A form needs no permission to be sent.
		b.run(`const sent = document.createElement("iframe"); sent.name = "sent"; document.body.append(sent); sent.onload = () => window.sent = true;
			const f = document.createElement("form"); f.method = "POST"; f.enctype = "text/plain"; f.target = "sent"; f.action = ` + js(h.origin()+"/v1/jobs/act") + `;
			const i = document.createElement("input"); i.name = ` + js(strings.TrimSuffix(cancel, "}")+`,"x":"`) + `; i.value = '"}'; f.append(i); document.body.append(f); f.submit()`)
		b.until("the form is sent", `window.sent`)
		// A frame around the page would let others draw over its buttons.
		b.run(`const f = document.createElement("iframe"); f.src = ` + js(h.origin()+"/#/job/"+id) + `; f.name = "around"; document.body.append(f); f.onload = () => window.framed = true`)
		b.until("the frame is refused", `window.framed`)
		if eval[bool](b, `(() => { try { return frames.around.document.body.innerText !== "" } catch { return false } })()`) {
			t.Error("the page can be read in a frame")
		}
		refused := false
		testkit.Eventually(t, "the browser says that the page may not be framed", func() bool {
			for _, wrong := range b.takeWrong() {
				refused = refused || strings.Contains(wrong, "frame-ancestors")
			}
			return refused
		})
		if d := h.job(id); d.State != job.Running {
			t.Fatalf("%s: the job is %s", site, d.State)
		}
	}
	// Browsers send cookies to every port of a host: there must be none.
	b.open("http://127.0.0.1" + port)
	if cookie, _ := got.Load().(string); cookie != "" {
		t.Errorf("another port gets the cookies %q", cookie)
	}
	b.open(h.origin() + "/#/job/" + id)
	b.says("wanted has begun")
	b.takeWrong() // the other sites' own doing
}
