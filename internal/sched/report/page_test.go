package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"berth/internal/sched/sim"
)

// elements counts the elements of a page, which must be well-formed.
func elements(t *testing.T, page []byte) map[string]int {
	t.Helper()
	count := map[string]int{}
	d := xml.NewDecoder(bytes.NewReader(page))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
}

func TestThePageIsWholeAndEscaped(t *testing.T) {
	w := someWork()
	w.Source = `<script>alert("x")</script>.csv`
	w.Jobs[1].ID = `"><script>alert(1)</script>`
	replays := replaysOf(t, w, 2, "default", "fifo")
	page, err := (&Report{Work: w, Replays: replays}).Page()
	if err != nil {
		t.Fatal(err)
	}
	count := elements(t, page)
	// Two charts of waits and one of users; two of each kind for the policies.
	if count["svg"] != 7 || count["script"] != 0 || count["tr"] != 1+len(shownFigures(replays)) {
		t.Errorf("%v", count)
	}
	jobs := 0
	for i := range replays {
		jobs += replays[i].Jobs
	}
	if got := strings.Count(string(page), `<g class="job `); got != jobs {
		t.Errorf("%d jobs are drawn, want %d", got, jobs)
	}
	for _, word := range []string{"http://", "https://", "@import", "url(", "src=", "NaN", "Inf"} {
		if strings.Contains(string(page), word) {
			t.Errorf("the page has %s", word)
		}
	}
	for _, word := range []string{"&lt;cid&gt;", "prefers-color-scheme: dark", "2 perturbed copies", "class=\"best\""} {
		if !strings.Contains(string(page), word) {
			t.Errorf("the page lacks %s", word)
		}
	}
}

func TestThePageOfManyJobsStaysSmall(t *testing.T) {
	w := &sim.Workload{Source: "trace.csv", Machine: sim.Machine{GPUs: 8, VRAMMiB: 81920}}
	draw := rand.New(rand.NewPCG(3, 3)).Float64
	for i := range 10_000 {
		j := sim.Job{ID: fmt.Sprint(i), User: fmt.Sprint("user", i%60), GPUs: 1, Submit: sim.Millis(i * 10_000), Duration: sim.Millis(1 + 200_000*draw())}
		if i%2 == 0 {
			j.Share = 0.1
		}
		w.Jobs = append(w.Jobs, j)
		w.Places = append(w.Places, "")
	}
	page, err := (&Report{Work: w, Replays: replaysOf(t, w, 0, "default", "fifo")}).Page()
	if err != nil {
		t.Fatal(err)
	}
	count := elements(t, page)
	if count["rect"] > 2*(maxBlocks*3/2+8+8+1+len(waitBands)) || count["rect"] < 100 || len(page) > 2<<20 {
		t.Errorf("%d rectangles, %d bytes", count["rect"], len(page))
	}
	if !strings.Contains(string(page), "blocks are drawn; the others are too short") {
		t.Error("the page does not say what it leaves out")
	}
	if !strings.Contains(string(page), "A closer look") || count["svg"] != 9 {
		t.Errorf("nothing is drawn closer: %v", count)
	}
}

func TestThePageShowsJobsThatWereSetAside(t *testing.T) {
	w := &sim.Workload{Source: "trace.csv", Machine: sim.Machine{GPUs: 2, VRAMMiB: 81920}, Places: make([]string, 2), Jobs: []sim.Job{
		{ID: "long", User: "ann", GPUs: 2, Duration: 5000_000}, {ID: "short", User: "bob", GPUs: 1, Submit: 1000_000, Duration: 60_000},
	}}
	fates := []sim.Fate{
		{End: 5100_000, Preemptions: 1, Segments: []sim.Segment{{End: 1020_000, Cards: []int{0, 1}}, {Start: 1080_000, End: 5100_000, Cards: []int{0, 1}}}},
		{Start: 1020_000, End: 1080_000, Segments: []sim.Segment{{Start: 1020_000, End: 1080_000, Cards: []int{1}}}},
	}
	replays := []sim.Replayed{{Metrics: sim.Metrics{Policy: "las", Jobs: 2, Users: 2, Preemptions: 1}, Result: sim.Result{Fates: fates, Preemptions: 1}}}
	page, err := (&Report{Work: w, Replays: replays}).Page()
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, word := range []string{
		`<title>long, ann: 2 GPUs, 1h23m of work; started immediately; preempted once; waited 1m40s in total</title>`,
		`<title>short, bob: 1 GPU, 1m00s of work; started after 20s</title>`, "A thin line is a parked job",
	} {
		if !strings.Contains(text, word) {
			t.Errorf("the page lacks %s", word)
		}
	}
	job, _, _ := strings.Cut(text[strings.Index(text, "<title>long"):], "</g>")
	if strings.Count(job, `class="gap"`) != 1 || strings.Count(job, "<rect x=") != 4 {
		t.Errorf("the runs of a job that was set aside: %s", job)
	}
	if queue := queueOver(w, &replays[0].Result, timeAxis(w, replays)); slices.Max(queue) <= 0 {
		t.Error("nobody is seen to wait")
	}
}

