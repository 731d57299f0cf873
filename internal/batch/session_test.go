package batch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/engine"
	"berth/internal/engine/settings"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
	"berth/internal/sched"
	"berth/internal/store"
	"berth/internal/testkit"
)

// fullDisk is a store that takes nothing while it is full.
type fullDisk struct{ full bool }

func (d *fullDisk) Commit(tx store.Tx) error {
	if d.full {
		return fmt.Errorf("commit: %w", store.ErrFull)
	}
	for i, ev := range tx.Events {
		ev.Seq = int64(i + 1)
	}
	return nil
}
func (d *fullDisk) Job(string) (*job.Job, error)            { return nil, store.ErrNotFound }
func (d *fullDisk) Present() error                          { return nil }
func (d *fullDisk) PeakFor(_, _ string) (int64, int, error) { return 0, 0, nil }

// said is what was printed, line by line.
func said(s *session, out *bytes.Buffer) []string {
	s.screen.flush()
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// newSession is a session with a real store and journal and no engine, whose
// words go to a buffer.
func newSession(t *testing.T, text string) (*session, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	file, err := jobfile.Parse("jobs.txt", []byte(text), job.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := &session{
		opt:  Options{File: "jobs.txt", LogDir: dir, Tolerance: 0.1},
		file: file, store: st, queue: newQueue(), log: silent(),
		screen: &screen{out: &out}, narrator: narrator{tolerance: 0.1, dir: dir, exists: isThere, tail: tailOfLog},
		journal: openTestJournal(t, filepath.Join(dir, "journal.jsonl")),
		watcher: &watcher{}, board: &board{path: filepath.Join(dir, "status.txt"), render: renderBoard}, account: newAccount(time.Now(), 1),
	}
	t.Cleanup(func() { s.screen.finish() })
	return s, &out
}

// past stores jobs of an earlier run, one for each line of the file.
func past(t *testing.T, s *session, states ...job.Outcome) {
	t.Helper()
	var tx store.Tx
	for i, outcome := range states {
		line := s.file.Lines[i]
		j := &job.Job{ID: fmt.Sprint(i + 1), Seq: int64(i + 1), Key: line.Key, Spec: line.Spec, State: job.Queued, Attempt: job.Attempt{Number: 1}}
		if outcome != "" {
			j.State, j.Outcome = outcome.State(), outcome
		}
		tx.Put = append(tx.Put, j)
	}
	if err := s.store.Commit(tx); err != nil {
		t.Fatal(err)
	}
}

func ids(jobs []*job.Job) string {
	var list []string
	for _, j := range jobs {
		list = append(list, j.ID)
	}
	return strings.Join(list, " ")
}

func TestWhatAnEarlierRunLeft(t *testing.T) {
	const file = "a\nb\nc\nd\n"
	tests := []struct {
		name   string
		retry  string
		gone   bool // the line of b is not in the file any more
		marked bool // the line of b is marked cancel
		again  string
		code   int
		says   []string
	}{
		{
			name: "finished work is skipped, old failures are named and count",
			code: 3,
			says: []string{"skipping 1 job that finished in an earlier run (--retry all runs them again): 1", "skipping 1 job cancelled in an earlier run (--retry all runs them again): 3", "job 2 failed in an earlier run [exit:3] — b", "1 old failure"},
		},
		{
			name: "with --retry-failed they run again", retry: RetryFailed, again: "2 3",
			says: []string{"skipping 1 job", "retrying 2 jobs"},
		},
		{
			name: "with --retry all those that finished, too", retry: RetryAll, again: "1 2 3",
			says: []string{"running 3 jobs of an earlier run again"},
		},
		{
			name: "but not one that is marked cancel", retry: RetryFailed, marked: true, again: "3",
			code: 3,
			says: []string{"skipping 1 job", "retrying 1 job", "job 2 failed", "1 old failure"},
		},
		{
			name: "what failed in a line that is gone does not count", gone: true,
			says: []string{"skipping 1 job", "skipping 1 job cancelled"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, out := newSession(t, file)
			past(t, s, job.OK, "exit:3", job.WasCancelled, "")
			s.opt.Retry = test.retry
			if test.marked {
				s.file.Lines[1].Spec.CancelMarked = true
			}
			if test.gone {
				s.file.Lines = slices.Delete(s.file.Lines, 1, 2)
			}
			live, again, err := s.earlier()
			if err != nil {
				t.Fatal(err)
			}
			if ids(live) != "4" || ids(again) != test.again {
				t.Errorf("live %q, again %q", ids(live), ids(again))
			}
			lines := said(s, out)
			if len(lines) != len(test.says) {
				t.Fatalf("it says %q", lines)
			}
			for i, says := range test.says {
				if !strings.Contains(lines[i], says) {
					t.Errorf("it says %q, want %q", lines[i], says)
				}
			}
			s.queue.apply(s.file, newClerk())
			if code, _ := s.queue.status(); code != test.code {
				t.Errorf("exit status %d, want %d", code, test.code)
			}
		})
	}
}

// TestWhichLineAStoredJobIs: what a line executes and its file decide, not what it
// needs. An older berth stored no file, and its keys left the block out.
func TestWhichLineAStoredJobIs(t *testing.T) {
	line := func(text string) *jobfile.Line {
		file, err := jobfile.Parse("f", []byte(text), job.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		return file.Lines[len(file.Lines)-1]
	}
	stored := func(l *jobfile.Line, batch string) *job.Job {
		spec := l.Spec
		spec.Batch = batch
		return &job.Job{Key: l.Key, Spec: spec}
	}
	old := func(text string, occurrence int) *job.Job {
		l := line(text)
		j := stored(l, "")
		j.Key = jobfile.Key(l.Command, occurrence)
		return j
	}
	const another = "[env.SEED=1] run\n[env.SEED=2] run"
	for name, test := range map[string]struct {
		row     *job.Job
		line    string
		anyFile bool
		same    bool
	}{
		"the same line":                               {row: stored(line("run"), "../f"), line: "run", same: true},
		"its name and needs are others":               {row: stored(line("[name=a gpus=2 priority=3] run"), "../f"), line: "[vram=3G] run", same: true},
		"another file":                                {row: stored(line("run"), "../g"), line: "run"},
		"another file, as gpusched":                   {row: stored(line("run"), "../g"), line: "run", anyFile: true, same: true},
		"a variable has another value":                {row: stored(line("[env.SEED=1] run"), "../f"), line: "[env.SEED=2] run"},
		"the variables are in another order":          {row: stored(line("[env.A=1 env.B=2] run"), "../f"), line: "[env.B=2 env.A=1] run", same: true},
		"another directory":                           {row: stored(line("[dir=a] run"), "../f"), line: "[dir=b] run"},
		"another virtual environment":                 {row: stored(line("[venv=a] run"), "../f"), line: "run"},
		"another conda environment":                   {row: stored(line("run"), "../f"), line: "[conda=a] run"},
		"another set-up":                              {row: stored(line("[setup=a] run"), "../f"), line: "[setup=b] run"},
		"another flag for its GPUs":                   {row: stored(line("[inject_gpus=--gpu=local] run"), "../f"), line: "run"},
		"an older berth's line":                       {row: old("run", 1), line: "run", same: true},
		"an older berth's line with a variable":       {row: old("[env.SEED=1] run", 1), line: "[env.SEED=1] run", same: true},
		"an older berth's line with another variable": {row: old("[env.SEED=1] run", 1), line: "[env.SEED=2] run"},
		"an older berth's line, now without":          {row: old("[env.SEED=1] run", 1), line: "run"},
		"an older berth's second line":                {row: old(another, 2), line: another, same: true},
	} {
		known := identities{batch: "../f", anyFile: test.anyFile}
		if same := known.key(test.row) == line(test.line).Key; same != test.same {
			t.Errorf("%s: the same job: %t", name, same)
		}
	}
}

// TestTheNameOfAJobsFile: the same file has the same name however it is written, and
// both it and its logs can be moved.
func TestTheNameOfAJobsFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	testkit.Must(t, os.Mkdir("a", 0o700))
	testkit.Must(t, os.Symlink("a", "link"))
	testkit.Must(t, os.WriteFile("a/jobs.txt", nil, 0o600))
	for _, test := range [][3]string{
		{"a/jobs.txt", "a/berth_logs", "../jobs.txt"},
		{dir + "/a/jobs.txt", "a/berth_logs", "../jobs.txt"},
		{"link/jobs.txt", "a/berth_logs", "../jobs.txt"},
		{"a/jobs.txt", "berth_logs", "../a/jobs.txt"},
		{"/dev/null", "berth_logs", fromPipe},
		{"berth_logs/" + pipedName, "berth_logs", fromPipe},
	} {
		if name := batchOf(test[0], test[1]); name != test[2] {
			t.Errorf("%s with logs in %s is %q, want %q", test[0], test[1], name, test[2])
		}
	}
}

func TestOldFailuresAreNamedUpToABound(t *testing.T) {
	var text strings.Builder
	outcomes := make([]job.Outcome, 50)
	for i := range outcomes {
		fmt.Fprintf(&text, "job %d\n", i)
		outcomes[i] = "exit:1"
	}
	s, out := newSession(t, text.String())
	past(t, s, outcomes...)
	if _, _, err := s.earlier(); err != nil {
		t.Fatal(err)
	}
	lines := said(s, out)
	if len(lines) != maxNamed+2 || !strings.HasSuffix(lines[maxNamed], "and 30 more") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-2:])
	}
}

