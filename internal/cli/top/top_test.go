package top

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/tests/testkit"
	"berth/internal/text"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func pointer[T any](v T) *T { return &v }

func ago(d time.Duration) *time.Time { return pointer(noon.Add(-d)) }

// aLab is a model of a busy machine with hostile names.
func aLab(s Screen) model {
	m := newModel(s, noon)
	feed := func(msg any) { m, _ = update(m, msg) }
	feed(tickMsg{noon})
	feed(userMsg{"ann"})
	feed(gpusMsg{GPUs: []api.GPU{
		{Index: 0, TotalMiB: 24576, UsedMiB: 20480, Util: pointer(97.0), TemperatureC: pointer(71.0), Health: "ok",
			Jobs: []api.GPUJob{{ID: "17", UsedMiB: pointer[int64](12288)}, {ID: "18_0", UsedMiB: pointer[int64](6144)}}},
		{Index: 1, TotalMiB: 24576, Health: "ok", Paused: true},
		{Index: 2, TotalMiB: 24576, UsedMiB: 2048, Util: pointer(3.0), Health: "quarantined"},
	}})
	feed(samplesMsg{GPU: 0, Samples: api.Samples{Tracks: []api.SampleTrack{{Points: []api.SamplePoint{
		{At: noon.Add(-20 * time.Minute), Util: pointer(10.0), AfterGap: true}, {At: noon.Add(-10 * time.Minute), Util: pointer(50.0)}, {At: noon.Add(-time.Second), Util: pointer(97.0)}}}}}})
	feed(queueMsg{Query: m.query(), Page: api.JobPage{
		Counts: map[string]int{"running": 2, "queued": 10_002, "parked": 1}, Matching: map[string]int{"running": 2, "queued": 10_002, "parked": 1},
		Arrays: map[string]api.Tasks{"18": {Counts: map[string]int{"running": 1, "queued": 9_999}}},
		Jobs: []job.View{
			{ID: "17", Name: "train", User: "ann", State: job.Running, GPUs: 1, GPUIDs: []int{0}, VRAMMiB: pointer[int64](16384), PeakVRAMMiB: map[string]int64{"0": 12288},
				Command: pointer("python train.py --seed 1"), SubmittedAt: ago(time.Hour), StartedAt: ago(50 * time.Minute), Priority: 5},
			{ID: "18_0", Name: "sweep", User: "bob", State: job.Running, GPUs: 1, GPUIDs: []int{0}, VRAMMiB: pointer[int64](6144), SubmittedAt: ago(time.Hour), StartedAt: ago(90 * time.Second)},
			{ID: "20", Name: "parked-one", User: "ann", State: job.Parked, GPUs: 1, SubmittedAt: ago(26 * time.Hour), StartedAt: ago(25 * time.Hour), Reason: pointer("parked by ann until unparked")},
			{ID: "21", Name: "evil\x1b]0;pwned\x07\u202ename", User: "eve", State: job.Queued, GPUs: 2, SubmittedAt: ago(2 * time.Minute), Reason: pointer("needs 2 GPUs with 18432 MiB free; gpu1 is paused")},
			{ID: "22", Name: "held-one", User: "ann", State: job.Queued, Held: true, GPUs: 0, Share: pointer(0.5), SubmittedAt: ago(time.Minute)},
		},
	}})
	feed(whyMsg{ID: "21", Why: api.Why{Story: reason.Story{ID: "21", Expected: &reason.Forecast{Now: noon, Low: noon.Add(time.Minute), Mid: noon.Add(14 * time.Minute), High: noon.Add(time.Hour)}}}})
	feed(jobMsg{ID: "17", Detail: api.Detail{View: job.View{ID: "17"}, Events: []api.Event{{Time: noon.Add(-50 * time.Minute), Kind: job.EventStarted}}},
		Samples: &api.Samples{From: noon.Add(-time.Hour), To: noon, DeclaredMiB: pointer[int64](16384), Tracks: []api.SampleTrack{{Points: []api.SamplePoint{
			{At: noon.Add(-50 * time.Minute), VRAMMiB: pointer[int64](1024), AfterGap: true}, {At: noon.Add(-40 * time.Minute), VRAMMiB: pointer[int64](12288)}, {At: noon, VRAMMiB: pointer[int64](10240)}}}}}})
	feed(logMsg{ID: "17", Data: []byte("epoch 1: loss 0.31\n\x1b[32mepoch 2\x1b[0m: loss 0.29\nprogress 10%\rprogress 90%\n\x1b[2J\x1b]52;c;ZXZpbA==\x07\tlast line")})
	return m
}

