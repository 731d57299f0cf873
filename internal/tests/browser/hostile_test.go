package browser

import (
	"net/url"
	"strings"
	"testing"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// hostile are texts that a page which takes them for markup would obey.
var hostile = []string{
	`<img src=x onerror="window.owned=1">`,
	`<script>window.owned=1</script>`,
	`</script><svg onload="window.owned=1">`,
	`"><a href="javascript:window.owned=1">click</a>`,
	`<iframe srcdoc="<script>parent.owned=1</script>"></iframe>`,
	`<link rel=stylesheet href="http://evil.example/x.css"><img src="http://evil.example/x.png">`,
	`{{constructor.constructor("window.owned=1")()}} ${window.owned=1} javascript:window.owned=1`,
	`<style>*{display:none}</style><base href="http://evil.example/">`,
}

// TestTextIsNeverMarkup: what users choose, and what their jobs print, is shown
// as it is. Nothing of it runs, loads or is interpreted.
func TestTextIsNeverMarkup(t *testing.T) {
	h := newHost(t)
	h.running(nil, "first")
	h.running(nil, "second")
	all := strings.Join(hostile, "\n")
	testkit.Write(t, h.dir+"/log", all+"\n\x1b]8;;javascript:window.owned=1\x07link\x1b]8;;\x07\n\x1b]0;title\x07\x1b[31m"+hostile[0]+"\x1b[0m\nthe end\n")
	var ended []string
	for i, text := range hostile {
		ended = append(ended, h.submit(nil, "-n", text, "-g", "0", "-e", "HOSTILE="+text, "--", "cat "+h.dir+"/log # "+text))
		if i < 3 {
			h.submit(nil, "-n", text, "--", "true # "+text)
		}
	}
	for _, id := range ended {
		h.becomes(id, job.Finished)
	}
	b := h.enter(nil)
	mayHave := eval[int](b, `document.querySelectorAll("script, link, style, base, iframe, img").length`)
	check := func(where string) {
		t.Helper()
		if eval[bool](b, "window.owned !== undefined") {
			t.Fatalf("%s: a script of a job's text ran", where)
		}
		if n := eval[int](b, `document.querySelectorAll("script, link, style, base, iframe, img").length`); n != mayHave {
			t.Errorf("%s: the page has %d elements that load something, want %d", where, n, mayHave)
		}
		if odd := eval[[]string](b, `[...document.querySelectorAll("[href]")].map((e) => e.getAttribute("href")).filter((h) => !/^(#|\/assets\/)/.test(h))`); len(odd) > 0 {
			t.Errorf("%s: links to %q", where, odd)
		}
		if odd := eval[[]string](b, `[...document.querySelectorAll("*")].flatMap((e) => e.getAttributeNames()).filter((n) => n.startsWith("on"))`); len(odd) > 0 {
			t.Errorf("%s: attributes %q", where, odd)
		}
	}
	b.says(hostile[0])
	check("overview")
	b.fill("Filter", hostile[1])
	b.until("the filter takes it as text", `document.querySelectorAll("tbody a").length === 1`)
	check("filter")
	for i, id := range ended {
		b.view("/job/"+id, "Job "+id)
		b.until("the name is shown as it is", `document.querySelector("h1 bdi").innerText.trim() === `+js(strings.Join(strings.Fields(hostile[i]), " ")))
		b.until("the log is shown as it is", `document.querySelector(".log").innerText.includes(`+js(all)+`)`)
		b.until("to its end", `/^link$/m.test(document.querySelector(".log").innerText) && document.querySelector(".log .c-red").innerText === `+js(hostile[0]))
		b.click("details summary", eval[string](b, `[...document.querySelectorAll("summary")].pop().innerText`))
		b.fill("Search", hostile[2])
		b.click("button", "Next")
		b.until("the search takes it as text", `document.querySelector(".line.hit")?.innerText === `+js(hostile[2]))
		check("job " + id)
	}
	for path, heading := range map[string]string{"/history": "History", "/timeline": "Timeline", "/users": "Users", "/what-if": "What"} {
		b.view(path, heading)
		b.until(path+" is there", `document.querySelector("main table, main svg, main fieldset label")`)
		check(path)
	}
	b.view("/submit", "Submit")
	b.fill("Command, as you would type it in a shell", "true")
	b.fill("GPUs", hostile[0])
	b.click("button", "What would happen?")
	b.until("it is refused", `document.querySelector(".message .bad")`)
	check("a refusal")
	b.view("/job/"+url.PathEscape("<b>"+hostile[0]), "Job")
	b.until("there is no such job", `document.querySelector(".message .bad")`)
	check("a job that does not exist")
	b.run("location.hash = " + js("/job/%E0%A4%A"))
	b.until("a broken address is a job that does not exist", `document.querySelector(".message .bad") && test.heading() === "Job %E0%A4%A"`)

	// What this test relies on: were there markup, the policy would stop it, and
	// this tab would hear of it.
	if wrong := b.takeWrong(); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
	b.run(`try { document.body.innerHTML = ` + js(hostile[0]) + ` } catch { }`)
	testkit.Eventually(t, "a breach of the policy is heard of", func() bool { return len(b.takeWrong()) > 0 })
	if eval[bool](b, "window.owned !== undefined") {
		t.Error("the policy lets an inline script run")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgiven = true // the browser reports one breach in several ways
}
