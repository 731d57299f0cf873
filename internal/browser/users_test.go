package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/testkit"
)

// TestUsersAndTheirJobs: on a shared daemon a user sees that another has a job,
// and neither what it runs nor what it prints, and no button does anything to it.
func TestUsersAndTheirJobs(t *testing.T) {
	h := newSharedHost(t)
	ann, bob := somebody(t, "daemon"), somebody(t, "nobody")
	id := h.submit(ann, "-n", "anns", "-e", "SECRET=canary-variable", "--", "echo canary-output; echo canary-command; exec sleep 3600")
	h.becomes(id, job.Running)
	own := h.enter(ann)
	own.view("/job/"+id, "Job "+id)
	own.says("canary-output")

	b := h.enter(bob)
	b.says(bob.name)
	b.says("anns")
	b.until("no GPU can be paused", `document.querySelector(".cards button") && !document.querySelector(".cards button:not(:disabled)")`)
	b.view("/job/"+id, "Job "+id)
	b.says("another user's")
	for path, heading := range map[string]string{"/": "Overview", "/timeline": "Timeline", "/users": "Users", "/job/" + id: "Job " + id} {
		b.view(path, heading)
		if html := eval[string](b, "document.documentElement.outerHTML"); strings.Contains(html, "canary") {
			t.Errorf("%s tells bob what ann's job does", path)
		}
	}
	b.view("/job/"+id, "Job "+id)
	for _, button := range []string{"Park", "Requeue", "Cancel"} {
		b.until(button+" is disabled", `[...document.querySelectorAll("button")].some((e) => e.innerText === `+js(button)+` && e.disabled)`)
	}
	b.says("Only the job's user and administrators can act on it.")
	// What the page does not offer, its session does not get either.
	ask := func(method, path, body string) int {
		return eval[int](b, `fetch(`+js(path)+`, {method: `+js(method)+`, body: `+js(body)+` || undefined, headers: {"Berth-Session": localStorage.getItem("berth-session")}}).then((r) => r.status)`)
	}
	for _, request := range [][3]string{
		{"GET", "/v1/jobs/" + id + "/log?attempt=1&offset=0", ""},
		{"GET", "/v1/jobs/" + id + "/samples", ""},
		{"PATCH", "/v1/jobs/" + id, `{"set":{"priority":"-5"}}`},
		{"POST", "/v1/gpus/0/pause", ""},
		{"POST", "/v1/gpus/0/drain", `{"park":true}`},
		{"POST", "/v1/logins", ""},
		{"POST", "/v1/tokens", `{"name":"x"}`},
	} {
		if status := ask(request[0], request[1], request[2]); status != http.StatusForbidden && status != http.StatusNotFound {
			t.Errorf("%s %s: status %d", request[0], request[1], status)
		}
	}
	for _, action := range []string{"park", "requeue", "cancel"} {
		ask("POST", "/v1/jobs/act", `{"action":"`+action+`","select":{"ids":["`+id+`"]}}`)
		if d := h.job(id); d.State != job.Running || d.Attempt != 1 {
			t.Fatalf("after %s, ann's job is %s, attempt %d", action, d.State, d.Attempt)
		}
	}
	if status := ask("GET", "/v1/status", ""); status != http.StatusOK {
		t.Errorf("bob's session itself: status %d", status)
	}
	mine := h.submit(bob, "-n", "bobs", "-g", "0", "--", "sleep 3600")
	b.view("/job/"+mine, "Job "+mine)
	b.click("button", "Cancel")
	b.click("dialog button", "Cancel it")
	h.becomes(mine, job.Cancelled)
}

// TestHalvesOfASession: neither the cookie nor the key of somebody else's session
// is worth anything alone, and both together end with it.
func TestHalvesOfASession(t *testing.T) {
	h := newHost(t)
	victim := h.enter(nil)
	key := eval[string](victim, `localStorage.getItem("berth-session")`)
	cookie := victim.cookies(h.origin())[0]
	thief := newTab(t, h.origin())
	thief.open(h.origin())
	thief.says("Log in")

	for _, stolen := range []struct {
		what        string
		cookie, key bool
	}{{"the cookie", true, false}, {"the key", false, true}, {"both", true, true}} {
		call(thief, network.ClearBrowserCookies, cdp.Empty{})
		if stolen.cookie {
			call(thief, network.SetCookie, network.SetCookieParams{Name: cookie.Name, Value: cookie.Value, URL: h.origin(), HTTPOnly: ptr(true), SameSite: cookie.SameSite})
		}
		made := "made-up"
		if stolen.key {
			made = key
		}
		thief.run(`localStorage.setItem("berth-session", ` + js(made) + `)`)
		thief.open(h.origin())
		if stolen.cookie && stolen.key { // that is the session
			thief.until("both halves open it", `test.heading() === "Overview" && document.querySelector(".cards")`)
			continue
		}
		thief.says("Log in")
		if kept := eval[string](thief, `localStorage.getItem("berth-session") ?? ""`); kept != "" {
			t.Errorf("%s: the page keeps a key that the daemon refused", stolen.what)
		}
	}

	// The owner sees both in the list of tokens and ends the session from a terminal.
	tokens, err := h.client.Tokens(h.ctx())
	testkit.Must(t, err)
	if len(tokens) != 1 {
		t.Fatalf("%d sessions: %+v", len(tokens), tokens)
	}
	h.berth(nil, "token", "revoke", tokens[0].ID)
	for _, b := range []*tab{victim, thief} {
		b.view("/", "")
		b.run(`location.hash = "/users"`)
		b.says("Log in")
	}
}

// TestASessionEndsWithItsToken: with a token somebody logs in by hand, and is
// logged out when it expires.
func TestASessionEndsWithItsToken(t *testing.T) {
	h := newHost(t)
	b := newTab(t, h.origin())
	b.open(h.origin())
	enter := func(secret string) (entered bool) {
		b.fill("Token", secret)
		b.click("button", "Log in")
		b.until("the daemon answers", `document.querySelector("header, .message .bad")`)
		if entered = eval[bool](b, `!!document.querySelector("header")`); !entered {
			b.says("unknown, was used already, or has expired")
			b.click("button", "Close")
		}
		return entered
	}
	if enter("berth_wrong") {
		t.Fatal("any text logs in")
	}
	for seconds := int64(4); ; seconds *= 2 { // on a busy machine it takes longer to log in
		token, err := h.client.NewToken(h.ctx(), api.TokenRequest{Name: "short", TTLS: seconds})
		testkit.Must(t, err)
		if !enter(token.Secret) && seconds < 60 {
			continue
		}
		b.until("it is logged out", `(location.hash = location.hash === "#/users" ? "#/history" : "#/users", !document.querySelector("header"))`)
		if enter(token.Secret) {
			t.Error("an expired token logs in")
		}
		return
	}
}

func ptr[T any](value T) *T { return &value }
