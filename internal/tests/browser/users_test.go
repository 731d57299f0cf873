package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"berth/internal/job"
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
		return eval[int](b, `test.signed(`+js(method)+`, `+js(path)+`, `+js(body)+`).then((r) => r.status)`)
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

// TestASessionEndsWithItsToken: with a token somebody logs in by hand, and is
// logged out when it expires.
func TestASessionEndsWithItsToken(t *testing.T) {
	h := newSharedHost(t)
	ann := somebody(t, "daemon")
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
		secret := strings.TrimSpace(h.berth(ann, "token", "create", "--name", "short", "--ttl", fmt.Sprintf("%ds", seconds)))
		if !enter(secret) && seconds < 60 {
			continue
		}
		b.until("it is logged out", `(location.hash = location.hash === "#/users" ? "#/history" : "#/users", !document.querySelector("header"))`)
		if enter(secret) {
			t.Error("an expired token logs in")
		}
		return
	}
}
