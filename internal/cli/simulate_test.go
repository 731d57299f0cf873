package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/daemon"
	"berth/internal/job"
	"berth/internal/sim"
)

const traceHeader = "job_id,submit_s,duration_s,gpus,gpu_milli,user,vram_mib,time_limit_s,priority\n"

func TestTraces(t *testing.T) {
	rows := []struct {
		name  string
		trace string
		want  []sim.Job
	}{
		{"every column is read", traceHeader + "a,1,2.5,1,250,ann,2048,9,-3\n",
			[]sim.Job{{ID: "a", User: "ann", Submit: 1000, Duration: 2500, GPUs: 1, Share: 0.25, VRAMMiB: 2048, Limit: 9000, Priority: -3}}},
		{"columns come in any order and case, others are ignored, the line is the id", "duration_s,group,SUBMIT_S\n5,x,1\n",
			[]sim.Job{{ID: "2", Submit: 1000, Duration: 5000, GPUs: 1}}},
		{"what is blank is not known", traceHeader + "a,1,2,,,,,,\n", []sim.Job{{ID: "a", Submit: 1000, Duration: 2000, GPUs: 1}}},
		{"Windows wrote it", "\ufeffsubmit_s,duration_s\r\n1,2\r\n\r\n3,4\r\n",
			[]sim.Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1}, {ID: "4", Submit: 3000, Duration: 4000, GPUs: 1}}},
		{"fields may be quoted, with commas and line ends", "submit_s,duration_s,user\n1,2,\"ann, \"\"the\nboss\"\"\"\n\"3\",4,bob\n",
			[]sim.Job{{ID: "2", User: "ann, \"the\nboss\"", Submit: 1000, Duration: 2000, GPUs: 1}, {ID: "4", User: "bob", Submit: 3000, Duration: 4000, GPUs: 1}}},
		{"whole numbers may have a point, and a whole share is none", traceHeader + "a,1,2,2.0,1000,,,,\n", []sim.Job{{ID: "a", Submit: 1000, Duration: 2000, GPUs: 2}}},
		{"a time limit has other names", "submit_s,duration_s,time_limit\n1,2,3\n", []sim.Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1, Limit: 3000}}},
		{"a last line needs no end", "submit_s,duration_s\n1,2", []sim.Job{{ID: "2", Submit: 1000, Duration: 2000, GPUs: 1}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w, err := readTrace("dir/t.csv", strings.NewReader(row.trace))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(w.jobs, row.want) || w.source != "t.csv" || len(w.places) != len(w.jobs) {
				t.Errorf("%+v, want %+v", w.jobs, row.want)
			}
		})
	}
}

func TestBadTracesAreRefusedWithFileAndLine(t *testing.T) {
	const head = "submit_s,duration_s,gpus,gpu_milli\n"
	rows := []struct{ name, trace, want string }{
		{"empty", "", "t.csv: empty: a trace begins with a header, then has a line for each job"},
		{"no column of use", "a,b\n1,2\n", "t.csv:1: there is no column submit_s\nt.csv:1: there is no column duration_s"},
		{"a column by another name", "submit_s,duration\n", "t.csv:1: there is no column duration_s; is it duration?"},
		{"a column twice", "submit_s,duration_s,submit_s\n", "t.csv:1: the column submit_s is there twice"},
		{"no number", head + "1,2,1,1000\n1,soon,1,1000\n", `t.csv:3: duration_s: found "soon", allowed 0 to 1000000000 seconds`},
		{"negative", head + "-1,2,1,\n", `t.csv:2: submit_s: found "-1", allowed 0 to 10000000000 seconds`},
		{"not a number", head + "NaN,2,1,\n", `t.csv:2: submit_s: found "NaN", allowed 0 to 10000000000 seconds`},
		{"infinite", head + "1,+Inf,1,\n", `t.csv:2: duration_s: found "+Inf", allowed 0 to 1000000000 seconds`},
		{"huge", head + "1,1e300,1,\n", `t.csv:2: duration_s: found "1e300", allowed 0 to 1000000000 seconds`},
		{"blank where it must not be", head + "1,,1,\n", `t.csv:2: duration_s: found "", allowed 0 to 1000000000 seconds`},
		{"half a GPU", head + "1,2,0.5,\n", `t.csv:2: gpus: found "0.5", allowed a whole number from 0 to 1000000`},
		{"more than a whole GPU", head + "1,2,1,1500\n", `t.csv:2: gpu_milli: found "1500", allowed a whole number from 0 to 1000`},
		{"too few fields", head + "1,2\n", "t.csv:2: 2 fields, the header has 4"},
		{"too many fields", head + "1,2,1,,\n", "t.csv:2: 5 fields, the header has 4"},
		{"an open quote", head + "1,2,\"1,\n", `t.csv:2: extraneous or missing " in quoted-field`},
		{"a long field is cut", head + strings.Repeat("9x", 50) + ",2,1,\n", `t.csv:2: submit_s: found "` + strings.Repeat("9x", 20) + `…", allowed 0 to 10000000000 seconds`},
		{"the line is right after a quoted line end", "submit_s,duration_s,user\n1,2,\"a\nb\"\n1,x,c\n", `t.csv:4: duration_s: found "x", allowed 0 to 1000000000 seconds`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := readTrace("t.csv", strings.NewReader(row.trace))
			var usage *usageError
			if !errors.As(err, &usage) || usage.what != row.want || usage.hint == "" {
				t.Errorf("got %v\nwant %s", err, row.want)
			}
		})
	}
}

