package browser

import (
	"testing"

	"berth/internal/job"
)

// TestThePageOutlivesADaemon: while the daemon is down the page says so, and
// when it is back the page goes on, with what happened meanwhile. If nobody kept
// the port for the daemon, that takes another login.
func TestThePageOutlivesADaemon(t *testing.T) {
	h := newHost(t)
	id := h.submit(nil, "-n", "talks", "--", "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done")
	h.becomes(id, job.Running)
	b := h.enter(nil)
	b.run("window.sameLoad = true")
	b.view("/job/"+id, "Job "+id)
	b.until("the log comes", `document.querySelector(".log .line")`)
	last := `Number(/line (\d+)\s*$/.exec(document.querySelector(".log").innerText)?.[1])`
	h.down()
	b.says("not connected")
	before := eval[int](b, last)
	h.up()
	b.until("it is connected again, or logged out", `!document.querySelector(".lost")`)
	if eval[bool](b, `!document.querySelector("header")`) {
		b.open(h.login(nil))
		b.view("/job/"+id, "Job "+id)
	}
	b.until("the log goes on", last+" > "+js(before+10))
	if lines := eval[[]int](b, `[...document.querySelectorAll(".log .line")].map((e) => Number(e.innerText.split(" ")[1]))`); len(lines) > 1 {
		for i := range lines[1:] {
			if lines[i+1] != lines[i]+1 {
				t.Errorf("after line %d comes line %d", lines[i], lines[i+1])
			}
		}
	}
	other := h.submit(nil, "-n", "afterwards", "-g", "0", "--", "sleep 600")
	b.click("nav a", "Overview")
	b.says("afterwards")
	b.click("tbody a", other)
	b.click("button", "Cancel")
	b.click("dialog button", "Cancel it")
	h.becomes(other, job.Cancelled)
	if !eval[bool](b, "window.sameLoad === true") {
		t.Error("the page was loaded again")
	}
}
