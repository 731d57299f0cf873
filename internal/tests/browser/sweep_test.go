package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"berth/internal/job"
)

// sweep runs trials that print a val_acc of lr/200 + seed/1000, waits until they
// have finished, and returns the id.
func (h *host) sweep(lr, seed string, flags ...string) string {
	h.t.Helper()
	args := append([]string{"sweep", "--quiet", "-g", "0", "-n", "lr{lr}", "--param", "lr=" + lr, "--param", "seed=" + seed}, flags...)
	id := strings.TrimSpace(h.berth(nil, append(args, "--", `awk -v lr={lr} -v seed={seed} 'BEGIN {{ print "val_acc=" lr / 200 + seed / 1000, "note=" lr "x" }}'`)...))
	h.becomes(id, job.Finished)
	return id
}

// TestTheResultsOfASweep: from the row of a sweep one comes to a table of its
// trials, sorts it, and sees a metric over a parameter. Of many, 1,000 are drawn.
func TestTheResultsOfASweep(t *testing.T) {
	h := newHost(t)
	id := h.sweep("100,1,10", "0-1")
	b := h.enter(nil)
	b.click("nav a", "History")
	b.click("tbody a", id)
	b.until("it has the name of the sweep", `test.heading().startsWith(`+js("Job "+id+": lr{lr}")+`)`)
	cells := func(want string) string {
		return `[...document.querySelectorAll(".trials tbody tr")].map((r) => [...r.cells].map((c) => c.innerText)).map((c) => [c[0].split("_")[1], c[2], c[3], c[4], c[7]].join(":")).join(" ") === ` + js(want)
	}
	b.until("every trial has a row", `document.querySelectorAll(".trials tbody tr").length === 6 && document.querySelectorAll(".point").length === 6`)

	b.fill("Metric", "max:(")
	b.click("button", "Pick from the logs")
	b.until("a bad pattern is refused, and can be mended", `/RE2/.test(document.querySelector(".message .bad")?.innerText) && test.control("Metric").value === "max:("`)
	b.fill("Metric", "max:val_acc")
	b.press(kb.Enter)
	b.until("the metric is a column", cells("0:100:0:finished:0.5 1:100:1:finished:0.501 2:1:0:finished:0.005 3:1:1:finished:0.006 4:10:0:finished:0.05 5:10:1:finished:0.051"))
	b.until("the field is empty for the next", `test.control("Metric").value === ""`)

	b.click("button.sort", "val_acc")
	b.until("the smallest come first", cells("2:1:0:finished:0.005 3:1:1:finished:0.006 4:10:0:finished:0.05 5:10:1:finished:0.051 0:100:0:finished:0.5 1:100:1:finished:0.501"))
	b.click("button.sort", "val_acc")
	b.until("the largest come first", cells("1:100:1:finished:0.501 0:100:0:finished:0.5 5:10:1:finished:0.051 4:10:0:finished:0.05 3:1:1:finished:0.006 2:1:0:finished:0.005"))
	sorts := `[...document.querySelectorAll(".trials th[aria-sort]")].map((e) => e.innerText.trim() + " " + e.getAttribute("aria-sort")).join()`
	b.until("the heading says so", sorts+` === "val_acc descending"`)
	b.run(`document.querySelector(".trials").focus()`)
	b.tabTo("the heading of seed", `e.matches(".sort") && e.innerText.trim() === "seed"`)
	b.press(kb.Enter)
	b.until("the keyboard sorts too", sorts+` === "seed ascending"`)

	// The points are where the values are: each 10 times as large, the same way to the right.
	b.choose("Plot", "val_acc")
	places := `[...document.querySelectorAll(".point")].map((e) => [Math.round(e.cx.baseVal.value), Math.round(e.cy.baseVal.value)])`
	b.until("val_acc is plotted over lr", `document.querySelector("svg[aria-label='val_acc over lr: 6 trials']") && /logarithmic/.test(document.querySelector("svg").textContent)`)
	at := eval[[][2]int](b, places)
	if big, small, middle := at[0], at[2], at[4]; middle[0]-small[0] < 100 || max(big[0]-middle[0], middle[0]-small[0])-min(big[0]-middle[0], middle[0]-small[0]) > 2 || big[1] >= middle[1] || middle[1] >= small[1] {
		t.Errorf("the points of lr 100, 1 and 10 are at %v, %v and %v", big, small, middle)
	}
	b.choose("over", "seed")
	b.until("val_acc is plotted over seed", places+`.every(([x], i, all) => x === all[i % 2][0]) && document.querySelector("svg[aria-label^='val_acc over seed']")`)
	b.fill("Metric", "note=([0-9]+x)")
	b.click("button", "Pick from the logs")
	b.until("a second metric joins the first", `[...document.querySelectorAll(".trials th")].map((e) => e.innerText.trim()).slice(-2).join() === "val_acc,note"`)
	b.choose("Plot", "note")
	b.says("No trial has a number for note yet.")
	b.choose("Plot", "val_acc")
	b.run(`document.querySelector(".point").dispatchEvent(new MouseEvent("click", { bubbles: true }))`)
	b.until("a point leads to its trial", `test.heading().startsWith(`+js("Job "+id+"_0: lr100")+`)`)

	many := h.submit(nil, "--hold", "--array", "0-1000", "--", "true")
	b.view("/job/"+many, "Job "+many)
	b.says("The first 1000 of 1001 trials are shown")
	b.click("button.sort", "index")
	b.click("button.sort", "index")
	b.until("the first in the order of the table", `((rows) => rows.length === 1000 && rows[0].cells[1].innerText === "1000")(document.querySelectorAll(".trials tbody tr"))`)
}