func TestMistakesOfATraceAreToldTogetherUpToABound(t *testing.T) {
	_, err := readTrace("t.csv", strings.NewReader("submit_s,duration_s\n"+strings.Repeat("x,1\n", 25)))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxTraceMistakes+1 || lines[maxTraceMistakes] != "and 15 more" || !strings.HasPrefix(lines[9], "t.csv:11: ") {
		t.Errorf("%q", lines)
	}
}

func TestATraceThatCannotBeReadOnIsNotTakenForAWholeOne(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("submit_s,duration_s\n1,2\n"), &bounded{})
	_, err := readTrace("t.csv", broken)
	if want := "t.csv: larger than 1024 MiB"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestJobsWithoutAGPUAreCountedAndLeftOut(t *testing.T) {
	w, err := readTrace("t.csv", strings.NewReader("submit_s,duration_s,gpus,gpu_milli\n1,2,0,0\n1,2,1,1000\n"))
	if err != nil || len(w.jobs) != 1 || w.leftOut != 1 || w.why != "without a GPU is left out" {
		t.Errorf("%+v, %v", w, err)
	}
}

// someWork is a small lab on a bad day: a sweep, gangs, shares, one job that
// is too large and one that its limit ends.
func someWork() *workload {
	w := &workload{source: "trace.csv", machine: sim.Machine{GPUs: 2, VRAMMiB: 81920}}
	for i := range 30 {
		j := sim.Job{ID: fmt.Sprint(i), User: []string{"ann", "ann", "bob", "<cid>"}[i%4], GPUs: 1 + i%2, Submit: sim.Millis(i * 60_000), Duration: sim.Millis(200_000 + 40_000*(i%7))}
		if i%5 == 0 {
			j.GPUs, j.Share = 1, 0.5
		}
		w.jobs = append(w.jobs, j)
	}
	w.jobs[3].GPUs = 12
	w.jobs[4].Limit = 100_000
	for i := range w.jobs {
		w.places = append(w.places, fmt.Sprintf("line %d", i+2))
	}
	return w
}

func replaysOf(t *testing.T, w *workload, seeds int, names ...string) []replayed {
	t.Helper()
	o := &simulateOptions{policies: names}
	policies, err := o.parsePolicies()
	if err != nil {
		t.Fatal(err)
	}
	replays, err := replayAll(context.Background(), w, policies, seeds, newProgress(io.Discard, time.Now))
	if err != nil {
		t.Fatal(err)
	}
	for i := range replays {
		// What a stopwatch says is different each time.
		replays[i].DecisionP50Ms, replays[i].DecisionP99Ms = 0.01, 0.123
	}
	return replays
}

func TestReplaysSideBySide(t *testing.T) {
	w := someWork()
	for name, seeds := range map[string]int{"simulate": 0, "simulate-seeds": 5} {
		replays := replaysOf(t, w, seeds, "fifo", "backfill", "fair", "default")
		for _, width := range []int{0, 80, 50} {
			var out bytes.Buffer
			if err := drawReplays(screen{out: &out, width: width}, w, replays); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if n := columnsOf(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
					t.Errorf("%s: a line of %d columns on a screen of %d: %s", name, n, width, line)
				}
			}
			golden(t, fmt.Sprintf("%s-%d", name, width), out.Bytes())
		}
	}
}

