package browser

import (
	"strings"
	"testing"

	"berth/internal/testkit"
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
	if seen := eval[string](b, "document.cookie"); seen != "" {
		t.Errorf("a script can read the cookie: %s", seen)
	}
	for _, c := range b.cookies(h.origin()) {
		if !c.HTTPOnly || c.SameSite != "Strict" || c.Expires <= 0 {
			t.Errorf("the cookie: %+v", c)
		}
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
	if left := b.cookies(h.origin()); len(left) > 0 {
		t.Errorf("after logging out: %+v", left)
	}
	b.open(h.origin() + "/#/users")
	b.says("Log in")
	tokens, err := h.client.Tokens(h.ctx())
	testkit.Must(t, err)
	if len(tokens) > 0 {
		t.Errorf("sessions are left: %+v", tokens)
	}
}