func TestFrames(t *testing.T) {
	for name, s := range map[string]Screen{
		"80x24": {80, 24, false, false}, "120x40": {120, 40, false, false}, "200x60": {200, 60, false, false},
		"80x24-ascii": {80, 24, false, true}, "80x24-colour": {80, 24, true, false},
	} {
		testkit.Golden(t, filepath.Join("testdata", name+".golden"), []byte(draw(aLab(s))+"\n"))
	}
	m, _ := update(aLab(Screen{Width: 80, Height: 24}), keyMsg{"?"})
	testkit.Golden(t, filepath.Join("testdata", "help.golden"), []byte(draw(m)+"\n"))
	m, _ = update(aLab(Screen{Width: 80, Height: 24}), keyMsg{"enter"})
	testkit.Golden(t, filepath.Join("testdata", "log.golden"), []byte(draw(m)+"\n"))
}

// TestEveryFrameFits: whatever is pressed on a screen of whatever size, the frame
// fits it, and nothing of a name or a log reaches the terminal as it is.
func TestEveryFrameFits(t *testing.T) {
	keys := []string{"x", "é", "y", "n", "esc", "enter", "backspace", "space"}
	for _, k := range keyHelp {
		keys = append(keys, strings.Fields(k.keys)...)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := Screen{Width: rapid.IntRange(1, 220).Draw(t, "width"), Height: rapid.IntRange(1, 70).Draw(t, "height"), ASCII: rapid.Bool().Draw(t, "ascii")}
		m := aLab(s)
		for range rapid.IntRange(0, 12).Draw(t, "events") {
			var msg any = keyMsg{rapid.SampledFrom(keys).Draw(t, "key")}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				msg = mouseMsg{X: rapid.IntRange(0, 220).Draw(t, "x"), Y: rapid.IntRange(0, 70).Draw(t, "y"), Turn: rapid.IntRange(-1, 1).Draw(t, "turn")}
			case 1:
				msg = sizeMsg{rapid.IntRange(1, 220).Draw(t, "width"), rapid.IntRange(1, 70).Draw(t, "height")}
			case 2:
				msg = queueMsg{Query: m.query(), Page: api.JobPage{Jobs: m.rows[:rapid.IntRange(0, len(m.rows)).Draw(t, "rows")]}}
			}
			m, _ = update(m, msg)
		}
		lines := strings.Split(draw(m), "\n")
		if m.Width >= leastWidth && m.Height >= leastHeight && len(lines) != m.Height {
			t.Fatalf("%d lines on a screen of %d", len(lines), m.Height)
		}
		for _, line := range lines {
			if text.Width(line) > m.Width || strings.ContainsAny(line, "\x1b\x07\r\t\u202e") {
				t.Fatalf("%dx%d: %q", m.Width, m.Height, line)
			}
			if s.ASCII && strings.ContainsAny(line, "█▓░·─│┤╌") {
				t.Fatalf("not ASCII: %q", line)
			}
		}
	})
}

