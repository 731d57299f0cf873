package cli

import (
	"bytes"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/job"
	"berth/internal/tests/testkit"
	"berth/internal/text"
)

// noon is local, as what is shown is.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)

func ago(d time.Duration) *time.Time {
	t := noon.Add(-d)
	return &t
}

func to[T any](v T) *T { return &v }

// someViews are jobs in every state, of lengths people really have.
func someViews() []job.View {
	return []job.View{
		{ID: "17", Name: "train", User: "ann", State: job.Running, Command: to("python train.py --epochs 30 --lr 0.001"), GPUs: 2, GPUIDs: []int{0, 1}, VRAMMiB: to(int64(18432)),
			SubmittedAt: ago(3 * time.Hour), StartedAt: ago(2*time.Hour + 5*time.Minute), PeakVRAMMiB: map[string]int64{"0": 17910, "1": 17904}},
		{ID: "18", Name: "llama-finetune-with-a-long-name", User: "bartholomew", State: job.Queued, Command: to("torchrun --nproc-per-node 2 big.py"), GPUs: 2, VRAMMiB: to(int64(30720)),
			SubmittedAt: ago(4*time.Minute + 12*time.Second), Reason: to("needs 2 GPUs with 30720 MiB free; best now: gpu1 20000, gpu3 9000; gpu0 is paused")},
		{ID: "19_3", Name: "sweep", User: "ann", State: job.Queued, Command: to("python sweep.py 3"), GPUs: 1, Share: to(0.5), SubmittedAt: ago(3 * time.Second), Reason: to("number 3 of its array waits: 4 run at a time")},
		{ID: "20", Name: "prepare", User: "ann", State: job.Running, GPUs: 0, SubmittedAt: ago(time.Minute), StartedAt: ago(59 * time.Second)},
		{ID: "12", Name: "eval \x1b[31mred", User: "日本語", State: job.Failed, Outcome: to(job.Exited(3)), Command: to("python eval.py"), GPUs: 1, GPUIDs: []int{3}, VRAMMiB: to(int64(8192)),
			StartedAt: ago(80 * time.Hour), EndedAt: ago(4 * time.Hour), PeakVRAMMiB: map[string]int64{"3": 9011}, Reason: to("UNDER-DECLARED (+10%)")},
		{ID: "13", Name: "job13", User: "ann", State: job.Cancelled, Outcome: to(job.WasCancelled), Command: to("sleep 100"), GPUs: 1, SubmittedAt: ago(time.Hour), EndedAt: ago(50 * time.Minute), Reason: to("cancelled by ann")},
		{ID: "14", Name: "ok", User: "ann", State: job.Finished, Outcome: to(job.OK), Command: to("true"), GPUs: 1, GPUIDs: []int{0}, StartedAt: ago(20 * time.Minute), EndedAt: ago(19 * time.Minute)},
	}
}

// someList are these jobs, and an array.
func someList() listed {
	file, done := "/home/ann/project/jobs.txt", noon.Add(2*time.Hour+10*time.Minute)
	views := append(someViews(), job.View{ID: "51", Name: "lr-3", User: "ann", Batch: &file, State: job.Running, GPUs: 1, GPUIDs: []int{4}, Command: to("python lr.py 3"), StartedAt: ago(time.Minute)},
		job.View{ID: "52", Name: "lr-4", User: "ann", Batch: &file, State: job.Queued, GPUs: 2, Command: to("python lr.py 4")},
		job.View{ID: "53", Name: "other", User: "bartholomew", Batch: &file, State: job.Queued, GPUs: 2, Command: to("python other.py")},
		job.View{ID: "40_2", Name: "job40_2", User: "ann", State: job.Running, GPUs: 1, GPUIDs: []int{2}, Command: to("python sweep.py"), StartedAt: ago(time.Minute)},
		job.View{ID: "40_3", Name: "job40_3", User: "ann", State: job.Queued, GPUs: 1, Command: to("python sweep.py")})
	page := api.JobPage{
		Arrays:  map[string]api.Tasks{"40": {Counts: map[string]int{"running": 3, "queued": 4, "failed": 1}, Reason: "array 40 already has 3 tasks running, and runs 3 at a time"}},
		Batches: []api.BatchSum{{File: file, User: "ann", Tasks: api.Tasks{Counts: map[string]int{"running": 1, "queued": 42, "finished": 57}, Reason: "needs a GPU", DoneAt: &done}}},
	}
	list := listed{rows: render.Fold(views, page), counts: map[string]int{"running": 5, "queued": 49956, "failed": 2, "cancelled": 1, "finished": 1}}
	list.hidden.Counts = maps.Clone(list.counts)
	list.cut(0)
	return list
}