func TestTheWaitsOfThePageAreThoseOfTheFigures(t *testing.T) {
	w := someWork()
	replays := compared(t, w, sim.Policies(), sim.Choices{Park: &sim.Parking{EachWay: 5000}}, 0)
	for i := range replays {
		sum, waits := 0.0, waitsOf(w, &replays[i].Result)
		for _, wait := range waits {
			sum += wait
		}
		if mean := sum / float64(len(waits)); math.Abs(mean-replays[i].WaitMeanS) > 1e-6 || len(waits) != replays[i].Jobs {
			t.Errorf("%s: %d jobs wait %g on average, the figures say %d and %g", replays[i].Policy, len(waits), mean, replays[i].Jobs, replays[i].WaitMeanS)
		}
	}
	if replays[0].Preemptions == 0 {
		t.Error("nothing is set aside: the test says less than it should")
	}
}

func TestAPageOfOnePolicyAndOfSeven(t *testing.T) {
	for _, names := range [][]string{{"fifo"}, sim.PolicyNames()} {
		page, err := (&Report{Work: someWork(), Replays: replaysOf(t, someWork(), 0, names...)}).Page()
		if err != nil {
			t.Fatal(err)
		}
		if count := elements(t, page); count["svg"] != 3+2*len(names) || count["th"] != 2+len(names) {
			t.Errorf("%v: %v", names, count)
		}
	}
}

func TestUseOverTimeAddsUp(t *testing.T) {
	w := someWork()
	replays := replaysOf(t, w, 0, "fifo")
	a := timeAxis(w, replays)
	sum := 0.0
	for _, gpus := range useOver(w, &replays[0].Result, a) {
		if gpus < -1e-9 || gpus > float64(w.Machine.GPUs)+1e-9 {
			t.Errorf("%g GPUs are allocated", gpus)
		}
		sum += gpus * (a.last - a.first).Seconds() / useBins
	}
	if want := replays[0].Result.AllocatedGPUSeconds; sum < want*(1-1e-9) || sum > want*(1+1e-9) {
		t.Errorf("%g GPU-seconds, want %g", sum, want)
	}
}

func TestBlocksOfACardDoNotOverlap(t *testing.T) {
	w := someWork()
	replays := replaysOf(t, w, 0, "backfill")
	blocks := layOut(w, &replays[0].Result)
	shared := false
	for i, a := range blocks {
		if a.low < 0 || a.low+a.part > 1+1e-9 {
			t.Errorf("%+v sticks out", a)
		}
		for _, b := range blocks[i+1:] {
			together := a.card == b.card && a.start < b.end && b.start < a.end
			shared = shared || together
			if together && a.low < b.low+b.part-1e-9 && b.low < a.low+a.part-1e-9 {
				t.Errorf("%+v and %+v overlap", a, b)
			}
		}
	}
	if !shared {
		t.Error("no two jobs share a card: the test says nothing")
	}
}

func TestThePageMarksThePolicyThatDidBest(t *testing.T) {
	replays := []sim.Replayed{
		{Metrics: sim.Metrics{WaitMeanS: 10, JainUsers: 0.2, Decisions: 5, MakespanS: 7}},
		{Metrics: sim.Metrics{WaitMeanS: 20, JainUsers: 0.9, Decisions: 4, MakespanS: 7}},
	}
	want := map[string][2]bool{"wait, mean": {true, false}, "fairness (Jain)": {false, true}}
	for _, row := range rowsOf(replays) {
		if got := [2]bool{row.Cells[0].Best, row.Cells[1].Best}; got != want[row.Title] {
			t.Errorf("%s: best is %v", row.Title, got)
		}
	}
	named := append(slices.Clone(lessIsBetter), moreIsBetter...)
	for _, f := range sim.Figures() {
		named = slices.DeleteFunc(named, func(name string) bool { return name == f.Name })
	}
	if len(named) > 0 {
		t.Errorf("no figures: %v", named)
	}
}