func TestPublishTellsAndKeeps(t *testing.T) {
	s, out := newSession(t, "a\n")
	s.queue.apply(s.file, newClerk())
	j := started("1", "a", 0)
	tx := store.Tx{Events: []*job.Event{{At: at0, Kind: job.EventStarted, Job: j}}}
	if err := s.store.Commit(tx); err != nil {
		t.Fatal(err)
	}
	s.publish([]job.Event{*tx.Events[0], {At: at0, Kind: job.EventUsage, Job: j, Text: "gpu0:256 MiB"}})
	if got := said(s, out); len(got) != 1 || got[0] != "[15:09:26] job 1 started on gpu [0] (1/1 dispatched, no vram declared: alone on its GPU) — a" {
		t.Errorf("it says %q", got)
	}
	if got := numbers(t, filepath.Join(s.opt.LogDir, "journal.jsonl")); got != "1" {
		t.Errorf("the journal has %s", got)
	}
	if s.queue.counts.running != 1 || !s.changed {
		t.Errorf("counted %+v", s.queue.counts)
	}
	out.Reset()
	s.opt.JSON = true
	s.publish([]job.Event{{At: at0, Kind: job.EventEnded, Job: ended(j, job.OK, time.Second)}})
	s.warn("something")
	if got := said(s, out); len(got) != 2 || !strings.HasPrefix(got[0], `{"time":"2026-03-14T15:09:26Z","event":"ended","job":{"id":"1",`) || !strings.Contains(got[1], `"event":"warning","text":"something"`) {
		t.Errorf("as JSON it says %q", got)
	}
}