// someHistory are jobs that have ended, and an array.
func someHistory() []render.Row {
	views := append(someViews()[4:], job.View{ID: "40_9", Name: "job40_9", User: "ann", State: job.Finished, Outcome: to(job.OK), GPUs: 1, GPUIDs: []int{2}, Command: to("python sweep.py"), StartedAt: ago(30 * time.Minute), EndedAt: ago(25 * time.Minute)})
	return render.Fold(views, api.JobPage{Arrays: map[string]api.Tasks{"40": {Counts: map[string]int{"finished": 8, "failed": 2}}}})
}

func someArray() api.Detail {
	d := someDetail()
	d.View.ID, d.View.Name, d.View.State, d.View.Outcome, d.View.GPUIDs, d.View.PeakVRAMMiB, d.View.Log, d.EndedAt, d.Reason, d.Verdict = "40", "sweep", job.Running, nil, nil, nil, nil, nil, nil, ""
	d.Events, d.Attempt, d.RetriesUsed, d.Settings = nil, 0, 0, map[string]string{"array_limit": "3"}
	d.Tasks = &api.ArrayDetail{Tasks: api.Tasks{Counts: map[string]int{"running": 1, "queued": 40, "failed": 12}, Reason: "array 40 already has 3 tasks running"}, GPUHours: 12.345, Limit: 3,
		Failed: []job.View{{ID: "40_1", Name: "sweep", State: job.Failed, Outcome: to(job.Exited(3)), StartedAt: ago(time.Hour), EndedAt: ago(50 * time.Minute)}},
		Unfinished: []job.View{{ID: "40_2", Name: "sweep", State: job.Running, GPUs: 1, GPUIDs: []int{3}, StartedAt: ago(time.Minute)},
			{ID: "40_3", Name: "sweep", State: job.Queued, GPUs: 1, SubmittedAt: ago(time.Hour), Reason: to("array 40 already has 3 tasks running")}}}
	return d
}

// someGPUs are cards in every state: at work, with a desktop, in parts, gone.
func someGPUs() []api.GPU {
	part := func(index int, profile string, jobs ...api.GPUJob) api.GPU {
		return api.GPU{Index: index, Parent: to(2), Profile: profile, Name: "NVIDIA H100 80GB HBM3 MIG " + profile, TotalMiB: 9856, UsedMiB: 1200,
			BudgetMiB: 2048, Health: "ok", TemperatureC: to(41.0), PowerW: to(119.6), PowerLimitW: to(700.0), Jobs: jobs, Processes: []api.GPUProcess{}}
	}
	return []api.GPU{
		{Index: 0, Name: "NVIDIA A100-SXM4-80GB", TotalMiB: 81920, UsedMiB: 18100, FreeMiB: 63820, BudgetMiB: 18432, Util: to(97.0), Health: "ok",
			TemperatureC: to(64.0), PowerW: to(312.4), PowerLimitW: to(400.0), Jobs: []api.GPUJob{{ID: "17", Name: "train", User: "ann", UsedMiB: to(int64(17904))}},
			Processes: []api.GPUProcess{{PID: 4242, User: "ann", Command: "python", UsedMiB: to(int64(17904)), Job: "17"}}},
		{Index: 1, Name: "NVIDIA A100-SXM4-80GB", TotalMiB: 81920, UsedMiB: 4096, ForeignMiB: 4096, Health: "ok", Paused: true, Util: to(0.0), TemperatureC: to(38.0), Jobs: []api.GPUJob{},
			Processes: []api.GPUProcess{{PID: 1190, User: "gdm", Command: "Xorg", UsedMiB: to(int64(96)), Graphics: true}, {PID: 51, UsedMiB: nil}, {PID: 99001, User: "bartholomew", Command: "blender \x1b[2J", UsedMiB: to(int64(4000))}}},
		{Index: 10, Name: "NVIDIA A100-SXM4-80GB", TotalMiB: 81920, Health: "quarantined", HealthReason: "fallen off the bus (Xid 79)", HealthSince: *ago(3 * time.Minute), Stale: true, StaleReason: "missing from the last reading",
			Jobs: []api.GPUJob{{ID: "21", Name: "job21", User: "bob", Share: 0.5, IdleSince: ago(42 * time.Minute)}, {ID: "3", Name: "other", User: "eve", Other: true}}},
		{Index: 11, Name: "NVIDIA A100-SXM4-80GB", TotalMiB: 81920, Health: "ok", LetGoUntil: to(noon.Add(20 * time.Minute)), Stale: true, StaleReason: "the driver is released until 12:20:00", Jobs: []api.GPUJob{}},
		part(300, "1g.10gb", api.GPUJob{ID: "22", Name: "small", User: "ann", UsedMiB: to(int64(1180))}), part(301, "1g.10gb"),
	}
}

