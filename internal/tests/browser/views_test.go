package browser

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// axe finds what people with a screen reader, a keyboard or weak eyes would
// stumble over. It is axe.min.js of axe-core 4.14.0 from npm, unchanged.
//
//go:embed testdata/axe.min.js
var axe string

// accessible holds the page as it is now to axe.
func (b *tab) accessible(where string) {
	b.t.Helper()
	b.run("window.axe ?? (() => {" + axe + "})()")
	for _, found := range eval[[]string](b, `axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html).slice(0, 3).join(" ")))`) {
		b.t.Errorf("%s: %s", where, found)
	}
}

// fits holds the page to the width of its window.
func (b *tab) fits(where string) {
	b.t.Helper()
	// A phone makes its window as wide as the page.
	if wide := eval[int64](b, "Math.max(innerWidth, document.documentElement.scrollWidth)"); wide > b.width {
		b.t.Errorf("%s: %d pixels wide, in a window of %d", where, wide, b.width)
	}
}

// TestEveryViewIsForEveryone: axe finds nothing in any view, theme and width, and
// no view is wider than its window.
func TestEveryViewIsForEveryone(t *testing.T) {
	h := newHost(t)
	login := newTab(t, h.origin())
	login.open(h.origin())
	login.says("Log in")
	h.becomes(h.submit(nil, "-n", "quick", "--", "true"), job.Finished)
	runs := h.running(nil, "runs")
	h.running(nil, "runs-too")
	waits := h.submit(nil, "-n", "waits-"+strings.Repeat("long", 30), "-t", "1h", "--", "true")
	ended := h.submit(nil, "-n", "ended", "-g", "0", "--", `printf '\033[31mred\033[0m \033[1;34mblue\033[0m\n'; exit 1`)
	array := h.submit(nil, "-n", "array", "--array", "0-3", "--", "true")
	swept := h.sweep("1,10,100", "0-1", "--metric", "val_acc")
	h.becomes(ended, job.Failed)
	b := h.enter(nil)
	views := []struct{ path, heading, there string }{
		{"/", "Overview", `document.querySelectorAll("tbody a").length >= 4 && document.querySelector(".mine .log .line")`},
		{"/job/" + runs, "Job " + runs, `document.querySelector(".log .line")`},
		{"/job/" + waits, "Job " + waits, `document.querySelector("section.story")`},
		{"/job/" + ended, "Job " + ended, `document.querySelector(".log .c-red")`},
		{"/job/" + array, "Job " + array, `document.querySelectorAll(".trials tbody tr").length === 4`},
		{"/job/" + swept, "Job " + swept, `document.querySelectorAll(".point").length === 6`},
		{"/timeline", "Timeline", `document.querySelectorAll("main svg .bar").length >= 2`},
		{"/history", "History", `document.querySelectorAll("tbody a").length > 0`},
		{"/users", "Users", `document.querySelectorAll("tbody tr").length > 0`},
		{"/what-if", "What", `document.querySelectorAll("tbody tr").length > 3`},
		{"/submit", "Submit", `document.querySelector("textarea")`},
	}
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 768, 390} {
			login.theme(theme)
			login.size(width, 850)
			b.theme(theme)
			b.size(width, 850)
			login.fits("login")
			if width != 768 {
				login.accessible(fmt.Sprintf("login, %s, %d", theme, width))
			}
			for _, v := range views {
				where := fmt.Sprintf("%s, %s, %d", v.path, theme, width)
				b.view(v.path, v.heading)
				b.until(where+" is complete", v.there)
				b.fits(where)
				if width != 768 { // between the two, only the room differs
					b.accessible(where)
				}
			}
		}
	}
	b.view("/job/"+runs, "Job "+runs)
	b.click("button", "Cancel")
	b.says("Cancel job")
	b.accessible("a question")
}

