package browser

import (
	"testing"

	"github.com/chromedp/chromedp/kb"

	"berth/internal/job"
)

// tabTo presses Tab until something has the focus, and fails if it comes round
// without it, or if a person could not see where they are.
func (b *tab) tabTo(what, focused string) {
	b.t.Helper()
	for range 60 {
		b.press(kb.Tab)
		if unseen := eval[string](b, `((e) => e === document.body || getComputedStyle(e).outlineStyle !== "none" ? "" : e.outerHTML)(document.activeElement)`); unseen != "" {
			b.t.Errorf("nobody sees that this has the focus: %s", unseen)
		}
		if eval[bool](b, `((e) => !!(`+focused+`))(document.activeElement)`) {
			return
		}
	}
	b.t.Fatalf("Tab does not reach %s; the focus is on %s", what, eval[string](b, "document.activeElement.outerHTML"))
}

// TestTheKeyboardAlone: Tab, Enter and Escape are enough to find a job, to open
// it, to think twice, and to cancel it.
func TestTheKeyboardAlone(t *testing.T) {
	h := newHost(t)
	id := h.running(nil, "victim")
	b := h.enter(nil)
	b.until("the job is listed", `[...document.querySelectorAll("tbody a")].some((e) => e.innerText === `+js(id)+`)`)
	b.press(kb.Tab)
	b.until("the first stop leads past the menu", `document.activeElement.innerText === "Skip to the content"`)
	b.press(kb.Enter)
	b.until("it does", `document.activeElement.id === "main"`)
	b.tabTo("the job in the table", `e.closest("tbody") && e.innerText === `+js(id))
	b.press(kb.Enter)
	b.says("Job " + id + ": victim")
	b.tabTo("Cancel", `e.innerText === "Cancel"`)
	b.press(kb.Enter)
	b.until("it asks, and the focus is in the question", `document.activeElement.closest("dialog")`)
	b.press(kb.Escape)
	b.until("Escape means no, and leads back", `!document.querySelector("dialog") && document.activeElement.innerText === "Cancel"`)
	if d := h.job(id); d.State != job.Running {
		t.Fatalf("after Escape the job is %s", d.State)
	}
	b.press(kb.Enter)
	b.tabTo("the answer", `e.innerText === "Cancel it"`)
	b.press(kb.Enter)
	h.becomes(id, job.Cancelled)
	b.until("the page says so", `/cancelled/.test(test.heading())`)
}