func TestAJobsFileIsOneRow(t *testing.T) {
	m := aLab(Screen{Width: 160, Height: 40})
	file, done := "/home/ann/jobs.txt", m.now.Add(90*time.Minute)
	line := job.View{ID: "60", Name: "lr-3", User: "ann", Batch: &file, State: job.Running}
	page := api.JobPage{Jobs: []job.View{line}, Batches: []api.BatchSum{{File: file, User: "ann", Tasks: api.Tasks{Counts: map[string]int{"running": 1, "queued": 2, "finished": 1}, DoneAt: &done}}}}
	m, _ = update(m, queueMsg{Query: m.query(), Page: page})
	m, _ = press(m, "end")
	if frame := draw(m); !strings.Contains(frame, "jobs.txt") || !strings.Contains(frame, "1 running, 2 queued, 1 finished  25% done, about 1h30m left") {
		t.Errorf("%s", frame)
	}
	m, _ = press(m, "c")
	if frame := draw(m); !strings.Contains(frame, "cancel all lines of jobs.txt: 1 running, 2 queued, 1 finished? y/n") {
		t.Errorf("%s", frame)
	}
	if _, want := press(m, "y"); !slices.Equal(want, []command{{Kind: doAct, Word: "cancel", File: job.Batch{User: "ann", File: file}}}) {
		t.Errorf("wants %+v", want)
	}
	if m, _ = press(m, "esc"); len(m.rows) == 0 {
		t.Fatal("no rows")
	}
	if _, want := press(m, "y"); !slices.Equal(want, []command{{Kind: doCopy, ID: file}}) {
		t.Errorf("wants %+v", want)
	}
	page.Jobs[0].ID = "61" // another line is the first now
	m, _ = update(m, queueMsg{Query: m.query(), Page: page})
	if v, ok := m.selected(); !ok && len(m.rows) != 1 {
		t.Errorf("selected %+v of %d", v, len(m.rows))
	}
	if m, _ = press(m, "/", "x", "enter"); m.query().Batches {
		t.Error("a name that lines are searched for folds them")
	}
}

// press presses keys one after another, and returns what the last one wants.
func press(m model, keys ...string) (model, []command) {
	var want []command
	for _, k := range keys {
		m, want = update(m, keyMsg{k})
	}
	return m, want
}

func TestWhatAKeyDoes(t *testing.T) {
	for _, test := range []struct {
		keys string
		want []command
		sees string // on the screen
	}{
		{"c", nil, "cancel job 17 (train)? y/n"},
		{"c y", []command{{Kind: doAct, ID: "17", Word: "cancel"}}, ""},
		{"c n", nil, "nothing was changed"},
		{"c enter", nil, "nothing was changed"},
		{"j c", nil, "cancel array 18 (sweep): 1 running, 9,999 queued? y/n"},
		{"j c y", []command{{Kind: doAct, ID: "18", Word: "cancel"}}, ""},
		{"h", []command{{Kind: doAct, ID: "17", Word: "hold"}}, ""},
		{"end r", []command{{Kind: doAct, ID: "22", Word: "release"}}, ""},
		{"R", nil, "stop job 17 (train) and run it again from the beginning? y/n"},
		{"R y", []command{{Kind: doAct, ID: "17", Word: "requeue"}}, ""},
		{"R n", nil, "nothing was changed"},
		{"j R", nil, "stop array 18 (sweep): 1 running, 9,999 queued and run it again from the beginning? y/n"},
		{"P", []command{{Kind: doAct, ID: "17", Word: "park"}}, ""},
		{"j j U", []command{{Kind: doAct, ID: "20", Word: "unpark"}}, ""},
		{"+", []command{{Kind: doEdit, ID: "17", N: 6}}, ""},
		{"-", []command{{Kind: doEdit, ID: "17", N: 4}}, ""},
		{"p y", []command{{Kind: doPause, N: 0}}, ""},
		{"p", nil, "start no more jobs on gpu0? y/n"},
		{"tab down p", []command{{Kind: doResume, N: 1}}, ">gpu1"},
		{"y", []command{{Kind: doCopy, ID: "17"}}, "copied 17"},
		{"j", []command{{Kind: loadJob, ID: "18_0"}, {Kind: followLog, ID: "18_0"}}, ">18 "},
		{"pgdown", []command{{Kind: loadJob, ID: "22"}, {Kind: followLog, ID: "22"}}, ">22 "},
		{"end home", []command{{Kind: loadJob, ID: "17"}, {Kind: followLog, ID: "17"}}, ">17 "},
		{"k", nil, ">17 "},
		{"/ s w", nil, "name contains: sw_"},
		{"/ s w backspace enter", []command{{Kind: loadQueue}}, "name: s"},
		{"/ s enter esc", []command{{Kind: loadQueue}}, "berth top  2 running"},
		{"o", []command{{Kind: loadQueue}}, "own jobs"},
		{"e", []command{{Kind: loadQueue}}, "with ended"},
		{"e e", []command{{Kind: loadQueue}}, "berth top  2 running"},
		{"j +", nil, "+ and - change one job, not an array"},
		{"s", nil, "by memory"},
		{"?", nil, "any key comes back"},
		{"? x", nil, "? keys"},
		{"enter", nil, "log of job 17 (train), running"},
		{"enter / l o s s enter", nil, "> "},
		{"enter q", nil, "? keys"},
		{"q", []command{{Kind: doQuit}}, ""},
		{"/ ctrl+c", []command{{Kind: doQuit}}, ""},
	} {
		m, want := press(aLab(Screen{Width: 100, Height: 30}), strings.Fields(test.keys)...)
		if !slices.Equal(want, test.want) {
			t.Errorf("%s wants %+v, want %+v", test.keys, want, test.want)
		}
		if !strings.Contains(draw(m), test.sees) {
			t.Errorf("%s: %q is not in\n%s", test.keys, test.sees, draw(m))
		}
	}
}

