package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/queue/config"
	"berth/internal/sched"
	"berth/internal/sched/sim"
)

// someWork is a job on each of two cards, one that is too large, and one that
// its limit ends.
func someWork() *sim.Workload {
	return &sim.Workload{Machine: sim.Machine{GPUs: 2, VRAMMiB: 81920}, Places: make([]string, 4), Jobs: []sim.Job{
		{ID: "1", GPUs: 1, Duration: 60_000}, {ID: "2", GPUs: 1, Duration: 90_000}, {ID: "3", GPUs: 12, Duration: 1000}, {ID: "4", GPUs: 2, Duration: 9000, Limit: 5000},
	}}
}

// plainly are the policies with no other flag.
func plainly(policies []sim.Policy) *settings {
	return &settings{policies: policies, changed: func(string) bool { return false }}
}

func TestJSONHasTheFieldsThatScriptsRelyOn(t *testing.T) {
	var out bytes.Buffer
	replays, err := replayAll(t.Context(), someWork(), plainly(sim.Policies()[:2]), 0, newProgress(io.Discard, time.Now))
	if err != nil {
		t.Fatal(err)
	}
	if err := printJSON(&out, replays); err != nil {
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
		if bounds["flow_mean_s"].(float64) <= 0 || bounds["makespan_s"].(float64) <= 0 || o["jobs"] != 3.0 || o["infeasible"] != 1.0 || o["timed_out"] != 1.0 {
			t.Errorf("%v", o)
		}
	}
}

func TestTheDefaultPolicyIsThatOfASharedDaemon(t *testing.T) {
	p, err := sim.ParsePolicy(sim.Default)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default(true)
	cfg.Rules.BorrowTime = 0 // a replay has no limits to lend beyond
	if p.Rules != cfg.Rules || p.HalfLife != cfg.HalfLife {
		t.Errorf("%+v, a daemon has %+v and %v", p, cfg.Rules, cfg.HalfLife)
	}
}

// Who liked a replay wants that order, and not one of the same name.
func TestWhatWasReplayedCanBeSwitchedOnAsThePageSays(t *testing.T) {
	text, err := os.ReadFile("../../docs/howto/what-if.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| what was replayed | config |\n")
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, p := range sim.Policies() {
		_, row, found := strings.Cut(table, "| `"+p.Name+"` |")
		row, _, _ = strings.Cut(row, "\n")
		written := "[scheduling]\n"
		for _, line := range quoted.FindAllStringSubmatch(row, -1) {
			written += line[1] + "\n"
		}
		path := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(path, true, true)
		if err != nil || !found {
			t.Fatalf("%s: %v", written, err)
		}
		if got, want := cfg.Rules, p.Rules; got.Policy != want.Policy || got.Fair != want.Fair || p.HalfLife != 0 && p.HalfLife != cfg.HalfLife || got.MaxBypass != want.MaxBypass {
			t.Errorf("%s is %+v with\n%s", p.Name, got, written)
		}
	}
}

func TestTheMachineOfADaemonIsItsCards(t *testing.T) {
	var said bytes.Buffer
	s := &session.Session{ErrOut: &said}
	if m := machineOf(s, []api.GPU{{TotalMiB: 40960}, {TotalMiB: 40960}}, false); m != (sim.Machine{GPUs: 2, VRAMMiB: 40960}) || said.Len() > 0 {
		t.Errorf("%+v %s", m, said.String())
	}
	if m := machineOf(s, []api.GPU{{TotalMiB: 40960}, {TotalMiB: 81920}}, false); m.VRAMMiB != 81920 || !strings.Contains(said.String(), "the GPUs differ") {
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
	w := &sim.Workload{Machine: sim.Machine{GPUs: 1, VRAMMiB: 1000}}
	for i := range 5000 {
		w.Jobs = append(w.Jobs, sim.Job{GPUs: 1, Submit: sim.Millis(i), Duration: 1})
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
	p.out = &out
	p.show("fifo", 10, 200)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("a short replay says %q", out.String())
	}
	now = now.Add(progressAfter)
	p.show("fifo", 10, 200)
	p.show("fifo", 11, 200) // at once: not again
	now = now.Add(progressEvery)
	p.show("fair", 150, 200)
	p.clear()
	if want := "\r\x1b[Kreplaying (fifo): 5 % of 200 jobs\r\x1b[Kreplaying (fair): 75 % of 200 jobs\r\x1b[K"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

func TestThePageOnSchedulingHasEveryPolicyFlagColumnAndFigure(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	words := sim.PolicyNames()
	newSimulate().LocalFlags().VisitAll(func(f *pflag.Flag) { words = append(words, "--"+f.Name) })
	words = append(words, sim.TraceColumns()...)
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
		{"docs/reference/simulate.md", "--policy fifo,backfill,default", "decisions"},
		{"docs/reference/commands.md", "--policy backfill,fair", "GPU allocation"},
		{"docs/howto/what-if.md", "--policy backfill,fair", "decisions"},
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

func TestWhatSettingAJobAsideCosts(t *testing.T) {
	for text, want := range map[string]sim.Parking{
		"20": {EachWay: 20_000}, "1m": {EachWay: 60_000}, "0": {}, "0.5s": {EachWay: 500},
		"5GB/s": {BytesPerSecond: 5e9}, "800 MiB/s": {BytesPerSecond: 800 << 20}, "1.5g/s": {BytesPerSecond: 1.5e9}, "100b/s": {BytesPerSecond: 100},
		"Measured": {Pace: &sched.FirstPace},
	} {
		if got, err := parsePark(text); err != nil || *got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"x", "-1", "2d", "5GB", "GB/s", "-5GB/s", "0GB/s", "NaNGB/s", "1e30GB/s", "/s", "5/s", "NaN", ""} {
		if got, err := parsePark(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestWhatDurationsAreGuessedFrom(t *testing.T) {
	for text, want := range map[string]sim.Estimates{
		"history": sim.History, "Perfect": sim.Perfect, "limits": sim.Limits, "none": sim.None, "24h": sim.Fixed(24 * time.Hour), "1d": sim.Fixed(24 * time.Hour), "90": sim.Fixed(90 * time.Second),
	} {
		if got, err := parseEstimates(text); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "guess", "-1h", "0"} {
		if got, err := parseEstimates(text); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}