func TestSeedsGiveTheSameFiguresAgain(t *testing.T) {
	one, other := replaysOf(t, someWork(), 4, "fair"), replaysOf(t, someWork(), 4, "fair")
	if one[0].WaitMeanS != other[0].WaitMeanS || one[0].Interval95["wait_mean_s"] != other[0].Interval95["wait_mean_s"] {
		t.Errorf("%+v\n%+v", one[0].Metrics, other[0].Metrics)
	}
	plainly := replaysOf(t, someWork(), 0, "fair")
	if one[0].WaitMeanS == plainly[0].WaitMeanS || one[0].Interval95["wait_mean_s"] <= 0 || len(plainly[0].Interval95) > 0 {
		t.Errorf("%+v\n%+v", one[0], plainly[0])
	}
}

func TestTheGeneratorIsSplitMix64(t *testing.T) {
	draw := uniform(0)
	// The first numbers of the reference for the seed 0.
	for _, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := draw(); got != float64(want>>11)/(1<<53) {
			t.Errorf("drew %v, want %x", got, want)
		}
	}
}

func TestJSONHasTheFieldsThatScriptsRelyOn(t *testing.T) {
	var out bytes.Buffer
	if err := printJSON(&out, replaysOf(t, someWork(), 0, "default", "fifo")); err != nil {
		t.Fatal(err)
	}
	var objects []map[string]any
	if err := json.Unmarshal(out.Bytes(), &objects); err != nil || len(objects) != 2 {
		t.Fatalf("%v: %s", err, out.String())
	}
	for _, o := range objects {
		for _, name := range strings.Fields(`policy jobs infeasible left_out timed_out users seeds wait_mean_s wait_p50_s wait_p95_s wait_p99_s wait_max_s
			bounded_slowdown_mean flow_mean_s makespan_s gpu_allocated gpu_useful fragmentation jain_users worst_over_median_user
			preemptions decisions decision_p50_ms decision_p99_ms bounds`) {
			if _, found := o[name]; !found {
				t.Errorf("no %s in %v", name, o)
			}
		}
		bounds := o["bounds"].(map[string]any)
		if bounds["flow_mean_s"].(float64) <= 0 || bounds["makespan_s"].(float64) <= 0 || o["jobs"] != 29.0 || o["infeasible"] != 1.0 || o["timed_out"] != 1.0 {
			t.Errorf("%v", o)
		}
	}
}

func TestCSVHasALineForEachPolicy(t *testing.T) {
	replays := replaysOf(t, someWork(), 3, "default", "fifo")
	rows, err := csv.NewReader(bytes.NewReader(replaysCSV(replays))).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%v %v", rows, err)
	}
	value := func(row int, title string) string {
		for i, name := range rows[0] {
			if name == title {
				return rows[row][i]
			}
		}
		t.Fatalf("no column %s in %v", title, rows[0])
		return ""
	}
	if value(1, "policy") != "default" || value(2, "policy") != "fifo" || value(2, "wait_mean_s") != plainNumber(replays[1].WaitMeanS) ||
		value(2, "bound_makespan_s") != plainNumber(replays[1].Bounds.MakespanS) || value(1, "interval95_wait_max_s") != plainNumber(replays[0].Interval95["wait_max_s"]) {
		t.Errorf("%v", rows)
	}
}

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

func TestTheDefaultPolicyIsThatOfASharedDaemon(t *testing.T) {
	p, err := sim.ParsePolicy(sim.Default)
	if err != nil {
		t.Fatal(err)
	}
	if cfg := daemon.DefaultConfig(true); p.Rules != cfg.Rules || p.HalfLife != cfg.HalfLife {
		t.Errorf("%+v, a daemon has %+v and %v", p, cfg.Rules, cfg.HalfLife)
	}
}

func TestHistoryBecomesAWorkload(t *testing.T) {
	views := []job.View{
		{ID: "1", User: "ann", GPUs: 2, Priority: 3, VRAMMiB: to(int64(2048)), SubmittedAt: ago(time.Hour), StartedAt: ago(50 * time.Minute), EndedAt: ago(20 * time.Minute)},
		{ID: "2", User: "bob", GPUs: 1, Share: to(0.5), SubmittedAt: ago(2 * time.Hour), StartedAt: ago(2 * time.Hour), EndedAt: ago(time.Hour)},
		{ID: "3", User: "bob", GPUs: 1, SubmittedAt: ago(3 * time.Hour), EndedAt: ago(2 * time.Hour)},
		{ID: "4", User: "bob", GPUs: 0, SubmittedAt: ago(3 * time.Hour), StartedAt: ago(2 * time.Hour), EndedAt: ago(time.Hour)},
	}
	w := historyWorkload(views)
	want := []sim.Job{
		{ID: "1", User: "ann", GPUs: 2, Priority: 3, VRAMMiB: 2048, Submit: 3_600_000, Duration: 1_800_000},
		{ID: "2", User: "bob", GPUs: 1, Share: 0.5, Duration: 3_600_000},
	}
	if !reflect.DeepEqual(w.jobs, want) || w.leftOut != 2 || w.places[1] != "job 2" {
		t.Errorf("%+v", w)
	}
}