func someStats() api.Stats {
	line := func(key string, jobs int) api.StatsLine {
		return api.StatsLine{Key: key, Jobs: jobs, Finished: jobs - 2, Failed: 1, Cancelled: 1, GPUHours: float64(jobs) * 1.5, CPUHours: float64(jobs) * 6,
			WaitMeanS: to(80.0), WaitP50S: to(12.0), WaitP95S: to(400.0), WaitMaxS: to(5000.0), RunMeanS: to(5400.0), AvgUtil: to(81.5)}
	}
	return api.Stats{Since: noon.Add(-7 * 24 * time.Hour), Until: noon, GPUs: 8, GPUHours: 1834.25, CPUHours: 7337, Util: to(0.73), UtilSince: ago(50 * time.Hour), AvgUtil: to(81.5),
		All: line("all", 1220), Users: []api.StatsLine{line("ann", 1200), {Key: "bob", Jobs: 20}}, Days: []api.StatsLine{line("2026-02-28", 1220)}}
}

func someDetail() api.Detail {
	v := someViews()[4]
	v.SubmittedAt, v.Log, v.AvgUtil, v.Priority, v.Attempt = ago(81*time.Hour), to("/var/lib/berth/jobs/12/2.log"), to(96.4), 5, 2
	v.PeakVRAMMiB["10"], v.PeakVRAMMiB["2"] = 100, 2048
	return api.Detail{View: v, Dir: "/home/ann/project", TimeLimitS: 7200, RetriesUsed: 1, Verdict: "under-declared", LogDropped: 6291456,
		Settings: map[string]string{"retries": "2", "grace": "10s"}, Env: map[string]string{"B": "2", "A": "1"},
		After:  []job.Dependency{{Job: "11", On: job.AfterOK}},
		Events: []api.Event{{Time: *ago(81 * time.Hour), Kind: job.EventQueued}, {Time: *ago(4 * time.Hour), Kind: job.EventEnded, Text: "exit:3\x07"}}}
}

// TestTables draws every table as wide as terminals are, and uncut as into a
// pipe.
func TestTables(t *testing.T) {
	views := map[string]func(s render.Screen) error{
		"list": func(s render.Screen) error {
			return drawList(s, someList(), render.Columns[:render.UsualColumns], false, noon)
		},
		"history": func(s render.Screen) error { return s.Draw(historyTable(someHistory(), noon)) },
		"gpus":    func(s render.Screen) error { return drawGPUs(s, someGPUs(), false, noon) },
		"gpus-v":  func(s render.Screen) error { return drawGPUs(s, someGPUs(), true, noon) },
		"stats":   func(s render.Screen) error { return drawStats(s, someStats()) },
		"show":    func(s render.Screen) error { return showJob(s, someDetail(), noon) },
		"array":   func(s render.Screen) error { return showArray(s, someArray(), noon) },
	}
	for name, draw := range views {
		for _, size := range []struct {
			name   string
			width  int
			colour bool
		}{{"80", 80, false}, {"140", 140, false}, {"120", 120, true}, {"200", 200, false}, {"pipe", 0, false}} {
			t.Run(name+"-"+size.name, func(t *testing.T) {
				var out bytes.Buffer
				if err := draw(render.Screen{Out: &out, Width: size.width, Colour: size.colour}); err != nil {
					t.Fatal(err)
				}
				golden(t, name+"-"+size.name, out.Bytes())
				if name != "show" && name != "array" {
					checkWidth(t, out.String(), size.width)
				}
			})
		}
	}
}

// checkWidth fails on a line that would wrap, or that drives a terminal.
func checkWidth(t *testing.T, written string, width int) {
	t.Helper()
	for _, colour := range []text.Paint{text.Bold, text.Dim, text.Red, text.Green, text.Yellow, text.Blue} {
		written = strings.ReplaceAll(written, "\x1b["+string(colour)+"m", "")
	}
	written = strings.ReplaceAll(written, "\x1b[0m", "")
	for line := range strings.SplitSeq(written, "\n") {
		if width > 0 && text.Width(line) > width {
			t.Errorf("%d columns in %q", text.Width(line), line)
		}
		if line != text.Line(line) || strings.HasSuffix(line, " ") {
			t.Errorf("%q", line)
		}
	}
}

