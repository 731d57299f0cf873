package cli

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"berth/internal/sim"
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
	w.source = `<script>alert("x")</script>.csv`
	w.jobs[1].ID = `"><script>alert(1)</script>`
	replays := replaysOf(t, w, 2, "default", "fifo")
	page, err := replaysPage(w, replays)
	if err != nil {
		t.Fatal(err)
	}
	count := elements(t, page)
	// One chart of waits; two of each kind for the policies.
	if count["svg"] != 5 || count["script"] != 0 || count["tr"] != 1+len(sim.Figures()) {
		t.Errorf("%v", count)
	}
	blocks := 0
	for i := range replays {
		for _, fate := range replays[i].result.Fates {
			blocks += len(fate.Cards)
		}
	}
	if got := strings.Count(string(page), "<title>"); got != 1+blocks {
		t.Errorf("%d blocks, want %d", got-1, blocks)
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
	w := &workload{source: "trace.csv", machine: sim.Machine{GPUs: 8, VRAMMiB: 81920}}
	draw := uniform(3)
	for i := range 10_000 {
		j := sim.Job{ID: fmt.Sprint(i), User: fmt.Sprint("user", i%60), GPUs: 1, Submit: sim.Millis(i * 10_000), Duration: sim.Millis(1 + 200_000*draw())}
		if i%2 == 0 {
			j.Share = 0.1
		}
		w.jobs = append(w.jobs, j)
		w.places = append(w.places, "")
	}
	page, err := replaysPage(w, replaysOf(t, w, 0, "default", "fifo"))
	if err != nil {
		t.Fatal(err)
	}
	count := elements(t, page)
	if count["rect"] > 2*(maxBlocks+8+1) || count["rect"] < 100 || len(page) > 2<<20 {
		t.Errorf("%d rectangles, %d bytes", count["rect"], len(page))
	}
}

func TestUseOverTimeAddsUp(t *testing.T) {
	w := someWork()
	replays := replaysOf(t, w, 0, "fifo")
	a := timeAxis(w, replays)
	sum := 0.0
	for _, gpus := range useOver(w, &replays[0].result, a) {
		if gpus < -1e-9 || gpus > float64(w.machine.GPUs)+1e-9 {
			t.Errorf("%g GPUs are given out", gpus)
		}
		sum += gpus * (a.last - a.first).Seconds() / useBins
	}
	if want := replays[0].result.AllocatedGPUSeconds; sum < want*(1-1e-9) || sum > want*(1+1e-9) {
		t.Errorf("%g GPU-seconds, want %g", sum, want)
	}
}

func TestBlocksOfACardDoNotOverlap(t *testing.T) {
	w := someWork()
	replays := replaysOf(t, w, 0, "backfill")
	blocks := layOut(w, &replays[0].result)
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
	replays := []replayed{
		{Metrics: sim.Metrics{WaitMeanS: 10, JainUsers: 0.2, Decisions: 5, MakespanS: 7}},
		{Metrics: sim.Metrics{WaitMeanS: 20, JainUsers: 0.9, Decisions: 4, MakespanS: 7}},
	}
	want := map[string][2]bool{"wait, mean": {true, false}, "fairness (Jain)": {false, true}}
	for _, row := range pageRows(replays) {
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
