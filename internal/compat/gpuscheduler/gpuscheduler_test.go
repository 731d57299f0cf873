package gpuscheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/sched"
	"berth/internal/tests/testkit"
)

func TestStartHasTheDefaultsOfItsREADME(t *testing.T) {
	// seeds: S2 S3 S4 S5 S7 S8 S9 S10 S11 S12 S24
	t.Setenv("BERTH_SIM", "3")
	o, err := parseStart(usualStateFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		stateFile: "gpu_scheduler_state.json", jobsFile: "jobs.txt", llmConfig: "llm_config.json",
		memThreshold: 0.8, loadLimit: 0.8, monitorEvery: 30 * time.Second, stateEvery: 20 * time.Second,
		maxAttempts: 5, retryWait: 5 * time.Second, sim: 3,
	}
	if o != want {
		t.Errorf("got  %+v\nwant %+v", o, want)
	}
	if o, err = parseStart("a.json", []string{"--gpus", "4", "--jobs-file=", "--state-file", "b.json", "--screen"}); err != nil || o.gpus != 4 || o.jobsFile != "" || o.stateFile != "b.json" || !o.screen {
		t.Errorf("%+v, %v", o, err)
	}
	cfg := config.Default(false)
	o.rules(&cfg)
	r := cfg.Rules
	if r.Placement != sched.Spread || r.Policy != sched.Backfill || !(r.MemThreshold < 0.8 && r.MemThreshold > 0.8-1e-9) || r.LoadThreshold != r.MemThreshold || !r.LoadAlways {
		t.Errorf("rules %+v", r)
	}
	if !reflect.DeepEqual(cfg.GPUs, []int{0, 1, 2, 3}) || cfg.History != 0 {
		t.Errorf("cards %v, history %v", cfg.GPUs, cfg.History)
	}
}

func TestTheStateFileIsTakenBeforeTheCommand(t *testing.T) {
	// seeds: S5
	for _, row := range []struct{ args, file, rest, wrong string }{
		{"status", usualStateFile, "status", ""},
		{"--state-file a.json status --json", "a.json", "status --json", ""},
		{"--state-file=b.json pause 1", "b.json", "pause 1", ""},
		{"--state-file", "", "", "needs a path"},
		{"--state-file= status", "", "", "needs a path"},
		{"--gpus 3 start", "", "", "unknown flag --gpus"},
	} {
		file, rest, err := leading(strings.Fields(row.args))
		if row.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), row.wrong) {
				t.Errorf("%s: %v", row.args, err)
			}
			continue
		}
		if err != nil || file != row.file || strings.Join(rest, " ") != row.rest {
			t.Errorf("%s: %q %q %v", row.args, file, rest, err)
		}
	}
}

func TestWhichLinesAreDue(t *testing.T) {
	// seeds: S35 S36 S37 R8 R11
	settled, failed := tried{runs: 1, settled: true}, tried{runs: 1}
	for _, row := range []struct {
		what, file string
		known      map[string]tried // by arguments
		gone       map[string]int
		want       string // arguments of what is queued
	}{
		{"new lines, in their order", "0,s,,b\n0,s,,a", nil, nil, "b|a"},
		{"the same line twice is one job", "0,s,,a\n1,s,,a", nil, nil, "a"},
		{"other arguments in another order are another job", "0,s,,a b\n0,s,,b a", nil, nil, "a b|b a"},
		{"what waits, runs or succeeded is not due", "0,s,,a\n0,s,,b", map[string]tried{"a": settled}, nil, "b"},
		{"however often it is added", "0,s,,a\n0,s,,a\n0,s,,a", map[string]tried{"a": settled}, nil, ""},
		{"what failed is not due by itself", "0,s,,a", map[string]tried{"a": failed}, nil, ""},
		{"but added once more it is", "0,s,,a\n0,s,,a", map[string]tried{"a": failed}, nil, "a"},
		{"once for each time", "0,s,,a\n0,s,,a", map[string]tried{"a": {runs: 2}}, nil, ""},
		{"and after it was taken out", "0,s,,a", map[string]tried{"a": failed}, map[string]int{"a": 1}, "a"},
		{"once", "0,s,,a", map[string]tried{"a": {runs: 2}}, map[string]int{"a": 1}, ""},
	} {
		lines, err := jobfile.ParseCSV("jobs.txt", []byte(row.file))
		if err != nil {
			t.Fatal(err)
		}
		key := func(arguments string) string {
			one, err := jobfile.ParseCSV("", []byte("0,s,,"+arguments))
			if err != nil {
				t.Fatal(err)
			}
			return one[0].Key()
		}
		known, gone := map[string]tried{}, map[string]int{}
		for arguments, value := range row.known {
			known[key(arguments)] = value
		}
		for arguments, n := range row.gone {
			gone[key(arguments)] = n
		}
		var got []string
		for _, line := range due(lines, func(key string) tried { return known[key] }, gone) {
			got = append(got, line.Arguments)
		}
		if strings.Join(got, "|") != row.want {
			t.Errorf("%s: queued %q, want %q", row.what, got, row.want)
		}
	}
}

