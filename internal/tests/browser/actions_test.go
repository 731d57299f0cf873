package browser

import (
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// eventually waits for something about a job.
func (h *host) eventually(what, id string, holds func(api.Detail) bool) {
	h.t.Helper()
	testkit.Eventually(h.t, "job "+id+" "+what, func() bool { return holds(h.job(id)) })
}

// TestActionsOnAWaitingJob: each button does what it says, and cancelling asks.
func TestActionsOnAWaitingJob(t *testing.T) {
	h := newHost(t)
	h.running(nil, "first")
	h.running(nil, "second")
	id := h.submit(nil, "-n", "waits", "--", "true")
	b := h.enter(nil)
	b.click("a", id)
	b.says("Job " + id + ": waits")
	b.until("it says why the job waits", `/GPU/.test(document.querySelector("section.story").innerText)`)
	b.says("It is number 1 of 1 in the queue")

	b.click("button", "Hold")
	h.eventually("is held", id, func(d api.Detail) bool { return d.Held })
	b.click("button", "Release")
	h.eventually("is released", id, func(d api.Detail) bool { return !d.Held })
	b.fill("Priority", "7")
	b.click("button", "Set")
	h.eventually("has its priority", id, func(d api.Detail) bool { return d.Priority == 7 })
	b.says("has priority 7")

	b.click("button", "Cancel")
	b.says("Cancel job " + id + ", waits?")
	b.click("dialog button", "No")
	b.until("the question is gone", `!document.querySelector("dialog")`)
	if d := h.job(id); d.State != job.Queued {
		t.Fatalf("after No the job is %s", d.State)
	}
	b.click("button", "Cancel")
	b.click("dialog button", "Cancel it")
	h.becomes(id, job.Cancelled)
	b.until("the page says so", `/cancelled/.test(test.heading())`)
	b.click("button", "Requeue")
	h.becomes(id, job.Queued)
	b.until("the page says so", `/queued/.test(test.heading())`)
}

// TestActionsOnARunningJob parks it and brings it back, runs it again, and shows
// what each attempt printed.
func TestActionsOnARunningJob(t *testing.T) {
	h := newHost(t)
	id := h.running(nil, "train", "--vram", "5G")
	b := h.enter(nil)
	b.view("/job/"+id, "Job "+id)
	b.click("button", "Park")
	b.click("dialog button", "Park it")
	h.becomes(id, job.Parked)
	b.until("the page says so", `/parked/.test(test.heading())`)
	b.click("button", "Unpark")
	h.eventually("is back", id, func(d api.Detail) bool { return d.State == job.Running && d.Parking == nil })
	b.click("button", "Park")
	b.until("it asks until when", `test.set("Until (empty: until it is unparked)", "2099-12-31T12:00")`)
	b.click("dialog button", "Park it")
	h.becomes(id, job.Parked)
	if d := h.job(id); !strings.Contains(ptrText(d.Reason), "2099-12-31") {
		t.Errorf("the job is parked: %s", ptrText(d.Reason))
	}
	b.click("button", "Unpark")
	h.eventually("is back", id, func(d api.Detail) bool { return d.State == job.Running && d.Parking == nil })
	// A browser that is busy may never answer whether it copied.
	b.until("it says what became of it", `/copied `+id+`|the id is `+id+`/.test(document.querySelector(".message").innerText) || (test.click("button", "Copy id"), false)`)
	b.click("button", "Requeue")
	b.click("dialog button", "No")
	b.until("the question is gone", `!document.querySelector("dialog")`)
	b.click("button", "Requeue")
	b.click("dialog button", "Requeue it")
	h.eventually("runs again", id, func(d api.Detail) bool { return d.State == job.Running && d.Attempt == 2 })
	for _, attempt := range []string{"1", "2"} {
		b.choose("Attempt", attempt)
		b.until("the log of attempt "+attempt, `document.querySelector(".log").innerText.includes("train has begun, attempt `+attempt+`")`)
	}
	b.until("its memory is drawn", `document.querySelectorAll("figure canvas").length === 2`)
	b.says("GPU memory: at most 3.9 GiB")
	b.until("its lines are explained", `[...document.querySelector(".keys").children].map((e) => e.innerText).join() === "attempt 1,attempt 2,declared,parked"`)
	b.click("button", "Cancel")
	b.click("dialog button", "Cancel it")
	h.becomes(id, job.Cancelled)
}

func ptrText(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// TestPausingAGPU asks, and resuming does not. Draining parks its jobs as well.
func TestPausingAGPU(t *testing.T) {
	h := newHost(t)
	b := h.enter(nil)
	paused := func(want bool) func() bool {
		return func() bool {
			gpus, err := api.Call(h.ctx(), h.client, api.ListGPUs, api.None{})
			return err == nil && gpus[1].Paused == want && !gpus[0].Paused
		}
	}
	b.until("its actions are there", `document.querySelectorAll(".card details").length === 2`)
	eval[bool](b, `document.querySelectorAll(".card details").forEach((e) => (e.open = true)), true`)
	b.click("button", "Pause GPU 1")
	b.click("dialog button", "No")
	b.until("the question is gone", `!document.querySelector("dialog")`)
	if !paused(false)() {
		t.Fatal("No paused the GPU")
	}
	b.click("button", "Pause GPU 1")
	b.click("dialog button", "Pause")
	testkit.Eventually(t, "GPU 1 is paused", paused(true))
	b.click("button", "Resume GPU 1")
	testkit.Eventually(t, "GPU 1 is resumed", paused(false))

	id := h.running(nil, "moves", "--gpu-ids", "1")
	b.click("button", "Drain GPU 1")
	b.click("dialog button", "No")
	b.until("the question is gone", `!document.querySelector("dialog")`)
	if d := h.job(id); d.State != job.Running || !paused(false)() {
		t.Fatalf("No drained the GPU: the job is %s", d.State)
	}
	b.click("button", "Drain GPU 1")
	b.click("dialog button", "Drain")
	h.becomes(id, job.Parked)
	testkit.Eventually(t, "GPU 1 is paused", paused(true))
	b.click("button", "Resume GPU 1")
	h.becomes(id, job.Running)
}

// TestSubmitting first says what would happen, and does nothing.
func TestSubmitting(t *testing.T) {
	h := newHost(t)
	b := h.enter(nil)
	b.click("nav a", "Submit")
	b.fill("Command, as you would type it in a shell", "echo 'from the page'; exit 3")
	b.fill("Name", "typed")
	b.fill("Directory", h.dir)
	b.fill("Memory on each GPU", "2G")
	b.fill("Time limit", "1h")
	b.fill("Priority", "4")
	b.click("button", "What would happen?")
	b.until("the page says what would happen", `/It would start at once on GPU 0/.test(document.querySelector("main").innerText)`)
	if page, err := api.Call(h.ctx(), h.client, api.ListJobs, api.Query{Over: true}); err != nil || page.Total > 0 {
		t.Fatalf("asking made %d jobs (%v)", page.Total, err)
	}
	b.click("button", "Submit")
	b.until("the job is shown", `/^Job \d+: typed/.test(test.heading())`)
	id := eval[string](b, `decodeURIComponent(location.hash.split("/")[2])`)
	h.becomes(id, job.Failed)
	d := h.job(id)
	if d.Name != "typed" || d.Priority != 4 || d.ExitCode == nil || *d.ExitCode != 3 || d.VRAMMiB == nil || *d.VRAMMiB != 2048 {
		t.Errorf("the job is %+v", d)
	}
	b.until("its end is shown", `/failed/.test(test.heading())`)
	b.until("what it printed is shown", `document.querySelector(".log").innerText.includes("from the page")`)

	// What the daemon refuses is said in its words.
	b.view("/submit", "Submit")
	b.fill("Command, as you would type it in a shell", "true")
	b.fill("GPUs", "12")
	b.click("button", "Submit")
	b.says("12 GPUs")
	b.until("it is still the form", `test.heading() === "Submit a job"`)
}