func TestTheMachineOfADaemonIsItsCards(t *testing.T) {
	var said bytes.Buffer
	s := &session{errOut: &said}
	if m := machineOf(s, []api.GPU{{TotalMiB: 40960}, {TotalMiB: 40960}}, false); m != (sim.Machine{GPUs: 2, VRAMMiB: 40960}) || said.Len() > 0 {
		t.Errorf("%+v %s", m, said.String())
	}
	if m := machineOf(s, []api.GPU{{TotalMiB: 40960}, {TotalMiB: 81920}}, false); m.VRAMMiB != 81920 || !strings.Contains(said.String(), "the cards differ") {
		t.Errorf("%+v %s", m, said.String())
	}
}

func TestAnInterruptEndsAReplay(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := replayAll(ctx, someWork(), sim.Policies(), 0, newProgress(io.Discard, time.Now))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// writer is a function that is written to.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

func TestAnInterruptIsHeededInTheMiddleOfAReplay(t *testing.T) {
	w := &workload{machine: sim.Machine{GPUs: 1, VRAMMiB: 1000}}
	for i := range 5000 {
		w.jobs = append(w.jobs, sim.Job{GPUs: 1, Submit: sim.Millis(i), Duration: 1})
	}
	ctx, cancel := context.WithCancel(context.Background())
	now, shown := noon, 0
	p := newProgress(io.Discard, func() time.Time { now = now.Add(time.Second); return now })
	p.out = writer(func(text []byte) {
		if strings.Contains(string(text), "replaying") {
			shown++
		}
		cancel()
	})
	if _, err := replayAll(ctx, w, sim.Policies(), 0, p); !errors.Is(err, context.Canceled) || shown != 1 {
		t.Errorf("%v after %d lines of progress", err, shown)
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

func TestProgressIsForLongReplaysOnATerminal(t *testing.T) {
	now := noon
	var out bytes.Buffer
	p := newProgress(&out, func() time.Time { return now })
	if p.out != nil {
		t.Fatal("a buffer is taken for a terminal")
	}
	p.out, p.total = &out, 200
	p.show("fifo", 10)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("a short replay says %q", out.String())
	}
	now = now.Add(progressAfter)
	p.show("fifo", 10)
	p.show("fifo", 11) // at once: not again
	now, p.past = now.Add(progressEvery), 100
	p.show("fair", 50)
	p.clear()
	if want := "\r\x1b[Kreplaying (fifo): 5 % of 200 jobs\r\x1b[Kreplaying (fair): 75 % of 200 jobs\r\x1b[K"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

func TestThePageOnSchedulingHasEveryPolicyFlagColumnAndFigure(t *testing.T) {
	text, err := os.ReadFile("../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	words := sim.PolicyNames()
	newSimulate().LocalFlags().VisitAll(func(f *pflag.Flag) { words = append(words, "--"+f.Name) })
	for _, c := range traceColumns {
		words = append(words, c.name)
	}
	for _, f := range sim.Figures() {
		words = append(words, f.Name)
	}
	for _, word := range words {
		if !regexp.MustCompile("`"+word+`\b`).Match(text) && word != "--help" {
			t.Errorf("%s is not documented", word)
		}
	}
}

func TestTheExampleReplaysAsThePageSays(t *testing.T) {
	text, err := os.ReadFile("../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if code := Main([]string{"simulate", "../../examples/trace.csv", "--policy", "fifo,backfill,default"}, &out, &errOut); code != 0 || errOut.Len() > 0 {
		t.Fatalf("exit status %d: %s", code, errOut.String())
	}
	shown, _, _ := strings.Cut(out.String(), "GPUs given out")
	if !strings.Contains(string(text), shown) {
		t.Errorf("the page does not have:\n%s", shown)
	}
}