func TestATerminalGetsTheSameLinesAsAPipe(t *testing.T) {
	var heard [2]string
	for i, live := range []bool{false, true} {
		s, out := newSession(t, "a\n")
		s.screen.live = live
		s.screen.width, s.screen.height = func() int { return 80 }, func() int { return 24 }
		s.queue.apply(s.file, newClerk())
		s.publish([]job.Event{{At: at0, Kind: job.EventStarted, Job: started("1", "a", 0)}})
		s.publish([]job.Event{{At: at0, Kind: job.EventEnded, Job: ended(started("1", "a", 0), job.OK, time.Second)}})
		s.screen.finish()
		heard[i] = out.String()
	}
	if heard[0] != heard[1] || !strings.Contains(heard[1], "job 1 started on gpu [0]") {
		t.Errorf("a pipe gets:\n%sa terminal:\n%s", heard[0], heard[1])
	}
}

func TestAJournalThatFellBehindIsMendedBeforeItGoesOn(t *testing.T) {
	s, _ := newSession(t, "a\n")
	var tx store.Tx
	for range 3 {
		tx.Events = append(tx.Events, &job.Event{At: at0, Kind: job.EventWarning, Text: "x"})
	}
	if err := s.store.Commit(tx); err != nil {
		t.Fatal(err)
	}
	s.journal.behind = true
	s.keep([]job.Event{*tx.Events[2]})
	if got := numbers(t, filepath.Join(s.opt.LogDir, "journal.jsonl")); got != "1 2 3" {
		t.Errorf("the journal has %s", got)
	}
}