func TestRetryWaitsGrowToABound(t *testing.T) {
	// seeds: S12 S45
	var got []string
	for tries := 1; tries <= 6; tries++ {
		got = append(got, retryWait(5*time.Second, tries).String())
	}
	if want := "5s 10s 20s 30s 30s 30s"; strings.Join(got, " ") != want {
		t.Errorf("waits %v, want %s", got, want)
	}
	if got := retryWait(time.Minute, 3); got != time.Minute {
		t.Errorf("with a base of one minute the wait is %v", got)
	}
}

func TestCardsAreAvailableBusyOrPaused(t *testing.T) {
	// seeds: S25
	util := func(f float64) *float64 { return &f }
	limits := thresholds{Memory: 0.8, Load: 0.8}
	for _, row := range []struct {
		card api.GPU
		want string
	}{
		{api.GPU{}, "AVAILABLE 0.00"},
		{api.GPU{UsedMiB: 79, Util: util(79)}, "AVAILABLE 0.00"},
		{api.GPU{UsedMiB: 80}, "BUSY(80%) 0.00"},
		{api.GPU{Util: util(80)}, "BUSY(80%) 0.00"},
		{api.GPU{Util: util(95)}, "BUSY(95%) 0.00"},
		{api.GPU{Jobs: []api.GPUJob{{Share: 0.5}}}, "BUSY(50%) 0.50"},
		{api.GPU{Jobs: []api.GPUJob{{Share: 0.5}, {Share: 0.5}}}, "BUSY(100%) 1.00"},
		{api.GPU{Jobs: []api.GPUJob{{}}}, "BUSY(100%) 1.00"},
		{api.GPU{Paused: true, Jobs: []api.GPUJob{{}}}, "PAUSED 1.00"},
		{api.GPU{Health: "quarantined", HealthReason: "Xid 79"}, "BUSY(0%) 0.00"},
	} {
		row.card.TotalMiB = 100
		if row.card.Health == "" {
			row.card.Health = api.HealthOK
		}
		card := showCards([]api.GPU{row.card}, limits)[0]
		if got := fmt.Sprintf("%s %.2f", card.Status, card.Allocation); got != row.want {
			t.Errorf("%+v: %s, want %s", row.card, got, row.want)
		}
	}
}