func TestEveryKeyOfTheHelpDoesSomething(t *testing.T) {
	for _, k := range keyHelp {
		for _, name := range strings.Fields(k.keys) {
			m := aLab(Screen{Width: 100, Height: 30})
			m, _ = press(m, "j") // so that there is a way up
			before := fmt.Sprintf("%+v", m)
			after, want := press(m, name)
			if len(want) == 0 && before == fmt.Sprintf("%+v", after) {
				t.Errorf("%s (%s) does nothing", name, k.does)
			}
		}
	}
}

func TestTheFilterIsAskedOfTheDaemonAndMeansItself(t *testing.T) {
	m, _ := press(aLab(Screen{Width: 100, Height: 30}), "/", "a", "*", "[", "enter")
	if q := m.query(); q.Name != "*a??*" || q.Limit != maxRows || !q.Queue {
		t.Errorf("asked for %+v", q)
	}
	m, _ = press(m, "o")
	if q := m.query(); q.User != "ann" {
		t.Errorf("own jobs: %+v", q)
	}
	// An answer to an older question is not shown.
	before := len(m.rows)
	m, _ = update(m, queueMsg{Query: api.Query{}, Page: api.JobPage{}})
	if len(m.rows) != before || !m.dirty {
		t.Error("the answer to another filter was taken")
	}
}

// TestALowScreenSaysHowManyGPUsItLacks: they are there all the same.
func TestALowScreenSaysHowManyGPUsItLacks(t *testing.T) {
	for height, want := range map[int]string{10: "  1 GPU not shown", 12: "", 30: ""} {
		header, _, _ := strings.Cut(draw(aLab(Screen{Width: 100, Height: height})), "\n")
		if _, said, _ := strings.Cut(header, "queued"); strings.TrimRight(strings.TrimSuffix(said, "12:00:00"), " ") != want {
			t.Errorf("%d lines: %q, want %q", height, header, want)
		}
	}
}

func TestTheHeaderNamesEveryChoiceOn80Columns(t *testing.T) {
	for by := range sorts[1:] {
		m, _ := press(aLab(Screen{Width: 80, Height: 10}), slices.Concat([]string{"o", "e"}, slices.Repeat([]string{"s"}, by+1))...)
		header, _, _ := strings.Cut(draw(m), "\n")
		for _, want := range []string{"10,002 queued", "  own jobs  with ended  by " + sorts[by+1].name} {
			if !strings.Contains(header, want) {
				t.Errorf("%q: no %q", header, want)
			}
		}
	}
}

// TestALowScreenShowsAllKeysOneScreenAfterTheOther: none is cut off without a word.
func TestALowScreenShowsAllKeysOneScreenAfterTheOther(t *testing.T) {
	m, _ := press(aLab(Screen{Width: 60, Height: 10}), "?")
	var frames strings.Builder
	for range keyHelp {
		frames.WriteString(draw(m))
		if m, _ = press(m, "x"); m.mode == normal {
			break
		}
	}
	for _, k := range keyHelp {
		if n := strings.Count(frames.String(), fmt.Sprintf("\n  %-22s ", k.keys)); n != 1 {
			t.Errorf("%s is shown %d times", k.keys, n)
		}
	}
	if got := frames.String(); m.mode != normal || !strings.Contains(got, "any key shows 12 more") || !strings.Contains(got, "any key comes back") {
		t.Errorf("mode %d after:\n%s", m.mode, got)
	}
}

