package job

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

var states = []State{Queued, Running, Parked, Finished, Failed, Cancelled}

// allowed is the state table as docs/reference/states.md tells it.
var allowed = map[State]string{
	Queued:    "running failed cancelled",
	Running:   "queued parked finished failed cancelled",
	Parked:    "queued running failed cancelled",
	Finished:  "queued",
	Failed:    "queued",
	Cancelled: "queued",
}

func TestEveryMoveIsInTheTableOrRefused(t *testing.T) {
	for _, from := range states {
		for _, to := range states {
			j := &Job{ID: "7", State: from}
			err := j.To(to)
			want := slices.Contains(strings.Fields(allowed[from]), string(to))
			switch {
			case want && (err != nil || j.State != to):
				t.Errorf("%s to %s: %v", from, to, err)
			case !want && (err == nil || j.State != from):
				t.Errorf("%s to %s is possible", from, to)
			}
		}
	}
}

func TestAMoveThatMustNotBeIsABug(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); text != "bug: job 7 cannot go from finished to running" {
			t.Errorf("it said %q", text)
		}
	}()
	(&Job{ID: "7", State: Finished}).MustTo(Running)
}

func TestOutcomes(t *testing.T) {
	tests := []struct {
		outcome Outcome
		state   State
		status  int
	}{
		{OK, Finished, 0},
		{Exited(3), Failed, 3},
		{Exited(255), Failed, 255},
		{Signalled("SEGV"), Failed, 1},
		{Timeout, Failed, 1},
		{OOM, Failed, 1},
		{Infeasible, Failed, 1},
		{Launch, Failed, 1},
		{Lost, Failed, 1},
		{WasCancelled, Cancelled, 0},
		{Depends, Cancelled, 1},
	}
	for _, test := range tests {
		if got := test.outcome.State(); got != test.state {
			t.Errorf("%s is %s, want %s", test.outcome, got, test.state)
		}
		if got := test.outcome.Status(); got != test.status {
			t.Errorf("%s counts %d, want %d", test.outcome, got, test.status)
		}
		if !test.outcome.State().Terminal() {
			t.Errorf("%s is not over", test.outcome)
		}
	}
	if code, ok := Signalled("KILL").ExitCode(); ok {
		t.Errorf("a signal has the exit code %d", code)
	}
}

func TestJudge(t *testing.T) {
	tests := []struct {
		name     string
		declared int64
		peaks    map[int]int64
		want     Verdict
		percent  float64
	}{
		{"nothing declared", 0, map[int]int64{0: 5}, "", 0},
		{"nothing measured", 1000, nil, "", 0},
		{"right", 1000, map[int]int64{0: 1000}, VerdictWithin, 0},
		{"at the upper edge", 1000, map[int]int64{0: 1100}, VerdictWithin, 10},
		{"at the lower edge", 1000, map[int]int64{0: 900}, VerdictWithin, -10},
		{"over it", 1000, map[int]int64{0: 1101}, VerdictUnder, 10.1},
		{"under it", 1000, map[int]int64{0: 899}, VerdictOver, -10.1},
		{"the highest of several cards counts", 1000, map[int]int64{0: 10, 3: 1500}, VerdictUnder, 50},
	}
	for _, test := range tests {
		got, percent := Judge(test.declared, test.peaks, 0.10)
		if got != test.want || percent < test.percent-0.01 || percent > test.percent+0.01 {
			t.Errorf("%s: %s %.1f, want %s %.1f", test.name, got, percent, test.want, test.percent)
		}
	}
}

func TestQuotedWordsComeBackFromAShell(t *testing.T) {
	words := []string{"plain", "", "two words", "it's", `a "b" $c`, "new\nline", "*", "a=b:c/d.e-f_g,h@i%j+k", "é", "--flag=x y"}
	out, err := exec.Command("/bin/sh", "-c", "printf '%s\\0' "+QuoteArgv(words)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("%q became %q", words, got)
	}
	if got := Quote("train.py"); got != "train.py" {
		t.Errorf("a plain word is quoted: %s", got)
	}
}

// TestViewOfParking: a job is on its way only while it runs.
func TestViewOfParking(t *testing.T) {
	for _, test := range []struct {
		state  State
		phase  ParkPhase
		on     bool
		parked bool
	}{
		{Running, ParkOut, true, false}, {Running, ParkBack, true, false}, {Running, ParkNone, false, false},
		{Parked, ParkNone, false, true}, {Failed, ParkOut, false, false}, {Cancelled, ParkBack, false, false},
	} {
		j := Job{ID: "1", State: test.state}
		j.Parking = Parking{Phase: test.phase, Since: time.Unix(1e9, 0), CardMiB: map[int]int64{0: 5}, Refused: "why"}
		v := j.View()
		if on := v.Parking != nil && *v.Parking == test.phase; on != test.on || (v.Parking != nil) != test.on {
			t.Errorf("%s, %q: on its way %v", test.state, test.phase, v.Parking)
		}
		if (v.ParkedSince != nil) != test.parked || (v.HostMiB != nil) != test.parked || v.ParkRefused == nil {
			t.Errorf("%s, %q: %+v", test.state, test.phase, v)
		}
	}
}

