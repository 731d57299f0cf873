package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func ask(t *testing.T, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

func TestThePageMayUseOnlyItsOwnFiles(t *testing.T) {
	for _, path := range []string{"/", "/assets/nothing.js"} {
		w := ask(t, path)
		policy := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: policy %q lacks %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
			t.Errorf("%s: policy %q is too wide", path, policy)
		}
		if got := w.Header().Get("Referrer-Policy"); got != "no-referrer" {
			t.Errorf("%s: referrer policy %q", path, got)
		}
	}
}

func TestFilesAreCachedByWhetherTheirNameChanges(t *testing.T) {
	h := handler(fstest.MapFS{"dist/index.html": {Data: []byte("<!doctype html>")}, "dist/assets/page-1a2b.js": {Data: []byte("1")}})
	get := func(path string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil)
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for path, want := range map[string]string{"/": "no-cache", "/assets/page-1a2b.js": "public, max-age=31536000, immutable"} {
		w := get(path, "Accept-Encoding", "br, gzip")
		if w.Code != 200 || w.Header().Get("Cache-Control") != want || w.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		if again := get(path, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	if w := get("/"); w.Body.String() != "<!doctype html>" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Errorf("without compression: %q %v", w.Body, w.Header())
	}
	if w := get("/index.html"); w.Code != 404 {
		t.Errorf("the page has a second address: %d", w.Code)
	}
}