// TestATableFitsAnyTerminal: whatever the jobs are called, no line wraps on a
// terminal of 60 columns or more, and no name drives it.
func TestATableFitsAnyTerminal(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var jobs []job.View
		for range rapid.IntRange(1, 5).Draw(r, "jobs") {
			v := job.View{
				ID: rapid.StringMatching(`[1-9][0-9]{0,7}(_[0-9]{1,3})?`).Draw(r, "id"), Name: rapid.String().Draw(r, "name"), User: rapid.String().Draw(r, "user"),
				State: rapid.SampledFrom([]job.State{job.Queued, job.Running, job.Failed, job.Cancelled}).Draw(r, "state"),
				GPUs:  1, GPUIDs: rapid.SliceOfN(rapid.IntRange(0, 15), 0, 16).Draw(r, "cards"),
				Reason: to(rapid.String().Draw(r, "reason")), Command: to(rapid.String().Draw(r, "command")), SubmittedAt: ago(time.Hour),
			}
			jobs = append(jobs, v)
		}
		var out bytes.Buffer
		width := rapid.IntRange(60, 250).Draw(r, "width")
		if err := (render.Screen{Out: &out, Width: width}).Draw(render.JobTable(render.Fold(jobs, api.JobPage{}), render.Columns[:render.UsualColumns], false, noon)); err != nil {
			r.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != len(jobs)+1 {
			r.Fatalf("%d lines for %d jobs: %q", len(lines), len(jobs), lines)
		}
		for i, line := range lines {
			if text.Width(line) > width || line != text.Line(line) {
				r.Fatalf("%d columns of %d in %q", text.Width(line), width, line)
			}
			if i > 0 && !strings.HasPrefix(line, jobs[i-1].ID) {
				r.Fatalf("job %s is shown as %q", jobs[i-1].ID, line)
			}
		}
	})
}

func TestTimesAndCountsAsPeopleReadThem(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 3 * time.Second: "3s", 59*time.Second + 999*time.Millisecond: "59s", 252 * time.Second: "4m12s",
		2*time.Hour + 5*time.Minute: "2h05m", 76 * time.Hour: "3d4h", 24 * time.Hour: "1d0h",
	} {
		if got := text.Span(d); got != want {
			t.Errorf("%s is shown as %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 49950: "49,950", 1234567: "1,234,567"} {
		if got := text.Grouped(n); got != want {
			t.Errorf("%d is shown as %s, want %s", n, got, want)
		}
	}
	for written, want := range map[string]string{
		"2h": "2026-03-01T10:00:00Z", "7d": "2026-02-22T12:00:00Z", "2026-02-01": "2026-02-01T00:00:00Z",
		"2026-02-01 16:30": "2026-02-01T16:30:00Z", "2026-02-01T16:30:00+01:00": "2026-02-01T15:30:00Z",
	} {
		if got, err := parseWhen("since", written, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)); err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s is %s (%v), want %s", written, got, err, want)
		}
	}
	if _, err := parseWhen("since", "yesterday", noon); err == nil {
		t.Error("yesterday was taken")
	}
}

func TestRunsOfIDs(t *testing.T) {
	for ids, want := range map[string]string{
		"": "", "17": "17", "17 18 19": "17-19", "17 19 20": "17 19-20", "3_0 3_1 3_2 4": "3_0-2 4", "9 10 10": "9-10 10", "1 1_2 1_3": "1 1_2-3", "x y": "x y",
	} {
		if got := strings.Join(idRuns(strings.Fields(ids)), " "); got != want {
			t.Errorf("%s became %q, want %q", ids, got, want)
		}
	}
}

func TestWhatAColumnLeavesGoesToTheOthers(t *testing.T) {
	name := strings.Repeat("n", 30)
	jobs := []job.View{{ID: "1", Name: name, User: "ann", State: job.Running, GPUs: 1, Command: to(strings.Repeat("c", 40))}}
	for width, want := range map[int]string{200: name + "  ann", 72: "nnnnnnnnnnnnnnnnnn…", 48: strings.Repeat("n", 22) + "…  running"} {
		var out bytes.Buffer
		if err := (render.Screen{Out: &out, Width: width}).Draw(render.JobTable(render.Fold(jobs, api.JobPage{}), render.Columns[:render.UsualColumns], false, noon)); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("in %d columns:\n%s%v", width, out.String(), err)
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	testkit.Golden(t, filepath.Join("testdata", name+".golden"), got)
}

func TestHistorySaysWhatWasNotSaved(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason *string
		saved  *job.CheckpointsView
		want   string
	}{
		{nil, nil, ""},
		{nil, &job.CheckpointsView{RanS: 4000, LostS: 0.4}, ""},
		{nil, &job.CheckpointsView{RanS: 4000, LostS: 720}, "12m00s was not saved"},
		{to("exit:3"), &job.CheckpointsView{RanS: 4000, LostS: 720}, "exit:3; 12m00s was not saved"},
	} {
		v := job.View{ID: "1", State: job.Failed, Reason: test.reason, Checkpoints: test.saved}
		if got := endedText(&v); got != test.want {
			t.Errorf("%+v: %q, want %q", test.saved, got, test.want)
		}
	}
}