func TestPausedCardsAreReadAsPeopleWriteThem(t *testing.T) {
	// seeds: S39
	for text, want := range map[string]string{
		`{}`:                                "[] ",
		`{"paused_gpus": []}`:               "[] ",
		`{"paused_gpus": [2, 0, 2]}`:        "[0 2] ",
		`{"paused_gpus": ["1"]}`:            "[1] ",
		`{"paused_gpus": [-1]}`:             `[] paused_gpus: expected a GPU id, found "-1"`,
		`{"paused_gpus": [0.5]}`:            `[] paused_gpus: expected a GPU id, found "0.5"`,
		`{"paused_gpus": ["all"]}`:          `[] paused_gpus: expected a GPU id, found "all"`,
		`{"paused_gpus": {"0": true}}`:      `[] paused_gpus: json: cannot unmarshal object into Go value of type []interface {}`,
		`{"paused_gpus": [1], "other": {}}`: "[1] ",
	} {
		doc := document{}
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		list, err := doc.paused()
		got := fmt.Sprint(list, " ")
		if err != nil {
			got += err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestManyPausesAtOnceAreAllKept: each takes the lock, reads, and writes.
func TestManyPausesAtOnceAreAllKept(t *testing.T) {
	// seeds: R16
	t.Setenv("BERTH_SIM", "8")
	t.Chdir(t.TempDir())
	if err := os.WriteFile(usualStateFile, []byte(`{"mine": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for index := range 8 {
		wait.Go(func() {
			if _, err := setPaused(usualStateFile, index, true); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	doc, _, err := readDoc(usualStateFile)
	if err != nil {
		t.Fatal(err)
	}
	list, err := doc.paused()
	if err != nil || len(list) != 8 || string(doc["mine"]) != "1" {
		t.Errorf("paused %v, %v; beside it %s", list, err, doc["mine"])
	}
	info, err := os.Stat(usualStateFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode was changed: %v, %v", info.Mode(), err)
	}
}

// TestAnEditIsNotOverruled: editors take no lock, and theirs may come between
// the reading and the writing of others.
func TestAnEditIsNotOverruled(t *testing.T) {
	// seeds: S39 R16
	t.Chdir(t.TempDir())
	put := func(text string) {
		if err := os.WriteFile("edited", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename("edited", usualStateFile); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		what, before string
		edit         func()
		want         error
	}{
		{"another file in its place", `{"paused_gpus": [1]}`, func() { put(`{"paused_gpus": [2]}`) }, errEdited},
		{"a new one where none was", "", func() { put(`{"paused_gpus": [2]}`) }, errEdited},
		{"deleted", `{"paused_gpus": [1]}`, func() { os.Remove(usualStateFile) }, errEdited},
		{"nobody", `{"paused_gpus": [1]}`, func() {}, nil},
	} {
		os.Remove(usualStateFile)
		if row.before != "" {
			put(row.before)
		}
		doc, stamp, err := readDoc(usualStateFile)
		if doc == nil {
			doc = document{}
		}
		if err != nil && row.before != "" {
			t.Fatal(err)
		}
		row.edit()
		edited, _ := os.ReadFile(usualStateFile)
		written, err := doc.write(usualStateFile, stamp)
		if !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.what, err, row.want)
		}
		if now, _ := os.ReadFile(usualStateFile); row.want != nil && string(now) != string(edited) {
			t.Errorf("%s: the edit %q was replaced by %q", row.what, edited, now)
		}
		if row.want == nil && !sameStamp(written, stampOf(usualStateFile)) {
			t.Errorf("%s: its own writing looks like an edit", row.what)
		}
		if left, _ := filepath.Glob(".*"); len(left) > 0 {
			t.Errorf("%s: left behind %v", row.what, left)
		}
	}
}

// TestAPauseJustBeforeTheEndIsKept: the daemon is gone when the state file is
// saved for the last time.
func TestAPauseJustBeforeTheEndIsKept(t *testing.T) {
	// seeds: S38 R16
	for _, row := range []struct {
		what              string
		file              string
		last, now, expect []int
	}{
		{"nothing happened", "[1]", []int{1}, []int{1}, []int{1}},
		{"paused in the file", "[1, 2]", []int{1}, []int{1}, []int{1, 2}},
		{"resumed in the file", "[]", []int{1}, []int{1}, nil},
		{"paused by other means", "[1]", []int{1}, []int{0, 1}, []int{0, 1}},
		{"resumed by other means", "[1]", []int{1}, nil, nil},
		{"in both", "[1, 2]", []int{1}, []int{1, 2}, []int{1, 2}},
	} {
		t.Chdir(t.TempDir())
		if err := os.WriteFile(usualStateFile, []byte(`{"paused_gpus": `+row.file+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		m := &mirror{shared: shared{opt: options{stateFile: usualStateFile}, index: newIndex(), log: &logger{out: &out}}, paused: row.last}
		for _, index := range row.now {
			m.index.cards = append(m.index.cards, api.GPU{Index: index, Paused: true})
		}
		testkit.Must(t, m.lastSave())
		doc, _, err := readDoc(usualStateFile)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := doc.paused(); !slices.Equal(got, row.expect) || doc[keyUpdated] == nil {
			t.Errorf("%s: left %v, want %v; %s", row.what, got, row.expect, out.String())
		}
	}
}

func TestReasonsCallJobsWhatPeopleDo(t *testing.T) {
	known := map[string]job.View{"1": {Name: "train.py-3f2a9c1b5d6e7f80"}}
	got := inItsIDs("gpu0 runs job 1, gpu1 runs job 12", known)
	if want := "gpu0 runs job 3f2a9c1b, gpu1 runs job 12"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOutputIsWholeLinesOfOneJob(t *testing.T) {
	// seeds: S34
	var out bytes.Buffer
	log := &logger{out: &out}
	a, b := log.output("[a] "), log.output("[b] ")
	for _, piece := range []struct {
		to   *frontend.Lines
		text string
	}{{a, "one\ntw"}, {b, "other\n"}, {a, "o\n10%\r20%\r"}, {b, "no end"}} {
		fmt.Fprint(piece.to, piece.text)
	}
	b.Flush("\n")
	if got, want := out.String(), "[a] one\n[b] other\n[a] two\n[a] 10%\r[a] 20%\r[b] no end\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLogsOfJobsGoWhereOnlyTheUserWrites(t *testing.T) {
	// seeds: S30
	t.Setenv("TMPDIR", t.TempDir())
	usual := filepath.Join(os.TempDir(), "gpu_scheduler_logs")
	if dir, moved, err := outputDir(); err != nil || moved || dir != usual {
		t.Errorf("%s %v %v", dir, moved, err)
	}
	if err := os.Chmod(usual, 0o777); err != nil {
		t.Fatal(err)
	}
	if dir, moved, err := outputDir(); err != nil || !moved || dir != fmt.Sprintf("%s_%d", usual, os.Getuid()) {
		t.Errorf("others can write to the usual place: %s %v %v", dir, moved, err)
	}
}

func TestEachCtrlCSaysWhatTheNextOneDoes(t *testing.T) {
	var out bytes.Buffer
	file, err := site.OpenLog(filepath.Join(t.TempDir(), "log"), site.LogBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := &scheduler{shared: shared{log: &logger{out: &out, file: file}, index: newIndex()}}
	s.index.put(job.View{ID: "1", Name: "a.py-1", State: job.Running})
	for _, want := range []string{"once more: without waiting", "once more: exits"} {
		out.Reset()
		if s.stop(os.Interrupt); !strings.Contains(out.String(), want) {
			t.Errorf("it says %q, without %q", out.String(), want)
		}
	}
}
