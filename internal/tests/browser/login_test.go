package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// TestTheAddressLogsInOnce: it leaves nothing behind that would log anybody else
// in, and logging out ends it.
func TestTheAddressLogsInOnce(t *testing.T) {
	h := newHost(t)
	b := newTab(t, h.origin())
	address := h.login(nil)
	b.open(address)
	b.until("the page is there", `test.heading() === "Overview"`)
	if at := eval[string](b, `location.href + " " + history.length`); strings.Contains(at, "login") {
		t.Errorf("the login stays in the address: %s", at)
	}
	if left := b.cookies(h.origin()); len(left) > 0 {
		t.Errorf("the page has cookies: %+v", left)
	}
	if left := eval[string](b, `JSON.stringify({...localStorage, ...sessionStorage})`); left != "{}" {
		t.Errorf("scripts can read what is kept: %s", left)
	}
	if why := eval[string](b, `test.own().then((own) => crypto.subtle.exportKey("jwk", own.key)).then(() => "", (e) => e.name)`); why != "InvalidAccessError" {
		t.Errorf("a script exports the key: %q", why)
	}
	again := newTab(t, h.origin())
	again.open(address)
	again.says("was used already")
	again.says("Log in")

	// A second window of the same browser is logged in, also after loading again.
	b.open(h.origin() + "/#/users")
	b.until("the page is there", `test.heading() === "Users"`)
	b.click("button", "Log out")
	b.says("logged out")
	if left := eval[bool](b, `test.own().then((own) => own === undefined)`); !left {
		t.Error("after logging out the key is still there")
	}
	b.open(h.origin() + "/#/users")
	b.says("Log in")
	h.sessions(0)
}

// sessions checks how many browsers are logged in.
func (h *host) sessions(want int) {
	h.t.Helper()
	tokens, err := api.Call(h.ctx(), h.client, api.ListTokens, api.None{})
	testkit.Must(h.t, err)
	if len(tokens) != want {
		h.t.Errorf("%d sessions, want %d: %+v", len(tokens), want, tokens)
	}
}

// beside opens another tab of the same browser.
func (b *tab) beside() *tab {
	b.t.Helper()
	return tabIn(b.t, b.ctx, b.origin)
}

// TestLoggingInAgain: berth web in a browser that is logged in works each time,
// in the same tab and in another, leaves one session, and disturbs no tab.
func TestLoggingInAgain(t *testing.T) {
	h := newHost(t)
	first := h.enter(nil)
	tabs := []*tab{first, first.beside()}
	for i := range 20 {
		b := tabs[i%len(tabs)]
		call(b, page.BringToFront, cdp.Empty{}) // timers of a hidden tab are slow
		b.open(h.origin() + "/#/users")
		b.until("the page is there", `test.heading() === "Users"`)
		before := eval[string](b, `test.own().then((own) => own.id)`)
		address := h.login(nil)
		if i%4 >= 2 { // the page is loaded again
			b.mayRoam()
			b.open("about:blank")
		}
		b.open(address)
		b.until("it is logged in", `document.querySelector("header") && test.heading().startsWith("Overview")`)
		testkit.Eventually(t, "it has another session", func() bool {
			return eval[string](b, `test.own().then((own) => own.id)`) != before
		})
	}
	for _, b := range tabs {
		call(b, page.BringToFront, cdp.Empty{})
		b.view("/history", "History")
		b.view("/", "Overview")
		b.until("it is still logged in", `document.querySelector("header") && document.querySelector(".cards")`)
	}
	testkit.Eventually(t, "one session is left", func() bool {
		tokens, err := api.Call(h.ctx(), h.client, api.ListTokens, api.None{})
		return err == nil && len(tokens) == 1
	})
	tabs[1].click("button", "Log out")
	tabs[1].says("logged out")
	call(first, page.BringToFront, cdp.Empty{})
	first.run(`location.hash = "/users"`)
	first.says("Log in")
	h.sessions(0)
}

// TestALoginOfSomebodyElseAsks before it replaces the session, and changes
// nothing if the answer is no.
func TestALoginOfSomebodyElseAsks(t *testing.T) {
	h := newSharedHost(t)
	ann, bob := somebody(t, "daemon"), somebody(t, "nobody")
	b := h.enter(ann)
	is := func(who *person) string {
		return `document.querySelector(".you")?.innerText.includes(` + js(who.name) + `)`
	}
	b.until("ann is logged in", is(ann))
	b.open(h.login(bob))
	b.says("You are logged in as " + ann.name)
	b.click("dialog button", "No")
	b.until("ann stays", is(ann))
	testkit.Eventually(t, "bob's session ends unused", func() bool {
		tokens, err := api.Call(h.ctx(), h.client, api.ListTokens, api.None{})
		return err == nil && len(tokens) == 1 && tokens[0].User == ann.name
	})
	b.view("/users", "Users")
	b.open(h.login(bob))
	b.click("dialog button", "Log in as "+bob.name)
	b.until("bob is logged in", is(bob))
	testkit.Eventually(t, "ann's session has ended", func() bool {
		tokens, err := api.Call(h.ctx(), h.client, api.ListTokens, api.None{})
		return err == nil && len(tokens) == 1 && tokens[0].User == bob.name
	})
	// Whose session has ended is not asked about.
	h.berth(bob, "token", "revoke", "--all")
	b.open(h.login(ann))
	b.until("ann is logged in", is(ann))
}