// TestViewsFollowTheDaemon: without loading again, a job appears, gets its
// reason, prints, ends and is in the history.
func TestViewsFollowTheDaemon(t *testing.T) {
	h := newHost(t)
	h.running(nil, "first")
	b := h.enter(nil)
	b.until("the GPU shows its job", `/first/.test(document.querySelector(".cards").innerText)`)
	row := func(name string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].find((r) => r.innerText.includes(%q))?.innerText`, name)
	}
	h.running(nil, "second")
	b.until("the second job appears", `/running/.test(`+row("second")+`)`)
	testkit.Must(t, syscall.Mkfifo(filepath.Join(h.dir, "go"), 0o600))
	id := h.submit(nil, "-n", "third", "-t", "1h", "--", "echo one; read line <"+h.dir+"/go; echo two")
	b.until("the third job waits, with a reason", `/queued.*GPU/s.test(`+row("third")+`)`)
	b.fill("Filter", "third")
	b.until("only it is listed", `document.querySelectorAll("tbody a").length === 1`)
	b.click("tbody a", id)
	b.says("It is number 1 of 1")
	h.berth(nil, "cancel", "first", "--grace", "0")
	b.until("it runs", `/running/.test(test.heading())`)
	b.until("its log is followed", `/one/.test(document.querySelector(".log")?.innerText)`)
	h.submit(nil, "-g", "0", "--", "echo x >"+h.dir+"/go")
	b.until("its log grows", `/two/.test(document.querySelector(".log").innerText)`)
	b.until("it ends", `/finished/.test(test.heading())`)
	b.fill("Search", "TWO")
	b.click("button", "Next")
	b.until("the line is found", `document.querySelector(".line.hit")?.innerText === "two"`)
	b.click("nav a", "History")
	b.fill("Name", "third")
	b.click("button", "Show")
	b.until("the history has it", `document.querySelectorAll("tbody a").length === 1 && /finished/.test(`+row("third")+`)`)
	b.choose("State", "failed")
	b.click("button", "Show")
	b.until("no failed job has the name", `document.querySelectorAll("tbody a").length === 0`)
	b.click("nav a", "Timeline")
	b.until("what ran and what runs is drawn", `["ran", "runs"].every((w) => [...document.querySelectorAll("svg title")].some((e) => e.textContent.includes(" " + w + " ")))`)
	b.click("nav a", "Users")
	b.until("the user has a share", `/%/.test(document.querySelector("tbody").innerText)`)
}

// TestAJobsFileIsOneRow: in the queue and in the history, and it can be opened.
func TestAJobsFileIsOneRow(t *testing.T) {
	h := newHost(t)
	file := filepath.Join(h.dir, "sweep.txt")
	testkit.Must(t, os.WriteFile(file, []byte("[gpus=0 name=short] true\n[gpus=2 name=line-a] sleep 1000\n[gpus=2 name=line-b] sleep 1001\n[gpus=2 name=line-c] sleep 1002\n"), 0o600))
	h.berth(nil, "submit", file)
	h.submit(nil, "-n", "other", "--", "true")
	b := h.enter(nil)
	rows := `[...document.querySelectorAll(".list tbody tr:not(.space)")].map((r) => r.innerText.replace(/\s+/g, " "))`
	b.until("the file is one row", rows+`.some((r) => /sweep.txt .*1 running, 2 queued, 1 finished/.test(r))`)
	if all := eval[[]string](b, rows); len(all) != 2 {
		t.Errorf("%q", all)
	}
	b.click("button.fold", "sweep.txt")
	b.until("its lines are listed", rows+`.some((r) => r.includes("line-c"))`)
	b.accessible("an open row")
	b.fill("Filter", "line-b")
	b.until("only one line is listed", rows+`.length === 1`)
	h.berth(nil, "cancel", "other")
	h.berth(nil, "cancel", "--batch", file, "--grace", "0")
	h.becomes("2", job.Cancelled) // the line that runs; the history is read once
	b.click("nav a", "History")
	b.until("the history has it, still open", rows+`.some((r) => /sweep.txt .*1 finished, 3 cancelled/.test(r)) && `+rows+`.some((r) => r.includes("line-"))`)
	b.click("button.fold", "sweep.txt")
	b.until("only one row is left of it", `!`+rows+`.some((r) => r.includes("line-"))`)
}

// TestWhatSomebodyComesFor: whoever opens the page reads at once why their job
// waits, when it is expected to start, and what their last one printed.
func TestWhatSomebodyComesFor(t *testing.T) {
	h := newHost(t)
	last := h.submit(nil, "-n", "earlier", "-g", "0", "--", `seq 100; printf 'result \033[32m0.93\033[0m\n'`)
	h.becomes(last, job.Finished)
	runs := h.submit(nil, "-n", "long", "--gpus", "2", "-t", "2h", "--", "sleep 3600")
	h.becomes(runs, job.Running)
	waits := h.submit(nil, "-n", "mine", "-t", "1h", "--", "true")
	b := h.enter(nil)
	own := func(id string) string {
		return `[...document.querySelectorAll("li.mine")].find((e) => e.querySelector("a").innerText === ` + js(id) + `)?.innerText`
	}
	b.until("why it waits, and until when", `/GPU.*job `+runs+`.*Expected to start at about (\w+ )?\d.*number 1 of 1/s.test(`+own(waits)+`)`)
	b.until("what the last one printed", `/finished.*\n99\n100\nresult 0.93/s.test(`+own(last)+`)`)
	b.until("and nothing of before", `!/\n50\n/.test(`+own(last)+`)`)
}

// TestWhatIf replays what ended, under the policies that are ticked.
func TestWhatIf(t *testing.T) {
	h := newHost(t)
	for range 3 {
		h.becomes(h.submit(nil, "--", "true"), job.Finished)
	}
	b := h.enter(nil)
	b.click("nav a", "What-if")
	columns := func(names ...string) string {
		return `[...document.querySelectorAll("thead th")].map((e) => e.innerText).join() === ` + js("Figure,"+strings.Join(names, ",")+",Lower bound")
	}
	b.until("the usual policies are replayed", columns("default", "backfill"))
	b.says("3 jobs of 1 user on 2 GPUs")
	b.until("fair is ticked", `((e) => e && (e.checked || e.click(), e.checked))([...document.querySelectorAll("label.choice")].find((e) => e.innerText.startsWith("fair"))?.control)`)
	b.click("button", "Replay")
	b.until("fair is replayed too", columns("default", "backfill", "fair"))
	if page, err := api.Call(h.ctx(), h.client, api.ListJobs, api.Query{Over: true}); err != nil || page.Total != 3 {
		t.Errorf("a replay left %d jobs (%v)", page.Total, err)
	}
}