// TestAMessageGoesWithTheNextKey: it would hide which keys another view has.
func TestAMessageGoesWithTheNextKey(t *testing.T) {
	m := aLab(Screen{Width: 100, Height: 30})
	m.notify("job 17 is parked")
	if !strings.Contains(draw(m), "job 17 is parked") {
		t.Error("it is not shown")
	}
	m, _ = press(m, "enter")
	if frame := draw(m); strings.Contains(frame, "job 17 is parked") || !strings.Contains(frame, "q back") {
		t.Errorf("in the log:\n%s", frame)
	}
}

// TestLittleIsAskedFor: without events, the queue is asked for rarely; with any
// number of them, once a second.
func TestLittleIsAskedFor(t *testing.T) {
	for name, test := range map[string]struct {
		events    int
		low, most int
	}{"quiet": {0, 4, 5}, "a flood": {1000, 59, 60}} {
		m := aLab(Screen{Width: 100, Height: 30})
		asked := map[commandKind]int{}
		for i := range 60 {
			for range test.events {
				m, _ = update(m, changedMsg{})
			}
			var want []command
			m, want = update(m, tickMsg{noon.Add(time.Duration(i+1) * time.Second)})
			for _, w := range want {
				asked[w.Kind]++
				switch w.Kind {
				case loadQueue:
					m, _ = update(m, queueMsg{Query: m.query(), Page: m.page})
				case loadGPUs:
					m, _ = update(m, gpusMsg{GPUs: m.gpus})
				}
			}
		}
		if n := asked[loadQueue]; n < test.low || n > test.most || asked[loadGPUs] > 31 || asked[loadWhy] > 60 || asked[loadSamples] > 60 {
			t.Errorf("%s: in a minute %v", name, asked)
		}
	}
	// Nothing is asked for twice at the same time.
	m := aLab(Screen{Width: 100, Height: 30})
	m, _ = update(m, changedMsg{})
	m, _ = update(m, tickMsg{noon.Add(time.Second)})
	m, _ = update(m, changedMsg{})
	if _, want := update(m, tickMsg{noon.Add(2 * time.Second)}); slices.ContainsFunc(want, func(w command) bool { return w.Kind == loadQueue }) {
		t.Error("asked again before the answer")
	}
}

func TestALostDaemonIsSaidAndComesBack(t *testing.T) {
	m := aLab(Screen{Width: 100, Height: 30})
	m, _ = update(m, queueMsg{Query: m.query(), Err: errors.New("connection refused")})
	frame := draw(m)
	if !strings.Contains(frame, "no answer since 12:00:00: connection refused") || !strings.Contains(frame, ">17 ") {
		t.Errorf("it shows\n%s", frame)
	}
	if _, want := update(m, tickMsg{noon.Add(time.Second)}); !slices.ContainsFunc(want, func(w command) bool { return w.Kind == loadQueue }) {
		t.Error("it does not ask again")
	}
	if m, _ = update(m, queueMsg{Query: m.query(), Page: m.page}); strings.Contains(draw(m), "no answer") {
		t.Error("it still says that there is no answer")
	}
}

func TestAClickSelectsAndTheWheelMoves(t *testing.T) {
	m := aLab(Screen{Width: 100, Height: 30})
	l := m.layout()
	clicked, _ := update(m, mouseMsg{X: 5, Y: l.jobsAt + 2})
	if clicked.selectedID != "20" {
		t.Errorf("selected %s", clicked.selectedID)
	}
	clicked, _ = update(m, mouseMsg{X: 5, Y: l.gpusAt + 1})
	if !clicked.onGPUs || clicked.gpuAt != 1 {
		t.Errorf("selected gpu %d, %v", clicked.gpuAt, clicked.onGPUs)
	}
	turned, _ := update(m, mouseMsg{Turn: 1})
	if turned.selectedID != "18_0" {
		t.Errorf("the wheel selected %s", turned.selectedID)
	}
}

