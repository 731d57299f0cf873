package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/daemon"
	"berth/internal/job"
	"berth/internal/sim"
)

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
	replays, err := replayAll(context.Background(), w, plainly(policies), seeds, newProgress(io.Discard, time.Now))
	if err != nil {
		t.Fatal(err)
	}
	for i := range replays {
		// What a stopwatch says is different each time.
		replays[i].DecisionP50Ms, replays[i].DecisionP99Ms = 0.01, 0.123
	}
	return replays
}

// plainly are the policies with no other flag.
func plainly(policies []sim.Policy) *settings {
	return &settings{policies: policies, changed: func(string) bool { return false }}
}

// someFigures are of four policies, one of which sets jobs aside: made up, as
// how they are shown does not depend on how well berth decides.
func someFigures(seeds int) []replayed {
	var replays []replayed
	for i, name := range []string{"fifo", "backfill", "conservative", "default"} {
		part := 1 / float64(1+i)
		r := replayed{Seeds: seeds, Metrics: sim.Metrics{
			Policy: name, Jobs: 29, Users: 3, WaitMeanS: 205149 * part, WaitP50S: 3600 * part, WaitP95S: 86400 * part, WaitP99S: 90000 * part, WaitMaxS: 369629 * part,
			BoundedSlowdownMean: 4389 * part, FlowMeanS: 210000 * part, MakespanS: 700000 * part, GPUAllocated: 0.9 - part/4, GPUUseful: 0.85 - part/4,
			Fragmentation: 0.004 * part, JainUsers: 1 - part, WorstOverMedianUser: 12 * part, Decisions: 1000 + float64(i), DecisionP50Ms: 0.01, DecisionP99Ms: 0.123,
			Bounds: sim.Bounds{FlowMeanS: 1178, MakespanS: 160000},
		}}
		if name == "default" {
			r.Preemptions, r.GPULost = 1234, 0.0123
		}
		if seeds > 1 {
			r.Interval95 = map[string]float64{"wait_mean_s": r.WaitMeanS / 20, "makespan_s": r.MakespanS / 50}
		}
		replays = append(replays, r)
	}
	return replays
}

func TestReplaysSideBySide(t *testing.T) {
	w := someWork()
	for name, seeds := range map[string]int{"simulate": 0, "simulate-seeds": 5} {
		replays := someFigures(seeds)
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
			unfinished gpu_lost ooms preemptions decisions decision_p50_ms decision_p99_ms bounds`) {
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

func TestAFigureIsRoundedToWhatIsWrittenOfIt(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0s", 0.04: "0s", 9: "9s", 5.922: "5.9s", 9.96: "10s", 59.6: "1m00s", 3599.7: "1h00m", 7199: "2h00m", 7169: "1h59m", 86399: "1d0h", 100_000: "1d4h",
	} {
		if got := figureText(sim.Seconds, seconds); got != want {
			t.Errorf("%g s: %s, not %s", seconds, got, want)
		}
	}
}

func TestAFigureThatRoundsToNothingHasNoMargin(t *testing.T) {
	r := &replayed{Interval95: map[string]float64{"fragmentation": 0.0014, "gpu_allocated": 0.05}}
	r.Fragmentation, r.GPUAllocated = 0.0003, 0.5
	for _, f := range sim.Figures() {
		want := map[string]string{"fragmentation": "0.0 %", "gpu_allocated": "50.0 % ±10%"}[f.Name]
		if got := figureCell(&f, r); want != "" && got != want {
			t.Errorf("%s: %s, not %s", f.Name, got, want)
		}
	}
}

func TestCSVHasALineForEachPolicy(t *testing.T) {
	replays := replaysOf(t, someWork(), 3, "default", "fifo")
	replays[0].Unfinished, replays[0].LeftOut = 7, 3
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
		value(1, "unfinished") != "7" || value(1, "left_out") != "3" || value(2, "bound_makespan_s") != plainNumber(replays[1].Bounds.MakespanS) || value(1, "interval95_wait_max_s") != plainNumber(replays[0].Interval95["wait_max_s"]) {
		t.Errorf("%v", rows)
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

// Who liked a replay wants that order, and not one of the same name.
func TestWhatWasReplayedCanBeSwitchedOnAsThePageSays(t *testing.T) {
	text, err := os.ReadFile("../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| what was replayed | config |\n")
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, p := range sim.Policies() {
		_, row, found := strings.Cut(table, "| `"+p.Name+"` |")
		row, _, _ = strings.Cut(row, "\n")
		config := "[scheduling]\n"
		for _, line := range quoted.FindAllStringSubmatch(row, -1) {
			config += line[1] + "\n"
		}
		path := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := daemon.LoadConfig(path, true, true)
		if err != nil || !found {
			t.Fatalf("%s: %v", config, err)
		}
		if got, want := cfg.Rules, p.Rules; got.Policy != want.Policy || got.Fair != want.Fair || p.HalfLife != 0 && p.HalfLife != cfg.HalfLife || got.MaxBypass != want.MaxBypass {
			t.Errorf("%s is %+v with\n%s", p.Name, got, config)
		}
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
	_, err := replayAll(ctx, someWork(), plainly(sim.Policies()), 0, newProgress(io.Discard, time.Now))
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
	if _, err := replayAll(ctx, w, plainly(sim.Policies()), 0, p); !errors.Is(err, context.Canceled) || shown != 1 {
		t.Errorf("%v after %d lines of progress", err, shown)
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

func TestTheExampleReplaysAsThePagesSay(t *testing.T) {
	for _, page := range []struct{ file, flags, until string }{
		{"docs/scheduling.md", "--policy fifo,backfill,default", "GPUs given out"},
		{"docs/commands.md", "--policy backfill,fair", "GPUs given out"},
		{"README.md", "--policy backfill,fair", "GPUs given out"},
	} {
		text, err := os.ReadFile("../../" + page.file)
		if err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		if code := Main(append([]string{"simulate", "../../examples/trace.csv"}, strings.Fields(page.flags)...), &out, &errOut); code != 0 {
			t.Fatalf("exit status %d: %s", code, errOut.String())
		}
		shown, _, found := strings.Cut(out.String(), page.until)
		shown = "$ berth simulate examples/trace.csv " + page.flags + "\n" + shown
		if !found || !strings.Contains(evenly(string(text)), evenly(shown)) {
			t.Errorf("%s does not have:\n%s", page.file, shown)
		}
	}
}

var spaces = regexp.MustCompile(` +`)

// evenly takes out how wide columns are: a decision that took longer than usual
// makes its own wider.
func evenly(text string) string { return spaces.ReplaceAllString(text, " ") }