func TestWhatIsOverIsRememberedUpToABound(t *testing.T) {
	s, _ := newSession(t, "a\n")
	for i := range 1000 {
		s.publish([]job.Event{{At: at0, Kind: job.EventEnded, Job: ended(started(fmt.Sprint(i), "x"), job.OK, 0)}})
	}
	if len(s.ended) > 2*boardEnded || s.ended[len(s.ended)-1].ID != "999" {
		t.Errorf("%d are remembered, the last is %s", len(s.ended), s.ended[len(s.ended)-1].ID)
	}
}

// turn asks whether all is done.
func (s *session) turn(f func(*engine.Turn) bool) (done bool) {
	s.engine.Outside(time.Now(), func(t *engine.Turn) { done = f(t) })
	return done
}

func TestBerthStaysUntilTheLastEndIsOnDisk(t *testing.T) {
	s, _ := newSession(t, "a\n")
	disk := &fullDisk{full: true}
	s.engine = engine.New(engine.Config{Settings: settings.Settings{Rules: sched.DefaultRules()}, Publish: s.publish}, disk, nil, nil, nil, nil, 0)
	s.engine.Outside(at0, func(t *engine.Turn) { s.queue.apply(s.file, requestsOf(t)) })
	s.engine.Outside(at0, func(t *engine.Turn) { t.Requests().Cancel("1", "asked") }) // its end is known, and cannot be written down
	if err := s.engine.Step(at0); !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	if s.turn(s.after) {
		t.Error("it ends, with an exit status that does not know of the end")
	}
	disk.full = false
	if err := s.engine.Step(at0); err != nil {
		t.Fatal(err)
	}
	if !s.turn(s.after) {
		t.Error("it stays though all is over")
	}
	if code, _ := s.queue.status(); code != 0 {
		t.Errorf("exit status %d for a job that the user cancelled", code)
	}
	s.opt.Watch = true
	if s.turn(s.after) {
		t.Error("with --watch it ends")
	}
	s.interrupted = 1
	if !s.turn(s.after) {
		t.Error("interrupted with nothing running, it stays")
	}
	if text := testkit.Read(t, s.board.path); !strings.Contains(text, "✗ job 1  cancelled") {
		t.Errorf("the board has %q", text)
	}
}

func TestTheBoardIsAtMostAPollBehind(t *testing.T) {
	s, _ := newSession(t, "a\n")
	s.opt.Poll, s.opt.Watch = time.Hour, true
	s.engine = engine.New(engine.Config{Settings: settings.Settings{Rules: sched.DefaultRules()}, Publish: s.publish}, &fullDisk{}, nil, nil, nil, nil, 0)
	s.engine.Outside(at0, func(t *engine.Turn) { s.queue.apply(s.file, requestsOf(t)) })
	s.turn(s.after) // which writes the board
	s.engine.Outside(at0, func(t *engine.Turn) { t.Requests().Cancel("1", "asked") })
	if err := s.engine.Step(at0); err != nil {
		t.Fatal(err)
	}
	s.turn(s.after) // too soon after the last time
	if text := testkit.Read(t, s.board.path); strings.Contains(text, "1/1 done") {
		t.Fatalf("the board is written again within a poll:\n%s", text)
	}
	s.engine.Outside(time.Now(), s.refresh)
	if text := testkit.Read(t, s.board.path); !strings.Contains(text, "1/1 done") {
		t.Errorf("a poll later the board has:\n%s", text)
	}
	testkit.Write(t, s.board.path, "untouched")
	s.engine.Outside(time.Now(), s.refresh)
	if text := testkit.Read(t, s.board.path); text != "untouched" {
		t.Errorf("with nothing new it is written:\n%s", text)
	}
}