// TestView holds the public form of a job to the documented contract.
func TestView(t *testing.T) {
	at := time.Date(2026, 3, 1, 14, 2, 9, 0, time.UTC)
	code, util := 3, 96.5
	full := Job{
		ID: "17", User: "ann", State: Failed, Outcome: Exited(3), Detail: "why", VRAMMiB: 18432, Attempt: Attempt{Number: 2, Grant: Grant{GPUs: []int{1, 0}}, StartedAt: at.Add(time.Second), EndedAt: at.Add(time.Minute), ExitCode: &code, PeakMiB: map[int]int64{0: 17904, 1: 17910}, AvgUtil: &util, Log: "/logs/17/2.log"},
		Spec:        Spec{Argv: []string{"python", "train me.py"}, Name: "train", GPUs: 2, IDs: []int{1, 0}, Priority: 5},
		SubmittedAt: at, Preemptions: 3,
	}
	empty := Job{ID: "1", User: "ann", State: Queued, Spec: Spec{Shell: "true", GPUs: 1, Share: 0.5, VRAMMiB: 7}}
	for _, test := range []struct {
		job  Job
		want string
	}{
		{full, `{"id":"17","name":"train","user":"ann","state":"failed","outcome":"exit:3","reason":"why","priority":5,"command":"python 'train me.py'","gpus":2,"share":null,"vram_mib":18432,"gpu_ids":[1,0],"asked_ids":[1,0],"attempt":2,"submitted_at":"2026-03-01T14:02:09Z","started_at":"2026-03-01T14:02:10Z","ended_at":"2026-03-01T14:03:09Z","exit_code":3,"signal":null,"peak_vram_mib":{"0":17904,"1":17910},"avg_util":96.5,"charged_gpus":2,"log":"/logs/17/2.log","idle_since":null,"preemptions":3,"held":false,"group":null,"batch":null,"parkings":0,"parked_s":0,"parked_since":null,"host_mib":null,"parking":null,"park_refused":null,"checkpoints":null,"slurm":null,"sweep":null,"params":null}`},
		{empty, `{"id":"1","name":"job1","user":"ann","state":"queued","outcome":null,"reason":null,"priority":0,"command":"true","gpus":1,"share":0.5,"vram_mib":null,"gpu_ids":null,"asked_ids":null,"attempt":0,"submitted_at":null,"started_at":null,"ended_at":null,"exit_code":null,"signal":null,"peak_vram_mib":null,"avg_util":null,"charged_gpus":null,"log":null,"idle_since":null,"preemptions":0,"held":false,"group":null,"batch":null,"parkings":0,"parked_s":0,"parked_since":null,"host_mib":null,"parking":null,"park_refused":null,"checkpoints":null,"slurm":null,"sweep":null,"params":null}`},
	} {
		got, err := json.Marshal(test.job.View())
		if err != nil || string(got) != test.want {
			t.Errorf("got\n%s\nwant\n%s\n%v", got, test.want, err)
		}
	}
}

func TestACloneSharesNothingThatChanges(t *testing.T) {
	code, util := 1, 2.0
	j := &Job{Attempt: Attempt{PeakMiB: map[int]int64{0: 1}, Grant: Grant{GPUs: []int{0}, UUIDs: []string{"a"}}, ExitCode: &code, AvgUtil: &util}}
	c := j.Clone()
	c.PeakMiB[0], c.Grant.GPUs[0], c.Grant.UUIDs[0], *c.ExitCode, *c.AvgUtil = 9, 9, "z", 9, 9
	if j.PeakMiB[0] != 1 || j.Grant.GPUs[0] != 0 || j.Grant.UUIDs[0] != "a" || *j.ExitCode != 1 || *j.AvgUtil != 2 {
		t.Errorf("the original changed: %+v", j)
	}
}

// A job that ended without starting has no start to measure from.
func TestAJobThatNeverStartedWasNotParked(t *testing.T) {
	j := Job{State: Cancelled}
	j.EndedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if d := j.WasParked(); d != 0 {
		t.Errorf("it was parked for %v", d)
	}
}

func TestAnEndingDoesNotRepeatItself(t *testing.T) {
	for detail, want := range map[string]string{
		"": "reached its time limit", "reached its time limit of 3s": "reached its time limit of 3s", "a signal was ignored": "reached its time limit: a signal was ignored",
	} {
		if got := Timeout.Ending(detail); got != want {
			t.Errorf("%q: %q, want %q", detail, got, want)
		}
	}
}