func TestALogIsBoundedAndSearchedFromItsEnd(t *testing.T) {
	var l logView
	for i := range 3 * maxLogLines {
		l.add([]byte(fmt.Sprintf("line %d\n", i)))
	}
	l.add([]byte(strings.Repeat("x", 3*maxLogLine)))
	if len(l.lines) != maxLogLines || len(l.lines[maxLogLines-1]) > maxLogLine {
		t.Errorf("%d lines, the last of %d bytes", len(l.lines), len(l.lines[len(l.lines)-1]))
	}
	l.search = "line 5990"
	l.next()
	if got := l.tail(1); len(got) != 1 || got[0] != "line 5990" {
		t.Errorf("found %q", got)
	}
	at := l.back
	l.add([]byte("\nmore\n"))
	if l.back <= at {
		t.Error("the line being read moved away")
	}
}

func TestAnAnswerAboutAnotherJobIsNotShown(t *testing.T) {
	m, _ := press(aLab(Screen{Width: 100, Height: 30}), "j")
	m, _ = update(m, logMsg{ID: "17", Data: []byte("of another job\n")})
	m, _ = update(m, jobMsg{ID: "17", Detail: api.Detail{}})
	if len(m.log.lines) != 0 || m.detail != nil {
		t.Errorf("it has %v and %v", m.log.lines, m.detail)
	}
}

// TestTheCursorStaysOnItsJob: a job that leaves the rows that were asked for, or
// ends, stays selected, and so does an array that another task stands for.
func TestTheCursorStaysOnItsJob(t *testing.T) {
	m, _ := press(aLab(Screen{Width: 100, Height: 30}), "j", "j") // the parked job 20
	gone := m.page
	gone.Jobs = slices.DeleteFunc(slices.Clone(m.page.Jobs), func(v job.View) bool { return v.ID == "20" })
	m, _ = update(m, queueMsg{Query: m.query(), Page: gone})
	if _, want := press(m, "U"); !slices.Equal(want, []command{{Kind: doAct, ID: "20", Word: "unpark"}}) {
		t.Errorf("unpark wants %+v", want)
	}
	ended := job.View{ID: "20", Name: "parked-one", State: job.Finished}
	m, _ = update(m, jobMsg{ID: "20", Detail: api.Detail{View: ended}})
	if v, ok := m.selected(); !ok || v.State != job.Finished {
		t.Errorf("selected %+v", v)
	}
	if m, _ = press(m, "j"); m.selectedID != "21" {
		t.Errorf("moved to %s", m.selectedID)
	}
	m, _ = update(m, queueMsg{Query: m.query(), Page: gone})
	if m.selectedID != "21" || slices.ContainsFunc(m.rows, func(v job.View) bool { return v.ID == "20" }) {
		t.Errorf("after moving on: selected %s of %d rows", m.selectedID, len(m.rows))
	}

	// Another filter is another list.
	m, _ = press(m, "/", "t", "r", "enter")
	m, _ = update(m, queueMsg{Query: m.query(), Page: api.JobPage{Jobs: m.page.Jobs[:1]}})
	if len(m.rows) != 1 || m.selectedID != "17" {
		t.Errorf("filtered: selected %s of %d rows", m.selectedID, len(m.rows))
	}

	m, _ = press(aLab(Screen{Width: 100, Height: 30}), "j") // array 18
	next := m.page
	next.Jobs = slices.Clone(next.Jobs)
	next.Jobs[1].ID = "18_7"
	next.Jobs[1], next.Jobs[3] = next.Jobs[3], next.Jobs[1]
	m, _ = update(m, queueMsg{Query: m.query(), Page: next})
	if m.selectedID != "18_7" || m.at != 3 {
		t.Errorf("selected %s at %d", m.selectedID, m.at)
	}
}

// TestAnExpectedStartIsCountedDownAndNotShownOnceItIsOver, nor for a job that does
// not wait any more.
func TestAnExpectedStartIsCountedDownAndNotShownOnceItIsOver(t *testing.T) {
	m := aLab(Screen{Width: 100, Height: 30})
	queued := m.rows[3]
	for after, want := range map[time.Duration]string{0: "14m00", 4 * time.Minute: "10m00", 14*time.Minute + time.Second: ""} {
		m.now = noon.Add(after)
		if got := startOf(m, queued); got != want {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	m.now = noon
	running, held := queued, queued
	running.State, held.Held = job.Running, true
	if startOf(m, running) != "" || startOf(m, held) != "" {
		t.Errorf("running %q, held %q", startOf(m, running), startOf(m, held))
	}
}