func TestChooseCards(t *testing.T) {
	sample := gpu.Sample{Devices: []gpu.Device{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b"}, {Index: 3, UUID: "GPU-d"}}}
	parted := gpu.Sample{Devices: []gpu.Device{{Index: 0, UUID: "GPU-a"},
		{Index: 200, UUID: "MIG-b", Part: &gpu.Part{Of: 1}}, {Index: 201, UUID: "MIG-c", Part: &gpu.Part{Of: 1}}}}
	tests := []struct {
		name   string
		flag   []int
		env    []string
		sample gpu.Sample
		want   string
		code   int
		says   string
	}{
		{name: "all of them", sample: sample, want: "0,1,3"},
		{name: "those of --gpus, in that order", flag: []int{3, 0}, sample: sample, want: "3,0"},
		{name: "--gpus wins over what is inherited", flag: []int{1}, env: []string{"CUDA_VISIBLE_DEVICES=0"}, sample: sample, want: "1"},
		{name: "--gpus names one that is not there", flag: []int{2}, sample: sample, code: 2, says: "this machine has 0, 1, 3"},
		{name: "those that are inherited", env: []string{"CUDA_VISIBLE_DEVICES=3, 1"}, sample: sample, want: "3,1"},
		{name: "by their UUID too", env: []string{"CUDA_VISIBLE_DEVICES=GPU-b"}, sample: sample, want: "1"},
		{name: "the last of two variables counts", env: []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"}, sample: sample, want: "1"},
		{name: "an inherited one that is not there", env: []string{"CUDA_VISIBLE_DEVICES=7"}, sample: sample, code: 2, says: `names "7"`},
		{name: "none may be used", env: []string{"CUDA_VISIBLE_DEVICES="}, sample: sample, code: 1, says: "is empty"},
		{name: "none may be used, as CUDA is told that", env: []string{"CUDA_VISIBLE_DEVICES=-1"}, sample: sample, code: 1, says: "is -1, so no GPU may be used"},
		{name: "one is named twice", env: []string{"CUDA_VISIBLE_DEVICES=0,0"}, sample: sample, code: 2, says: "names GPU 0 twice: 0,0"},
		{name: "one is named twice, once by its UUID", env: []string{"CUDA_VISIBLE_DEVICES=1,GPU-b"}, sample: sample, code: 2, says: "names GPU 1 twice"},
		{name: "one of them is -1", env: []string{"CUDA_VISIBLE_DEVICES=0,-1"}, sample: sample, code: 2, says: `names "-1"`},
		{name: "a part by its UUID", env: []string{"CUDA_VISIBLE_DEVICES=MIG-c"}, sample: parted, want: "201"},
		{name: "--gpus names a card that is in parts", flag: []int{1}, sample: parted, code: 2, says: "GPU 1, which is partitioned; its parts are 200, 201"},
		{name: "an inherited one that is in parts", env: []string{"CUDA_VISIBLE_DEVICES=1"}, sample: parted, code: 2, says: `names "1", which is partitioned`},
		{name: "none can be read", sample: gpu.Sample{Faults: []gpu.Fault{{Text: "fell off the bus"}}}, code: 1, says: "no GPU of this machine can be read: fell off the bus"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &session{opt: Options{GPUs: test.flag, Env: test.env}}
			err := s.chooseCards(test.sample)
			if test.says == "" {
				if err != nil || (job.Grant{GPUs: s.cards}).List() != test.want {
					t.Errorf("cards %v, %v", s.cards, err)
				}
				return
			}
			p, ok := errors.AsType[*problem.Problem](err)
			if !ok || p.Kind.ExitStatus() != test.code || !strings.Contains(p.What, test.says) {
				t.Fatalf("it says %v", err)
			}
			if test.env != nil && p.Hint != "unset it, or choose GPUs with --gpus" {
				t.Errorf("the hint is %q", p.Hint)
			}
		})
	}
}
