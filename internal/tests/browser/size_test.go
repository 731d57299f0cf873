package browser

import (
	"fmt"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestALongQueueAndALongLog: of 10,000 jobs and of a log of 100 MB, only what is
// in sight is drawn, and only the end of the log is read until somebody asks.
func TestALongQueueAndALongLog(t *testing.T) {
	const jobs, lines = 9_999, 1_600_000 // with the one that prints, what the page asks for
	h := newHost(t)
	id := h.submit(nil, "-n", "prints", "-g", "0", "--", fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) printf "line %%07d %%048d\n", i, i }'`, lines))
	for gpu := range 2 { // the jobs wait
		_, err := api.Call(h.ctx(), h.client, api.PauseGPU, api.GPUIndex{Index: gpu})
		testkit.Must(t, err)
	}
	h.submit(nil, "-n", "many", "--array", fmt.Sprintf("1-%d", jobs), "--", "true")
	b := h.enter(nil)
	b.until("they are one row", fmt.Sprintf(`/%d queued/.test(document.querySelector(".list tbody").innerText)`, jobs))
	b.click("button.fold", "many")
	b.until("all jobs are counted", fmt.Sprintf(`document.querySelector("table").getAttribute("aria-rowcount") >= %d`, jobs+1))
	inSight := func(selector string) {
		t.Helper()
		if n := eval[int](b, `document.querySelectorAll(`+js(selector)+`).length`); n == 0 || n > 150 {
			t.Errorf("%d of %s are drawn", n, selector)
		}
	}
	inSight("tbody tr")
	b.run(`document.querySelector(".list").scrollTop = 1e9`)
	b.until("the last job is drawn", fmt.Sprintf(`[...document.querySelectorAll("tbody a")].pop().innerText.endsWith("_%d")`, jobs))
	inSight("tbody tr")
	b.fill("Filter", fmt.Sprint("_", 4711))
	h.becomes(id, job.Finished)
	b.view("/job/"+id, "Job "+id)
	ends := fmt.Sprintf(`document.querySelector(".log").innerText.includes("line %07d")`, lines)
	b.until("the end of the log is drawn", ends)
	inSight(".log .line")
	if kept := eval[float64](b, `performance.getEntriesByType("resource").filter((e) => e.name.includes("/log")).reduce((sum, e) => sum + e.encodedBodySize, 0)`); kept > 2<<20 {
		t.Errorf("%.0f bytes of the log were read", kept)
	}
	b.fill("Search", fmt.Sprintf("line %07d", lines-100))
	b.click("button", "Next")
	b.until("the line is found", `document.querySelector(".line.hit")`)
	b.click("button", "Load earlier")
	b.fill("Search", fmt.Sprintf("line %07d", lines-50_000))
	b.until("a line of an earlier part is found", `(test.click("button", "Next"), document.querySelector(".line.hit"))`)
	inSight(".log .line")
	b.click("button", "Go to the beginning")
	b.until("the first line is drawn", `document.querySelector(".log").innerText.includes("line 0000001 ")`)
	b.click("button", "Go to the end")
	b.until("the end of the log is drawn", ends)
	inSight(".log .line")
}
