package web

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestEveryFileOfThePageIsServed: the page names its files, and each is there,
// compressed and for ever; the page itself is asked for each time.
func TestEveryFileOfThePageIsServed(t *testing.T) {
	page := ask(t, "/")
	if page.Code != 200 || page.Header().Get("Cache-Control") != "no-cache" {
		t.Fatalf("the page: %d %q", page.Code, page.Header().Get("Cache-Control"))
	}
	text := page.Body.String()
	if regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|<script[^>]*>\s*[^<\s]`).MatchString(text) {
		t.Errorf("inline script or style:\n%s", text)
	}
	named := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(text, -1)
	if len(named) < 2 {
		t.Fatalf("the page names %d files", len(named))
	}
	for _, name := range named {
		w := ask(t, name[1], "Accept-Encoding", "gzip")
		if w.Code != 200 || w.Header().Get("Content-Encoding") != "gzip" || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", name[1], w.Code, w.Header())
		}
		if again := ask(t, name[1], "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", name[1], again.Code)
		}
	}
}

// TestThePageIsSmall: slow links to a cluster are common.
func TestThePageIsSmall(t *testing.T) {
	total := 0
	for _, f := range load(bundle) {
		total += len(f.zipped)
	}
	if total > 150_000 {
		t.Errorf("%d bytes compressed, want 150,000 at most", total)
	}
}

// TestThePageNamesNoOtherHost: no request leaves the host.
func TestThePageNamesNoOtherHost(t *testing.T) {
	for name, f := range load(bundle) {
		for _, found := range regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z0-9.-]+`).FindAllString(string(f.data), -1) {
			if !strings.Contains(found, "www.w3.org") { // names of XML, not addresses
				t.Errorf("%s names %s", name, found)
			}
		}
	}
}
