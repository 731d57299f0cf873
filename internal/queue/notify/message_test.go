package notify

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ended(id, name, outcome string) Fact {
	return Fact{On: OnEnd, At: noon, Job: id, Name: name, User: "ann", Outcome: outcome}
}

func batch(facts ...Fact) (b Batch) {
	for _, f := range facts {
		b.Add(f)
	}
	return b
}

func TestWhatAMessageSays(t *testing.T) {
	whole := Fact{On: OnEnd, Job: "17", Name: "train", Outcome: "exit:3", Ran: 2*time.Hour + 5*time.Minute, GPUs: []int{0, 1}, PeakMiB: 17910, Attempt: 2, Detail: "see the log"}
	task := func(i int, outcome string) Fact {
		f := ended(fmt.Sprintf("17_%d", i), "sweep", outcome)
		f.Array = "17"
		return f
	}
	line := func(id, outcome string, began, ran time.Duration) Fact {
		f := ended(id, "", outcome)
		f.File, f.Ran, f.At = "/home/ann/secret/jobs.txt", ran, noon.Add(began+ran)
		return f
	}
	tests := []struct {
		facts       []Fact
		title, body string
		bad         bool
	}{
		{[]Fact{ended("17", "train", "ok")}, "[box] train (17) finished", "train (17) finished", false},
		{[]Fact{ended("17", "job17", "signal:KILL")}, "[box] job 17 failed by signal KILL", "job 17 failed by signal KILL", true},
		{[]Fact{whole}, "[box] train (17) failed with exit code 3",
			"train (17) failed with exit code 3, ran 2h05m, GPU 0,1, peak 17910 MiB, attempt 2: see the log", true},
		{[]Fact{{On: OnStart, Job: "4"}}, "[box] job 4 started", "job 4 started", false},
		{[]Fact{{On: OnFail, Job: "4", State: "running"}}, "[box] job 4 is about to be ended", "job 4 is about to be ended", true},
		{[]Fact{{On: OnIdle, Job: "4"}}, "[box] job 4 does not use its GPUs", "job 4 does not use its GPUs", true},
		{[]Fact{{At: noon, Detail: "gpu3 was quarantined"}}, "[box] gpu3 was quarantined", "2026-03-01T12:00:00Z gpu3 was quarantined", true},
		{[]Fact{task(0, "ok"), task(1, "timeout"), task(2, "ok")}, "[box] array sweep (17): 2 finished, 1 reached its time limit (17_1)",
			"sweep (17_1) reached its time limit\nsweep (17_0) finished\nsweep (17_2) finished", true},
		{[]Fact{{On: OnEnd, Job: "17_0", Whole: Whole{Array: "17"}, Name: "job17_0", Outcome: "ok"}, {On: OnEnd, Job: "17_1", Whole: Whole{Array: "17"}, Name: "job17_1", Outcome: "ok"}},
			"[box] array 17: 2 finished", "job 17_0 finished\njob 17_1 finished", false},
		{[]Fact{line("3", "exit:1", time.Hour, time.Hour), line("4", "ok", 0, time.Hour), line("5", "ok", time.Hour, 65*time.Minute)}, "[box] jobs.txt: 2 finished, 1 failed (3) in 2h05m",
			"job 3 failed with exit code 1, ran 1h00m\njob 4 finished, ran 1h00m\njob 5 finished, ran 1h05m", true},
		{[]Fact{line("3", "ok", 0, time.Hour)}, "[box] job 3 finished", "job 3 finished, ran 1h00m", false},
		{[]Fact{task(0, "ok"), ended("9", "", "ok")}, "[box] 2 finished", "sweep (17_0) finished\njob 9 finished", false},
	}
	for _, tt := range tests {
		m := Compose("x-1", "box", noon, batch(tt.facts...))
		if said, err := json.Marshal(m); err != nil || strings.Contains(string(said), "secret") {
			t.Errorf("%s, %v", said, err)
		}
		if m.Title != tt.title || m.Body != tt.body || m.Bad != tt.bad {
			t.Errorf("%q, %q, bad %v; expected %q, %q, bad %v", m.Title, m.Body, m.Bad, tt.title, tt.body, tt.bad)
		}
	}
}

// TestAThousandEndsAreOneMessage: and the one that failed is named in it.
func TestAThousandEndsAreOneMessage(t *testing.T) {
	var b Batch
	for i := range 1000 {
		f := ended(fmt.Sprintf("17_%d", i), "sweep", "ok")
		f.Array = "17"
		if i == 777 {
			f.Outcome = "oom"
		}
		b.Add(f)
	}
	m := Compose("x-1", "box", noon, b)
	if m.Title != "[box] array sweep (17): 999 finished, 1 ran out of GPU memory (17_777)" || !strings.HasPrefix(m.Body, "sweep (17_777) ran out") ||
		!strings.HasSuffix(m.Body, "and 980 more events: array sweep (17): 999 finished, 1 ran out of GPU memory (17_777)") || len(m.Facts) != maxFacts {
		t.Errorf("%s\n%s", m.Title, m.Body)
	}
}

func TestABatchIsBoundedWhateverItHolds(t *testing.T) {
	var b Batch
	for i := range 5000 {
		f := ended(fmt.Sprint(i), strings.Repeat("n", 500), fmt.Sprintf("exit:%d", i%256))
		f.Array = fmt.Sprint(i)
		f.Detail = strings.Repeat("d", 5000)
		b.Add(f)
	}
	m := Compose("x-1", strings.Repeat("h", 300), noon, b)
	if b.Count() != 5000 || len(b.Tally) > maxTallies+1 || len(m.Title) > 300 || len(m.Body) > 20_000 {
		t.Errorf("%d facts, %d tallies, title of %d bytes, body of %d", b.Count(), len(b.Tally), len(m.Title), len(m.Body))
	}
}

func TestHostileTextIsCleaned(t *testing.T) {
	nasty := "x\r\nBcc: eve@example.org\x1b[31m\u202e\x00" + string([]byte{0xff})
	f := ended("17", nasty, "ok")
	f.Detail = nasty
	m := Compose("x-1", "bo\nx", noon, batch(f))
	for _, s := range []string{m.Title, strings.ReplaceAll(m.Body, "\n", ""), m.Host} {
		if strings.ContainsAny(s, "\r\n\x1b\x00\u202e") || !utf8.ValidString(s) {
			t.Errorf("%q", s)
		}
	}
	if strings.Count(m.Body, "\n") != 0 {
		t.Errorf("a name made a line of its own: %q", m.Body)
	}
}
